"""Text that knows where each of its characters came from, like traced_text.py, but in TensorFlow ops.

For SavedModels, in which there is no Python. Shapes: n texts, L lines of all texts, c characters of all lines.
"""

from __future__ import annotations

import typing

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies.base import WHITESPACE
from txl_tf.data.vocabularies.traced_text import BLANK


class TracedTensor(typing.NamedTuple):
    """The characters of lines, made from others.

    text: strings [c], the characters of all lines.
    begin, end: int64 [c]; a character was made from the characters begin to end of its source.
    line: int64 [c], the number of each character's line, ascending.
    """

    text: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    line: tf.Tensor

    def where(self, kept: tf.Tensor) -> TracedTensor:
        """The characters for which bool [c] is true."""
        return TracedTensor(*(tf.boolean_mask(part, kept) for part in self))

    def before(self, values: tf.Tensor, default: bool) -> tf.Tensor:
        """Bool [c]: the value of the character before, `default` for a line's first."""
        same = tf.equal(self.line[1:], self.line[:-1])
        first = tf.fill([tf.minimum(tf.size(values), 1)], default)
        return tf.concat([first, tf.where(same, values[:-1], default)], axis=0)

    def after(self, values: tf.Tensor) -> tf.Tensor:
        """Bool [c]: the value of the character after; false for a line's last."""
        return tf.reverse(
            TracedTensor(*(tf.reverse(part, [0]) for part in self)).before(tf.reverse(values, [0]), False), [0]
        )


def traced_lines(texts: tf.Tensor, keep_ends: bool) -> tuple[TracedTensor, tf.Tensor]:
    """Texts, strings [n], as lines: their characters; and int64 [n], how many lines each text has, at least 1.

    With `keep_ends` a line has the characters that end it, which may be CR, LF or both; otherwise only LF ends one.
    """
    split = tf.strings.unicode_split(texts, "UTF-8")
    flat, text_of = split.flat_values, split.value_rowids()
    place = tf.ragged.range(split.row_lengths()).flat_values
    traced = TracedTensor(flat, place, place + 1, text_of)
    ends = tf.equal(flat, "\n")
    if keep_ends:
        ends |= tf.equal(flat, "\r") & ~traced.after(ends)
    number = tf.cumsum(tf.cast(ends, tf.int64), exclusive=True) + text_of
    counts = tf.math.unsorted_segment_sum(tf.cast(ends, tf.int64), text_of, split.nrows()) + 1
    traced = traced._replace(line=number)
    return traced if keep_ends else traced.where(~ends), counts


def without_spare_space(traced: TracedTensor) -> TracedTensor:
    """Each run of white space becomes one space; none is left at the ends of lines."""
    space = tf.strings.regex_full_match(traced.text, WHITESPACE)
    place = tf.range(tf.size(space))
    lines = tf.reduce_max(tf.concat([traced.line, [-1]], axis=0)) + 1
    last = tf.math.unsorted_segment_max(tf.where(space, -1, place), traced.line, lines)
    inner = ~traced.before(space, True) & (place < tf.gather(last, traced.line))
    text = tf.where(space, " ", traced.text)
    found = traced._replace(text=text).where(~space | inner)
    # A space was made from its whole run, which ends where the next character begins.
    following = tf.concat([found.begin[1:], found.end[-1:]], axis=0)
    return found._replace(end=tf.where(tf.equal(found.text, " "), following, found.end))


def with_plain_quotes(traced: TracedTensor) -> TracedTensor:
    """TeX's quotes, two backquotes or two apostrophes, become double quotes."""
    for quote in ("`", "'"):
        is_quote = tf.equal(traced.text, quote)
        starts = is_quote & ~traced.before(is_quote, False)
        place, run = tf.range(tf.size(is_quote)), tf.cumsum(tf.cast(starts, tf.int32)) - 1
        run_starts = tf.concat([tf.boolean_mask(place, starts), [0]], axis=0)
        second = is_quote & tf.equal((place - tf.gather(run_starts, tf.maximum(run, 0))) % 2, 1)
        first = traced.after(second)
        end = tf.where(first, tf.concat([traced.end[1:], traced.end[-1:]], axis=0), traced.end)
        traced = traced._replace(text=tf.where(first, '"', traced.text), end=end).where(~second)
    return traced


def with_marks_joined(traced: TracedTensor, marks: str) -> TracedTensor:
    """Combining marks, a pattern, are removed, and belong to the character before them in the line."""
    is_mark = tf.strings.regex_full_match(traced.text, marks)
    joined = is_mark & traced.before(tf.ones_like(is_mark), False)
    group = tf.cumsum(tf.cast(~joined, tf.int32)) - 1
    end = tf.math.segment_max(traced.end, group)
    found = traced.where(~joined)
    return found._replace(end=end)


def mapped(traced: TracedTensor, texts: tf.Tensor) -> TracedTensor:
    """Each character is replaced by any number of them: strings [c]."""
    split = tf.strings.unicode_split(texts, "UTF-8")
    rows = split.value_rowids()
    return TracedTensor(split.flat_values, *(tf.gather(part, rows) for part in traced[1:]))


def source_places(
    traced: TracedTensor, lines: tf.Tensor, begin: tf.RaggedTensor, end: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The places of lines' tokens in the lines' sources, int64 [tokens] each; see traced_text.source_places.

    Args:
        traced: the lines' characters.
        lines: strings [L], the lines.
        begin, end: RaggedTensors [L, None], the tokens' places in the bytes of their lines.
    """
    size = tf.size(traced.text, tf.int64)
    starts = tf.cumsum(tf.cast(tf.strings.length(traced.text), tf.int64), exclusive=True)
    bytes_before = tf.cumsum(tf.cast(tf.strings.length(lines), tf.int64), exclusive=True)
    shift = tf.gather(bytes_before, begin.value_rowids())
    first, stop = (
        tf.searchsorted(starts, tf.cast(part.flat_values, tf.int64) + shift, out_type=tf.int64) for part in (begin, end)
    )
    blank = tf.strings.regex_full_match(traced.text, _BLANK)
    visible = tf.boolean_mask(tf.range(size), ~blank)
    # Without blanks at both ends.
    following = tf.concat([visible, [size]], axis=0)
    first = tf.minimum(tf.gather(following, tf.searchsorted(visible, first)), stop)
    preceding = tf.concat([[0], visible + 1], axis=0)
    stop = tf.maximum(tf.gather(preceding, tf.searchsorted(visible, stop)), first)
    # A token without visible characters is placed after the character before it.
    line_start = tf.gather(
        tf.searchsorted(traced.line, tf.range(tf.size(lines, tf.int64)), out_type=tf.int64), begin.value_rowids()
    )
    begins, ends = (tf.concat([part, [0]], axis=0) for part in (traced.begin, traced.end))
    behind = tf.where(
        first > line_start, tf.gather(ends, tf.maximum(first - 1, 0)), tf.gather(begins, tf.minimum(line_start, size))
    )
    empty = tf.equal(first, stop)
    return (
        tf.where(empty, behind, tf.gather(begins, tf.minimum(first, size))),
        tf.where(empty, behind, tf.gather(ends, tf.maximum(stop - 1, 0))),
    )


def _class_of(codes: np.ndarray) -> str:
    """A pattern for one of these characters."""
    return "[" + "".join(rf"\x{{{code:x}}}" for code in codes) + "]"


_BLANK = _class_of(BLANK)
