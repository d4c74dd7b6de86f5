"""Tables, and questions with options, as sets of examples."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks import tables
from txl_tf.data.tasks.examples import Chunk, ExamplePlan, ExampleSet, cut_remarks
from txl_tf.data.tasks.layout import cut_article, cut_longer, encode, join, pad_left, were_cut
from txl_tf.data.tasks.race import RaceQuestion
from txl_tf.data.tasks.tables import Row
from txl_tf.errors import InputError

CHUNK = 1_000  # rows that are encoded at once

Pair = tuple[tf.RaggedTensor, tf.RaggedTensor]
"""Ids of the first and the second text of each sequence."""


def class_examples(rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
    """Texts that belong to classes, as examples.

    InputError if there is only one class, or a row has a label that is not among those of the plan.
    """
    labels = tables.label_names(rows) if plan.labels is None else plan.labels
    if len(labels) < 2:
        raise InputError(f"{tables.file_of(rows)} has only the label {labels[0]!r}: there is nothing to tell apart")
    if not plan.labelled:
        return table_examples(rows, plan, None, labels)
    remarks = tables.twins(tables.label_names(rows))
    return table_examples(rows, plan, tables.class_numbers(rows, labels), labels, remarks)


def label_set_examples(rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
    """Texts that have any number of labels, as examples.

    InputError if there are no labels, or a row has one that is not among those of the plan.
    """
    labels = tables.set_names(rows) if plan.labels is None else plan.labels
    if not labels:
        raise InputError(f"{tables.file_of(rows)} has no labels: there is nothing to learn")
    if not plan.labelled:
        return table_examples(rows, plan, None, labels)
    found = tables.label_matrix(rows, labels)
    remarks = [*tables.twins(tables.set_names(rows)), tables.frequencies(labels, found)]
    return table_examples(rows, plan, found, labels, remarks)


def scored_examples(rows: Sequence[Row], plan: ExamplePlan) -> ExampleSet:
    """Texts that have scores, as examples; InputError if a label is not a number."""
    return table_examples(rows, plan, tables.scores(rows) if plan.labelled else None)


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
    t_len, max_segments = plan.config.data.tgt_len, plan.config.data.max_segments

    def encoded(some: Sequence[Row]) -> tuple[Pair, Pair]:
        texts = encode(plan.vocabulary, tf.constant([row.text for row in some]))
        second = encode(plan.vocabulary, tf.constant([row.text_b for row in some]))
        return (texts, second), cut_longer(texts, second, t_len, max_segments)

    layout = {"tgt_len": t_len, "max_segments": max_segments}
    made = _examples(rows, plan, label, encoded, [t_len * max_segments], layout, labels)
    return dataclasses.replace(made, remarks=(*getattr(rows, "remarks", ()), *remarks, *made.remarks))


def question_examples(questions: Sequence[RaceQuestion], plan: ExamplePlan) -> ExampleSet:
    """Questions, C options each, as examples: tokens, segments, padding [n, C, T] and, where labelled, label [n].

    A question becomes one sequence for each option: article SEP question and option SEP CLS. So does the official code,
    with a fault that this code does not have: if nothing is cut, the article of an option also holds the options before
    it.
    """
    t_len, count = plan.config.data.tgt_len, len(questions[0].options)
    label = np.array([question.answer for question in questions], np.int32) if plan.labelled else None

    def encoded(some: Sequence[RaceQuestion]) -> tuple[Pair, Pair]:
        articles = encode(plan.vocabulary, tf.constant([question.article for question in some]))
        articles = tf.gather(articles, np.repeat(np.arange(len(some)), count))
        texts = [text for question in some for text in question.with_options()]
        whole = articles, encode(plan.vocabulary, tf.constant(texts))
        return whole, cut_article(*whole, t_len)

    return _examples(questions, plan, label, encoded, [count, t_len], {"tgt_len": t_len, "labelled": plan.labelled})


def _examples(
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
            lost = were_cut(whole, kept).reshape(len(arrays["tokens"]), -1)
            yield arrays | ({} if label is None else {"label": label[some]}), [bool(row.any()) for row in lost]

    made = plan.make(chunks, len(rows), {"rows": _digest_of(rows, label), **layout}, labels=labels)
    return dataclasses.replace(made, remarks=cut_remarks(made.meta, shape[-1]))


def _digest_of(rows: Sequence[Any], label: np.ndarray | None) -> str:
    """A checksum of dataclasses with their labels; `where` does not count."""
    found = hashlib.sha256(b"" if label is None else label.tobytes())
    for row in rows:
        found.update(json.dumps([value for name, value in vars(row).items() if name != "where"]).encode())
    return found.hexdigest()
