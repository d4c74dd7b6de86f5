"""Text that knows where each of its characters came from, in TensorFlow ops, and tokens with their places in a text.

Shapes: n texts, L lines of all texts, c characters of all lines.
"""

from __future__ import annotations

import typing
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from txl_tf.data.text.blanks import BLANK, SPACES


class PlacedTokens(typing.NamedTuple):
    """The tokens of a text and their places in it.

    ids: int32 [n].
    begin, end: int32 [n]; a token stands for the characters begin to end of the text, without white space around
        them. A token that stands only for white space has begin == end.
    """

    ids: np.ndarray
    begin: np.ndarray
    end: np.ndarray


class TracedText(typing.NamedTuple):
    """The characters of lines, made from others.

    codes: int32 [c], the code points of the characters of all lines.
    begin, end: int64 [c]; a character was made from the characters begin to end of its source.
    line: int64 [c], the number of each character's line, ascending.
    """

    codes: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    line: tf.Tensor

    def where(self, kept: tf.Tensor) -> TracedText:
        """The characters for which bool [c] is true."""
        return TracedText(*(tf.boolean_mask(part, kept) for part in self))

    def before(self, values: tf.Tensor, default: bool) -> tf.Tensor:
        """Bool [c]: the value of the character before, `default` for a line's first."""
        same = tf.equal(self.line[1:], self.line[:-1])
        first = tf.fill([tf.minimum(tf.size(values), 1)], default)
        return tf.concat([first, tf.where(same, values[:-1], default)], axis=0)

    def after(self, values: tf.Tensor) -> tf.Tensor:
        """Bool [c]: the value of the character after; false for a line's last."""
        same = tf.equal(self.line[1:], self.line[:-1])
        return tf.concat([tf.where(same, values[1:], False), tf.zeros_like(values[:1])], axis=0)

    def lines(self, count: tf.Tensor | None = None) -> tf.Tensor:
        """The lines, strings [L]; `count` is L, None: as many as have characters or are before such a line."""
        return tf.strings.unicode_encode(tf.RaggedTensor.from_value_rowids(self.codes, self.line, count), "UTF-8")


def _among(codes: tf.Tensor, members: np.ndarray) -> tf.Tensor:
    """Which of the code points [c] are among `members`, which ascend: bool [c]."""
    place = tf.minimum(tf.searchsorted(members, codes), len(members) - 1)
    return tf.equal(tf.gather(members, place), codes)


def traced_lines(texts: tf.Tensor, keep_ends: bool) -> tuple[TracedText, tf.Tensor]:
    """Texts, strings [n], as lines: their characters; and int64 [n], how many lines each text has, at least 1.

    With `keep_ends` a line has the characters that end it, which may be CR, LF or both; otherwise only LF ends one.
    """
    split = tf.strings.unicode_decode(texts, "UTF-8")
    flat, text_of = split.flat_values, split.value_rowids()
    place = tf.ragged.range(split.row_lengths()).flat_values
    traced = TracedText(flat, place, place + 1, text_of)
    ends = tf.equal(flat, ord("\n"))
    if keep_ends:
        ends |= tf.equal(flat, ord("\r")) & ~traced.after(ends)
    number = tf.cumsum(tf.cast(ends, tf.int64), exclusive=True) + text_of
    counts = tf.math.unsorted_segment_sum(tf.cast(ends, tf.int64), text_of, split.nrows()) + 1
    traced = traced._replace(line=number)
    return traced if keep_ends else traced.where(~ends), counts


def without_spare_space(traced: TracedText) -> TracedText:
    """Each run of white space becomes one space; none is left at the ends of lines."""
    space = _among(traced.codes, SPACES)
    place = tf.range(tf.size(space))
    lines = tf.reduce_max(tf.concat([traced.line, [-1]], axis=0)) + 1
    last = tf.math.unsorted_segment_max(tf.where(space, -1, place), traced.line, lines)
    inner = ~traced.before(space, True) & (place < tf.gather(last, traced.line))
    found = traced._replace(codes=tf.where(space, ord(" "), traced.codes)).where(~space | inner)
    # A space was made from its whole run, which ends where the next character begins.
    following = tf.concat([found.begin[1:], found.end[-1:]], axis=0)
    return found._replace(end=tf.where(tf.equal(found.codes, ord(" ")), following, found.end))


def with_plain_quotes(traced: TracedText) -> TracedText:
    """TeX's quotes, two backquotes or two apostrophes, become double quotes."""
    for quote in ("`", "'"):
        is_quote = tf.equal(traced.codes, ord(quote))
        starts = is_quote & ~traced.before(is_quote, False)
        place, run = tf.range(tf.size(is_quote)), tf.cumsum(tf.cast(starts, tf.int32)) - 1
        run_starts = tf.concat([tf.boolean_mask(place, starts), [0]], axis=0)
        second = is_quote & tf.equal((place - tf.gather(run_starts, tf.maximum(run, 0))) % 2, 1)
        first = traced.after(second)
        end = tf.where(first, tf.concat([traced.end[1:], traced.end[-1:]], axis=0), traced.end)
        traced = traced._replace(codes=tf.where(first, ord('"'), traced.codes), end=end).where(~second)
    return traced


def with_marks_joined(traced: TracedText, marks: np.ndarray) -> TracedText:
    """Combining marks, code points, are removed, and belong to the character before them in the line."""
    is_mark = _among(traced.codes, marks)
    joined = is_mark & traced.before(tf.ones_like(is_mark), False)
    group = tf.cumsum(tf.cast(~joined, tf.int32)) - 1
    end = tf.math.segment_max(traced.end, group)
    found = traced.where(~joined)
    return found._replace(end=end)


def mapped(traced: TracedText, function: Callable[[tf.Tensor], tf.Tensor]) -> TracedText:
    """Each character is replaced by those that a function of strings makes of it, any number of them."""
    different, number = tf.unique(traced.codes)
    made = function(tf.strings.unicode_encode(different[:, None], "UTF-8"))
    found = tf.gather(tf.strings.unicode_decode(made, "UTF-8"), number)
    rows = found.value_rowids()
    return TracedText(found.flat_values, *(tf.gather(part, rows) for part in traced[1:]))


def source_places(
    traced: TracedText, lines: tf.Tensor, begin: tf.RaggedTensor, end: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The places of lines' tokens in the lines' sources, int64 [tokens] each, in characters; see `PlacedTokens`.

    `traced` has the characters of `lines`, strings [L]; `begin` and `end`, RaggedTensors [L, None], are the tokens'
    places in the bytes of their lines.
    """
    size = tf.size(traced.codes, tf.int64)
    byte_lengths = 1 + sum(tf.cast(traced.codes >= code, tf.int64) for code in (0x80, 0x800, 0x10000))
    starts = tf.cumsum(byte_lengths, exclusive=True)
    bytes_before = tf.cumsum(tf.cast(tf.strings.length(lines), tf.int64), exclusive=True)
    shift = tf.gather(bytes_before, begin.value_rowids())
    first, stop = (
        tf.searchsorted(starts, tf.cast(part.flat_values, tf.int64) + shift, out_type=tf.int64) for part in (begin, end)
    )
    visible = tf.boolean_mask(tf.range(size), ~_among(traced.codes, BLANK))
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
