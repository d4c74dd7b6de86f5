"""`manifest.json`: the content of a prepared corpus, which is checked before anything is read.

A prepared corpus is a directory of TFRecord shards, the vocabulary's files and the manifest. The manifest is written
last, and atomically: if it exists, all files that it names are complete. A corpus that has replaced another one has its
shards and vocabulary in a sub-directory, which the manifest names (staging.py).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.threads import REQUESTS, in_order
from txl_tf.data.vocabularies import Vocabulary, kind_of, load_vocabulary
from txl_tf.errors import InputError
from txl_tf.progress import progress_bar
from txl_tf.storage.files import digest, joined, read_bytes, read_json, write_atomically
from txl_tf.storage.strict_json import Fields, check_record

FILE_NAME = "manifest.json"
FORMAT = "txl_tf corpus"
VERSION = 1
FOLDER = r"(corpus-\d+)?"
"""A pattern for the name of a corpus's sub-directory."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file, by its name inside the corpus directory.

    `unknown` of its tokens stand for unknown words or pieces; None: they were not counted, in an earlier version.
    """

    file: str
    tokens: int
    bytes: int
    sha256: str
    unknown: int | None = None


_FIELDS: Fields = {
    **dict.fromkeys(("dataset", "unit", "dtype"), str),
    **dict.fromkeys(("vocab_size", "record_tokens", "shard_records"), int),
    **dict.fromkeys(("vocabulary_spec", "splits", "files", "request"), dict),
    "cutoffs": list,
}
"""The fields of every manifest, with their types."""
Streams = dict[str, tuple[Shard, ...]]
"""The shards of each stream: of a split, or "train-1", "train-2", .. for further passes over the training text."""


@dataclasses.dataclass(frozen=True)
class Split:
    """A stream of tokens, in one or more passes.

    Passes hold the same sentences in different orders (lm1b); epoch e reads pass e mod len(passes). All passes
    have the same number of tokens and therefore the same shard lengths.
    """

    tokens: int
    passes: tuple[tuple[Shard, ...], ...]

    @property
    def unknown_share(self) -> float:
        """The share of tokens that stand for unknown words or pieces; 0 where they were not counted."""
        return sum(shard.unknown or 0 for shard in self.passes[0]) / self.tokens


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A prepared corpus, as its manifest describes it.

    Attributes:
        data_dir: where it is; local or gs://.
        dataset: the name given to prepare_data.
        unit: the kind of token: "byte", "char", "word" or "subword".
        vocab_size: V.
        cutoffs: of the adaptive softmax in the official code; () for a full softmax.
        vocabulary_spec: the `spec` of the Vocabulary, for `load_vocabulary`.
        dtype: of a token in a shard: "uint8", "uint16" or "int32".
        record_tokens: tokens in a record; only the last record of a split is shorter.
        shard_records: records in a shard; only the last shard of a split has fewer.
        splits: by name.
        files: sha256 of the vocabulary's files, by name.
        request: the settings it was prepared with.
        document_ends: where end-of-document tokens stand: "file", at the end of each file; "blank_line", at blank
            lines; "article", at the end of each article; "row", after each row; "", nowhere; None: not known (from an
            earlier version).
        texts: {split: {"files": number of files, "first": names of up to three, "bytes": of their text}}; {}: not
            known, as in corpora of an earlier version.
        split_rule: the rule that decided the splits, one of splits.RULES; "": the corpus has its own splits, or is of
            an earlier version.
        vocabulary_note: how the vocabulary was made, for the user; "": nothing, or not known.
        sources: the files that it was made of, {path: (bytes, time of the last change in ns, sha256)}, with None as
            sha256 of remote ones; {}: not known, or downloaded.
        folder: the sub-directory with the shards and the vocabulary's files; "": they are in data_dir itself.
    """

    data_dir: str
    dataset: str
    unit: str
    vocab_size: int
    cutoffs: tuple[int, ...]
    vocabulary_spec: dict[str, Any]
    dtype: str
    record_tokens: int
    shard_records: int
    splits: dict[str, Split]
    files: dict[str, str]
    request: dict[str, Any]
    document_ends: str | None = None
    texts: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    split_rule: str = ""
    vocabulary_note: str = ""
    sources: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    folder: str = ""

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The Vocabulary, read at first use. InputError if its file is missing or has changed."""
        remedy = "copy the corpus again, or run prepare_data --overwrite"
        return load_vocabulary(self.path(""), self.vocabulary_spec, self.files, remedy)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short hash of the vocabulary and all tokens; copies of a corpus have the same."""
        layout = [self.dtype, self.record_tokens, self.shard_records]
        content = [self.vocab_size, self.vocabulary_spec, sorted(self.files.items()), layout]
        for name, split in sorted(self.splits.items()):
            content.append([name, split.tokens, [[shard.sha256 for shard in shards] for shards in split.passes]])
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def path(self, name: str) -> str:
        """The path of a shard or of a vocabulary's file; "": of the directory that they are in."""
        return joined(self.data_dir, self.folder, name)

    def split(self, name: str) -> Split:
        """The Split of this name; InputError lists those that exist."""
        if name not in self.splits:
            raise InputError(f"{self.data_dir} has no split {name!r}: it has {', '.join(self.splits)}")
        return self.splits[name]

    def shards(self) -> list[Shard]:
        """Every shard of every split."""
        return [shard for split in self.splits.values() for shards in split.passes for shard in shards]

    def check_sizes(self) -> None:
        """Raises InputError if a shard is missing or its size differs from the manifest."""
        list(in_order(self._check_size, self.shards(), REQUESTS))

    def _check_size(self, shard: Shard) -> None:
        path = self.path(shard.file)
        try:
            size = tf.io.gfile.stat(path).length
        except tf.errors.NotFoundError:
            raise InputError(f"{path} is missing: copy it again, or run prepare_data --overwrite") from None
        if size != shard.bytes:
            raise InputError(f"{path} has {size:,} bytes, not {shard.bytes:,}: copy it again, or run prepare_data")

    def check_content(self) -> None:
        """Reads every file. InputError for the first with another checksum, or a token id outside the vocabulary."""
        self.check_sizes()
        shards = self.shards()
        with progress_bar("checking", len(shards), " shards") as bar:
            for shard in shards:
                self._check_shard(self.path(shard.file), shard.sha256)
                bar.update()
        _ = self.vocabulary

    def _check_shard(self, path: str, sha256: str) -> None:
        if digest(path) != sha256:
            raise InputError(f"{path} is damaged (its sha256 differs): copy it again, or run prepare_data")
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            ids = np.frombuffer(record, np.dtype(self.dtype).newbyteorder("<"))
            wrong = ids[(ids < 0) | (ids >= self.vocab_size)]
            if len(wrong):
                raise InputError(
                    f"{path} has the token id {wrong[0]:,}, but the vocabulary has {self.vocab_size:,} tokens: "
                    "prepare the corpus again"
                )


