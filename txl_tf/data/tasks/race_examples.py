"""Questions with options as a set of examples.

A question becomes one sequence for each option: article SEP question and option SEP CLS. So does the official code,
with a fault that this code does not have: if nothing is cut, the article of an option also holds the options before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from txl_tf.data.tasks.examples import Chunk, ExamplePlan, ExampleSet, cut_remarks
from txl_tf.data.tasks.layout import cut, encode, join, pad_left, were_cut
from txl_tf.data.tasks.race import RaceQuestion
from txl_tf.data.tasks.table_examples import digest_of, to_arrays

MAX_QA = 128
"""A question with its option is cut to its last MAX_QA tokens, as in the official code."""

CHUNK = 100  # questions that are encoded at once


def question_examples(questions: Sequence[RaceQuestion], plan: ExamplePlan) -> ExampleSet:
    """Questions, C options each, as examples: tokens, segments, padding [n, C, T] and, where labelled, label [n]."""
    t_len, vocabulary = plan.t_len, plan.vocabulary
    label = np.array([question.answer for question in questions], np.int32)
    count = len(questions[0].options)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(questions), CHUNK):
            some = questions[start : start + CHUNK]
            articles = encode(vocabulary, tf.constant([question.article for question in some]))
            articles = tf.gather(articles, np.repeat(np.arange(len(some)), count))
            texts = encode(vocabulary, tf.constant([text for question in some for text in question.with_options()]))
            kept = cut_article(articles, texts, t_len)
            arrays = to_arrays(pad_left(*join(vocabulary, *kept), t_len), vocabulary)
            arrays = {name: array.reshape(len(some), count, t_len) for name, array in arrays.items()}
            lost = were_cut((articles, texts), kept)  # of each sequence
            lost = [any(lost[i : i + count]) for i in range(0, len(lost), count)]
            yield arrays | ({"label": label[start : start + CHUNK]} if plan.labelled else {}), lost

    layout = {"rows": digest_of(questions, label), "tgt_len": t_len, "labelled": plan.labelled}
    made = plan.make(chunks, len(questions), layout)
    return dataclasses.replace(made, remarks=cut_remarks(made.meta, t_len))


def cut_article(
    articles: tf.RaggedTensor, texts: tf.RaggedTensor, t_len: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts articles and questions with options so that they fit into T tokens with SEP, SEP and CLS.

    A question with its option keeps its last MAX_QA tokens; the article keeps its first tokens, as many as still fit.
    """
    room = t_len - 3
    texts = texts[:, -min(MAX_QA, room) :]
    articles = cut(articles, tf.minimum(articles.row_lengths(), room - texts.row_lengths()), t_len)
    return articles, texts
