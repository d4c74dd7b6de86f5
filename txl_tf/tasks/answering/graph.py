"""Answers to questions about texts in TensorFlow ops, for SavedModels: windows, and the likeliest answer in them.

The rules are those of questions.py and answers.py, which use NumPy.
Shapes: B questions, W windows of all of them, T tokens of a window; S starts and E ends of likely answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.data.vocabularies.base import WHITESPACE
from txl_tf.models.heads import BestAnswers
from txl_tf.tasks.answering import QuestionsConfig
from txl_tf.tasks.answering.questions import CLS, PADDING, PARAGRAPH, QUESTION
from txl_tf.tasks.base import Served, Signatures
from txl_tf.tasks.texts import checked


class Windows(NamedTuple):
    """The windows of B contexts; see `questions.cut_windows`.

    pieces, begin, end: int32 RaggedTensors [B, None], the contexts' tokens and their places in characters.
    queries: int32 RaggedTensor [B, None], the questions' tokens.
    row, first, size: int64 [W], each window's question, its first token in the context, and its number of tokens.
    overlapping: how many of the windows after one share tokens with it, at most.
    """

    pieces: tf.RaggedTensor
    begin: tf.RaggedTensor
    end: tf.RaggedTensor
    queries: tf.RaggedTensor
    row: tf.Tensor
    first: tf.Tensor
    size: tf.Tensor
    overlapping: int

    def lengths(self) -> tf.Tensor:
        """The number of tokens in each window, with its question and marks, int64 [W]."""
        return self.size + tf.gather(self.queries.row_lengths(), self.row) + 3

    def token(self, column: tf.Tensor) -> tf.Tensor:
        """The number, among all contexts' tokens, of a column [W, ..] of each window; at least 0."""
        shape = [-1] + [1] * (column.shape.rank - 1)
        start = tf.gather(self.pieces.row_starts(), self.row) + self.first
        place = tf.reshape(start, shape) + tf.cast(column, tf.int64)
        return tf.clip_by_value(place, 0, tf.maximum(tf.size(self.pieces.flat_values, tf.int64) - 1, 0))


