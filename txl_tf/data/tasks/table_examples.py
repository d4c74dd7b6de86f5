"""Tables as sets of examples."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks.examples import Chunk, ExampleSet, cut_remarks, make_examples
from txl_tf.data.tasks.layout import encode, fit, join, pad_left, were_cut
from txl_tf.data.tasks.tables import Row
from txl_tf.data.vocabularies import Vocabulary

CHUNK = 1_000  # texts that are encoded at once


def table_examples(
    rows: Sequence[Row],
    vocabulary: Vocabulary,
    t_len: int,
    label: np.ndarray | None,
    origin: dict[str, Any],
    directory: str | None = None,
    max_segments: int = 1,
    remarks: Sequence[str] = (),
    **about: Any,
) -> ExampleSet:
    """Texts and pairs as examples: features tokens, segments, padding [n, S T] and, if there is one, label [n].

    `meta` says for each whether it was cut, and the remarks how many were.

    Args:
        rows: of `read_table`.
        vocabulary: with SEP and CLS.
        t_len: T.
        label: [n] or None.
        origin: identifies the vocabulary; the texts, labels and T are added.
        directory: as for `make_examples`.
        max_segments: S.
        remarks: see ExampleSet.
        about: further attributes of the ExampleSet.
    """

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]
            texts, second = (tf.constant([getattr(row, name) for row in some]) for name in ("text", "text_b"))
            whole = encode(vocabulary, texts), encode(vocabulary, second)
            kept = fit(*whole, t_len, max_segments)
            features = pad_left(*join(vocabulary, *kept), t_len * max_segments)._asdict()
            arrays = {name: feature.numpy() for name, feature in features.items()}
            arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
            arrays["segments"] = arrays["segments"].astype(np.uint8)
            yield arrays | ({} if label is None else {"label": label[start : start + CHUNK]}), were_cut(whole, kept)

    origin = origin | {"rows": digest_of(rows, label), "tgt_len": t_len, "max_segments": max_segments}
    made = make_examples(chunks, len(rows), origin, directory, **about)
    return dataclasses.replace(made, remarks=(*remarks, *cut_remarks(made.meta, t_len * max_segments)))


def digest_of(rows: Sequence[Any], label: np.ndarray | None) -> str:
    """A checksum of dataclasses with their labels; `where` does not count."""
    found = hashlib.sha256(b"" if label is None else label.tobytes())
    for row in rows:
        found.update(json.dumps([value for name, value in vars(row).items() if name != "where"]).encode())
    return found.hexdigest()