def has_corpus(data_dir: str) -> bool:
    """Whether a corpus is prepared in `data_dir`."""
    return bool(tf.io.gfile.exists(tf.io.gfile.join(data_dir, FILE_NAME)))


def load_corpus(data_dir: str) -> Corpus:
    """The Corpus in `data_dir`, whose manifest and sizes of shards are checked.

    InputError if there is no prepared corpus, its preparation was cut short, or it is damaged or of another version.
    """
    corpus = read_manifest(data_dir)
    corpus.check_sizes()
    return corpus


def read_manifest(data_dir: str) -> Corpus:
    """`load_corpus` without a check of the shards."""
    path = tf.io.gfile.join(data_dir, FILE_NAME)
    if not has_corpus(data_dir):
        raise InputError(f"{path} not found: prepare the corpus with scripts/prepare_data.py --data_dir={data_dir}")
    manifest = read_json(path, "run prepare_data --overwrite")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{path} is not the manifest of a {FORMAT}: give the directory that prepare_data wrote")
    if manifest.get("version") != VERSION:
        raise InputError(
            f"{path} has version {manifest.get('version')}, this code reads {VERSION}: prepare the corpus again"
        )
    check_record(manifest, path, _FIELDS, "run prepare_data --overwrite")
    try:
        corpus = _from_json(data_dir, manifest)
        fingerprint = corpus.fingerprint
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}): run prepare_data --overwrite"
        ) from error
    if fingerprint != manifest.get("fingerprint"):
        raise InputError(f"{path} is damaged: it does not match its own fingerprint; run prepare_data --overwrite")
    if "checksum" in manifest and manifest["checksum"] != _checksum(manifest):  # older manifests have none
        raise InputError(f"{path} is damaged: its checksum differs; copy it again, or run prepare_data --overwrite")
    return corpus


def is_manifest(path: str) -> bool:
    """Whether a file is the manifest of a corpus, damaged or not."""
    content = read_bytes(path)
    return not content or FORMAT.encode() in content[:1000]


def write_manifest(corpus: Corpus) -> None:
    """Writes manifest.json, completely or not at all."""
    manifest = {"format": FORMAT, "version": VERSION, "fingerprint": corpus.fingerprint}
    manifest.update(dataclasses.asdict(corpus))
    del manifest["data_dir"]  # so that a corpus can be copied anywhere
    manifest["checksum"] = _checksum(manifest)
    write_atomically(tf.io.gfile.join(corpus.data_dir, FILE_NAME), json.dumps(manifest, indent=1) + "\n")


def _checksum(manifest: dict[str, Any]) -> str:
    said = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _from_json(data_dir: str, manifest: dict[str, Any]) -> Corpus:
    splits = {}
    for name, split in manifest["splits"].items():
        passes = tuple(tuple(Shard(**shard) for shard in shards) for shards in split["passes"])
        if any(sum(shard.tokens for shard in shards) != split["tokens"] for shards in passes):
            raise ValueError(f"the shards of {name} do not add up to its tokens")
        splits[name] = Split(tokens=split["tokens"], passes=passes)
    names = {field.name for field in dataclasses.fields(Corpus)} & manifest.keys()  # an earlier version has fewer
    read = {"data_dir": data_dir, "splits": splits, "cutoffs": tuple(manifest["cutoffs"])}
    corpus = Corpus(**{name: manifest[name] for name in names} | read)
    if corpus.unit != (own := kind_of(corpus.vocabulary_spec, "the spec").unit):
        raise ValueError(f"unit is {corpus.unit!r}, and its vocabulary is of {own}s")
    if not all(low < high for low, high in itertools.pairwise((0, *corpus.cutoffs, corpus.vocab_size))):
        raise ValueError(f"cutoffs {list(corpus.cutoffs)} must rise, from above 0 to below {corpus.vocab_size}")
    if not re.fullmatch(FOLDER, corpus.folder):
        raise ValueError(f"folder is {corpus.folder!r}")
    for name in (*(shard.file for shard in corpus.shards()), *corpus.files):
        if "/" in name or name in ("", ".", ".."):
            raise ValueError(f"{name!r} is not a file of the corpus")
    for about in corpus.texts.values():
        if not (type(about["files"]) is type(about["bytes"]) is int and all(type(n) is str for n in about["first"])):
            raise ValueError(f"texts has {about!r}")
    return corpus