def windows(encode: Callable[..., Any], questions: tf.Tensor, contexts: tf.Tensor, data: QuestionsConfig) -> Windows:
    """The windows of contexts, strings [B], for questions, strings [B]; encode: the vocabulary's, with places."""
    queries, _, _ = encode(questions)
    queries = queries[:, : data.max_query_len]
    pieces, begin, end = encode(contexts)
    count = pieces.row_lengths()
    size = data.tgt_len - queries.row_lengths() - 3
    step = tf.minimum(size, data.doc_stride)
    needed = -(-tf.maximum(count - size + step, 1) // step)
    row = tf.repeat(tf.range(tf.size(count)), needed)
    first = tf.ragged.range(needed).flat_values * tf.gather(step, row)
    size = tf.minimum(tf.gather(size, row), tf.gather(count, row) - first)
    return Windows(pieces, begin, end, queries, row, first, size, data.tgt_len // data.doc_stride + 1)


def features(windows: Windows, vocabulary: SubwordVocabulary, t_len: int) -> dict[str, tf.Tensor]:
    """The windows as examples of T tokens, none of them longer; see `questions.examples`."""
    column = tf.range(t_len, dtype=tf.int64)[None]
    size, stop = windows.size[:, None], windows.lengths()[:, None] - 1  # where the paragraph's SEP and CLS are
    query = tf.gather(windows.queries.row_starts(), windows.row)[:, None] + column - size - 1
    query = tf.clip_by_value(query, 0, tf.maximum(tf.size(windows.queries.flat_values, tf.int64) - 1, 0))
    column = tf.broadcast_to(column, tf.shape(query))
    sep, cls = (tf.constant(vocabulary.special_token(name)) for name in ("sep", "cls"))
    nothing = tf.zeros([1], tf.int32)  # to gather from if there are no tokens
    pieces, queries = (tf.concat([part.flat_values, nothing], axis=0) for part in (windows.pieces, windows.queries))

    def by_part(paragraph: tf.Tensor, mark: tf.Tensor, query: tf.Tensor, cls: tf.Tensor, fill: int) -> tf.Tensor:
        found = tf.where(column < stop - 1, query, mark[1])
        found = tf.where(column < size, paragraph, tf.where(tf.equal(column, size), mark[0], found))
        return tf.where(column < stop, found, tf.where(tf.equal(column, stop), cls, fill))

    segments = by_part(PARAGRAPH, [PARAGRAPH, QUESTION], QUESTION, CLS, PADDING)
    tokens = by_part(tf.gather(pieces, windows.token(column)), [sep, sep], tf.gather(queries, query), cls, 0)
    return {
        "tokens": tf.ensure_shape(tokens, [None, t_len]),
        "segments": tf.ensure_shape(segments, [None, t_len]),
        "padding": column > stop,
        "allowed": (column < size) | tf.equal(column, stop),
        "cls_index": tf.cast(stop[:, 0], tf.int32),
    }


def best_answers(windows: Windows, found: BestAnswers, contexts: tf.Tensor, most: int) -> dict[str, tf.Tensor]:
    """The likeliest answer of each question, whether or not it has one, from the results for its windows; as `decode`.

    [B] each: answers, strings, "" if none is possible; begin and end, int32, its place in the context in characters, -1
    if there is none; probability, of its start and its end in its window; no_answer_probability.
    """
    starts = tf.cast(found.start, tf.int64)[:, :, None]
    ends = tf.cast(found.end, tf.int64)
    starts = tf.broadcast_to(starts, tf.shape(ends))
    size = windows.size[:, None, None]
    possible = (ends < size) & (starts <= ends) & (ends < starts + most)
    possible &= _owned(windows, tf.cast(found.start, tf.int64))[:, :, None]
    nothing = tf.zeros([1], tf.int32)
    begin, end = (
        tf.gather(tf.concat([places.flat_values, nothing], axis=0), windows.token(columns))
        for places, columns in ((windows.begin, starts), (windows.end, ends))
    )
    row = tf.broadcast_to(windows.row[:, None, None], tf.shape(ends))
    begin, end, row, possible, log_prob = (
        tf.reshape(part, [-1])
        for part in (begin, end, row, possible, found.start_log_prob[:, :, None] + found.end_log_prob)
    )
    possible &= _has_text(contexts, row, begin, end)
    log_prob = tf.where(possible, log_prob, -float("inf"))
    questions = windows.pieces.nrows()
    highest = tf.math.unsorted_segment_max(log_prob, row, questions)
    place = tf.range(tf.size(log_prob))
    is_best = possible & tf.equal(log_prob, tf.gather(highest, row))
    best = tf.math.unsorted_segment_min(tf.where(is_best, place, tf.size(place)), row, questions)
    exists = best < tf.size(place)
    best = tf.where(exists, best, 0)
    begin, length = tf.gather(begin, best), tf.gather(end - begin, best)
    text = tf.strings.substr(contexts, tf.where(exists, begin, 0), tf.where(exists, length, 0), unit="UTF8_CHAR")
    text = tf.strings.regex_replace(text, WHITESPACE + "+$", "")  # the last token may be a space
    begin = tf.where(exists, begin, -1)
    end = tf.where(exists, begin + tf.strings.length(text, unit="UTF8_CHAR"), -1)
    null_score = tf.math.unsorted_segment_min(found.impossible, windows.row, questions)
    return {
        "answers": text,
        "begin": begin,
        "end": end,
        "probability": tf.cast(tf.exp(tf.where(exists, highest, -float("inf"))), tf.float32),
        "no_answer_probability": tf.cast(tf.sigmoid(null_score), tf.float32),
    }


def _has_text(contexts: tf.Tensor, row: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Whether the characters from begin to end, [n], of contexts[row] are more than spaces: bool [n]."""
    # The contexts' characters are read once. A substring for each answer would copy its whole context first.
    characters = tf.strings.unicode_split(contexts, "UTF-8")
    is_text = ~tf.strings.regex_full_match(characters.flat_values, WHITESPACE)
    before = tf.concat([[0], tf.cumsum(tf.cast(is_text, tf.int32))], axis=0)
    first, size = tf.gather(characters.row_starts(), row), tf.size(is_text, tf.int64)
    count = [tf.gather(before, tf.clip_by_value(first + tf.cast(place, tf.int64), 0, size)) for place in (begin, end)]
    return count[1] > count[0]


def _owned(windows: Windows, start: tf.Tensor) -> tf.Tensor:
    """Whether the tokens at `start`, [W, S], have the most context in their window: bool [W, S]; see `owners`."""
    number, reach = tf.range(tf.size(windows.row)), windows.overlapping
    near = number[:, None] + tf.range(-reach, reach + 1)  # [W, n]: the windows that may have the same tokens
    there = (near >= 0) & (near < tf.size(number))
    near = tf.where(there, near, 0)
    there &= tf.equal(tf.gather(windows.row, near), windows.row[:, None])
    token = windows.first[:, None] + start  # in the context
    first, size = (tf.gather(values, near)[:, None] for values in (windows.first, windows.size))
    left = token[:, :, None] - first  # [W, S, n]: its place in each window
    shorter = tf.minimum(left, size - 1 - left)
    context = tf.cast(shorter, tf.float64) + 0.01 * tf.cast(size, tf.float64)
    context = tf.where(there[:, None] & (shorter >= 0), context, tf.constant(-1.0, tf.float64))
    most = tf.equal(context, tf.reduce_max(context, axis=2, keepdims=True))
    owner = tf.reduce_min(tf.where(most, near[:, None], tf.size(number)), axis=2)
    return tf.equal(owner, number[:, None])


def signatures(served: Served) -> Signatures:
    """`answer`: the likeliest answer to each question. `answer_part`, `answer_whole`: in several calls. See README."""

    def placed(questions: tf.Tensor, contexts: tf.Tensor) -> Windows:
        questions = checked(questions, tf.size(questions), tf.size(contexts), "give a context for each question")
        return windows(served.encode, questions, contexts, served.config.data)

    def read(found: Windows, begin: Any = None, end: Any = None) -> dict[str, tf.Tensor]:
        """The tensors of BestAnswers for the windows from `begin` to before `end`; None: for all."""

        def rows(t_len: int) -> dict[str, tf.Tensor]:
            return {name: values[begin:end] for name, values in features(found, served.vocabulary, t_len).items()}

        return served.in_groups(tf.reduce_max(found.lengths()), rows)

    def best(found: Windows, kept: dict[str, tf.Tensor], contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        return best_answers(found, BestAnswers(**kept), contexts, served.config.eval.max_answer_len)

    def answer(questions: tf.Tensor, contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        found = placed(questions, contexts)
        return best(found, read(found), contexts)

    def answer_part(questions: tf.Tensor, contexts: tf.Tensor, begin: Any, end: Any) -> dict[str, tf.Tensor]:
        found = placed(questions, contexts)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(found.row, tf.int32), found.row, tf.size(questions))
        return {"windows": counts} | {f"kept_{name}": values for name, values in read(found, begin, end).items()}

    def answer_whole(questions: tf.Tensor, contexts: tf.Tensor, **kept: tf.Tensor) -> dict[str, tf.Tensor]:
        known = {name.removeprefix("kept_"): values for name, values in kept.items()}
        return best(placed(questions, contexts), known, contexts)

    texts, number = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)
    asked = {"questions": texts, "contexts": texts}
    kept = {f"kept_{name}": tf.TensorSpec(spec.shape, spec.dtype) for name, spec in served.specs().items()}
    return {answer: asked, answer_part: asked | {"begin": number, "end": number}, answer_whole: asked | kept}
