"""Examples whose sequences are pairs of texts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.examples.example_set import Chunk, ExamplePlan, ExampleSet, cut_remarks
from txl_tf.data.examples.layout import join, pad_left
from txl_tf.data.records import smallest_dtype

CHUNK = 1_000  # rows that are encoded at once

Pair = tuple[tf.RaggedTensor, tf.RaggedTensor]
"""Ids of the first and the second text of each sequence."""


def pair_examples(
    rows: Sequence[Any],
    plan: ExamplePlan,
    label: np.ndarray | None,
    encoded: Callable[[Sequence[Any]], tuple[Pair, Pair]],
    shape: Sequence[int],
    layout: Mapping[str, Any],
    labels: tuple[str, ...] = (),
) -> ExampleSet:
    """Examples whose sequences are pairs of texts; `encoded` gives those of some rows, whole and cut to their length.

    Features are of this shape, whose last axis is time. Remarks say how many examples were cut, and `meta` which.
    """

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(rows), CHUNK):
            some = slice(start, start + CHUNK)
            whole, kept = encoded(rows[some])
            laid_out = pad_left(*join(plan.vocabulary, *kept), shape[-1])
            arrays = {name: feature.numpy().reshape(-1, *shape) for name, feature in laid_out.items()}
            arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(plan.vocabulary.vocab_size))
            arrays["segments"] = arrays["segments"].astype(np.uint8)
            lost = [old.row_lengths() > new.row_lengths() for old, new in zip(whole, kept, strict=True)]
            cut = np.any(lost, axis=0).reshape(len(arrays["tokens"]), -1)
            yield arrays | ({} if label is None else {"label": label[some]}), [bool(row.any()) for row in cut]

    made = plan.make(chunks, len(rows), {"rows": _digest_of(rows, label), **layout}, labels=labels)
    return dataclasses.replace(made, remarks=cut_remarks(made.meta, shape[-1]))


def _digest_of(rows: Sequence[Any], label: np.ndarray | None) -> str:
    """A checksum of dataclasses with their labels; `where` and fields that are not compared do not count."""
    found = hashlib.sha256(b"" if label is None else label.tobytes())
    fields = dataclasses.fields(rows[0]) if len(rows) else ()
    names = [field.name for field in fields if field.compare and field.name != "where"]
    for row in rows:
        found.update(json.dumps([getattr(row, name) for name in names]).encode())
    return found.hexdigest()
