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
from txl_tf.data.tasks import label_sets, tables
from txl_tf.data.tasks.examples import Chunk, ExamplePlan, ExampleSet, cut_remarks
from txl_tf.data.tasks.layout import TokenRows, encode, fit, join, pad_left, were_cut
from txl_tf.data.tasks.tables import Row
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError

CHUNK = 1_000  # texts that are encoded at once


def class_examples(rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
    """Texts that belong to classes, as examples.

    InputError if there is only one class, or a row has a label that is not among those of the plan.
    """
    labels = tables.label_names(rows) if plan.labels is None else plan.labels
    if len(labels) < 2:
        path, _, _ = rows[0].where.rpartition(", line ")
        raise InputError(f"{path} has only the label {labels[0]!r}: there is nothing to tell apart")
    if not plan.labelled:
        return table_examples(rows, plan, None, labels)
    found = tables.class_numbers(rows, labels)
    return table_examples(rows, plan, found, labels, tables.twins(tables.label_names(rows)))


def scored_examples(rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
    """Texts that have scores, as examples; InputError if a label is not a number."""
    return table_examples(rows, plan, tables.scores(rows) if plan.labelled else None)


def label_set_examples(rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
    """Texts that have any number of labels, as examples.

    InputError if there are no labels, or a row has one that is not among those of the plan.
    """
    labels = label_sets.label_names(rows) if plan.labels is None else plan.labels
    if not labels:
        raise InputError(f"{rows[0].where.rpartition(', line ')[0]} has no labels: there is nothing to learn")
    if not plan.labelled:
        return table_examples(rows, plan, None, labels)
    found = label_sets.label_matrix(rows, labels)
    remarks = [*tables.twins(label_sets.label_names(rows)), label_sets.frequencies(labels, found)]
    return table_examples(rows, plan, found, labels, remarks)


def table_examples(
    rows: Sequence[Row],
    plan: ExamplePlan,
    label: np.ndarray | None,
    labels: tuple[str, ...] = (),
    remarks: Sequence[str] = (),
) -> ExampleSet:
    """Texts and pairs as examples: features tokens, segments, padding [n, S T] and, if there is one, label [n, ..].

    `meta` says for each whether it was cut; remarks are those of the rows, the given ones, and how many were cut. The
    plan's settings of data say S, max_segments.
    """
    t_len, max_segments, vocabulary = plan.t_len, plan.config.data.max_segments, plan.vocabulary

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]
            texts, second = (tf.constant([getattr(row, name) for row in some]) for name in ("text", "text_b"))
            whole = encode(vocabulary, texts), encode(vocabulary, second)
            kept = fit(*whole, t_len, max_segments)
            arrays = to_arrays(pad_left(*join(vocabulary, *kept), t_len * max_segments), vocabulary)
            yield arrays | ({} if label is None else {"label": label[start : start + CHUNK]}), were_cut(whole, kept)

    layout = {"rows": digest_of(rows, label), "tgt_len": t_len, "max_segments": max_segments}
    made = plan.make(chunks, len(rows), layout, labels=labels)
    cut = cut_remarks(made.meta, t_len * max_segments)
    return dataclasses.replace(made, remarks=(*getattr(rows, "remarks", ()), *remarks, *cut))


def to_arrays(laid_out: TokenRows, vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    """The tensors of a layout by name, in small types."""
    arrays = {name: feature.numpy() for name, feature in laid_out._asdict().items()}
    arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
    arrays["segments"] = arrays["segments"].astype(np.uint8)
    return arrays


def digest_of(rows: Sequence[Any], label: np.ndarray | None) -> str:
    """A checksum of dataclasses with their labels; `where` does not count."""
    found = hashlib.sha256(b"" if label is None else label.tobytes())
    for row in rows:
        found.update(json.dumps([value for name, value in vars(row).items() if name != "where"]).encode())
    return found.hexdigest()
