"""Any text as a corpus with one split, in an existing vocabulary, so that a model can be evaluated on it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from txl_tf.counted import counted
from txl_tf.data import records
from txl_tf.data.manifest import Corpus, Split
from txl_tf.data.tables.forms import read_text
from txl_tf.data.tables.json_records import is_json
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError

SPLIT = "text"


@contextlib.contextmanager
def corpus_of_text(path: str, vocabulary: Vocabulary, identity: Mapping[str, Any]) -> Iterator[Corpus]:
    """A Corpus whose split SPLIT is the text of a file, for as long as the block runs.

    `path` is local or gs:// and may end in .gz; `identity` is the model's `vocabulary_identity`. InputError if the file
    cannot be read or has fewer than two tokens; errors from the block also name the file.
    """
    text = read_text(path)
    if is_json(text):
        print(f"{path}: the letters of JSON are read, with its keys and escapes", file=sys.stderr)
    if returns := text.count("\r"):
        print(f"{path}: {counted(returns, 'line end')} with \\r read as \\n", file=sys.stderr)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    ids = vocabulary.encode(text)
    if len(ids) < 2:
        raise InputError(f"{path} has {len(ids)} tokens: a text to evaluate on needs two or more")
    dtype = records.smallest_dtype(vocabulary.vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        writer = records.ShardWriter(folder, SPLIT, dtype, unknown=vocabulary.special.unknown)
        writer.add(ids)
        vocabulary.save(folder)  # some objectives read it with the corpus
        try:
            yield Corpus(
                data_dir=folder,
                dataset="text",
                unit=vocabulary.unit,
                vocab_size=vocabulary.vocab_size,
                cutoffs=(),
                vocabulary_spec=identity["spec"],
                dtype=dtype,
                record_tokens=records.RECORD_TOKENS,
                shard_records=records.SHARD_RECORDS,
                splits={SPLIT: Split(len(ids), (writer.close(),))},
                files=identity["sha256"],
                request={},
                document_ends="",
                texts={SPLIT: {"files": 1, "first": [path], "bytes": len(text.encode())}},
            )
        except InputError as error:
            raise InputError(str(error).replace(folder, path)) from error
