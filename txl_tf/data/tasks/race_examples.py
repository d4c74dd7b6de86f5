"""Questions with options as a set of examples.

A question becomes one sequence for each option: article SEP question and option SEP CLS. So does the official code,
with a fault that this code does not have: if nothing is cut, the article of an option also holds the options before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data.records import smallest_dtype
from txl_tf.data.tasks.examples import Chunk, ExampleSet, cut_remarks, make_examples
from txl_tf.data.tasks.layout import cut, encode, join, pad_left, were_cut
from txl_tf.data.tasks.race import RaceQuestion
from txl_tf.data.tasks.table_examples import digest_of
from txl_tf.data.vocabularies import Vocabulary

MAX_QA = 128
"""A question with its option is cut to its last MAX_QA tokens, as in the official code."""

CHUNK = 100  # questions that are encoded at once


def question_examples(
    questions: Sequence[RaceQuestion],
    vocabulary: Vocabulary,
    t_len: int,
    origin: dict[str, Any],
    directory: str | None = None,
    labelled: bool = True,
) -> ExampleSet:
    """Questions as examples: features tokens, segments, padding [n, C, T] and, if `labelled`, label [n].

    Args:
        questions: of `read_race`, with C options each.
        vocabulary: with SEP and CLS.
        t_len: T.
        origin: identifies the vocabulary; the questions and T are added.
        directory: as for `make_examples`.
        labelled: whether there are labels; then all answers must be known.
    """
    label = np.array([question.answer for question in questions], np.int32)
    count = len(questions[0].options)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(questions), CHUNK):
            some = questions[start : start + CHUNK]
            articles = encode(vocabulary, tf.constant([question.article for question in some]))
            articles = tf.gather(articles, np.repeat(np.arange(len(some)), count))
            texts = encode(vocabulary, tf.constant([text for question in some for text in question.with_options()]))
            kept = cut_article(articles, texts, t_len)
            features = pad_left(*join(vocabulary, *kept), t_len)._asdict()
            arrays = {name: feature.numpy().reshape(len(some), count, t_len) for name, feature in features.items()}
            arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(vocabulary.vocab_size))
            arrays["segments"] = arrays["segments"].astype(np.uint8)
            lost = were_cut((articles, texts), kept)  # of each sequence
            lost = [any(lost[i : i + count]) for i in range(0, len(lost), count)]
            yield arrays | ({"label": label[start : start + CHUNK]} if labelled else {}), lost

    origin = origin | {"rows": digest_of(questions, label), "tgt_len": t_len, "labelled": labelled}
    made = make_examples(chunks, len(questions), origin, directory)
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
