"""Text that knows where each of its characters came from, and pieces with their places in a text."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Sequence

import numpy as np


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
    """A text made from another, its source.

    text: n characters.
    begin, end: int32 [n]; a character was made from the characters begin to end of the source.
    """

    text: str
    begin: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, source: str, first: int = 0) -> TracedText:
        """An unchanged part of a source, which starts at its character `first`."""
        begin = np.arange(first, first + len(source), dtype=np.int32)
        return cls(source, begin, begin + 1)

    def substitute(self, pattern: re.Pattern[str], replacement: Callable[[str], str]) -> TracedText:
        """Like re.sub; each character of a replacement stands for the source of the whole match."""
        parts: list[str] = []
        begins: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        last = 0
        for match in pattern.finditer(self.text):
            first, stop = match.span()
            new = replacement(match.group())
            parts += [self.text[last:first], new]
            begins += [self.begin[last:first], np.full(len(new), self.begin[first])]
            ends += [self.end[last:first], np.full(len(new), self.end[stop - 1])]
            last = stop
        if not parts:
            return self
        begins.append(self.begin[last:])
        ends.append(self.end[last:])
        return TracedText("".join([*parts, self.text[last:]]), np.concatenate(begins), np.concatenate(ends))

    def encoded(self) -> bytes:
        """UTF-8; a lone surrogate, which has none, becomes a question mark."""
        return self.text.encode("utf-8", "replace")


# White space, and what SentencePiece's own normalisation turns into a space.
BLANK = np.array(
    [
        code
        for code in range(0x10000)
        if chr(code).isspace() or chr(code) in "\u200b\u200c\u200d\u200e\u200f\u2581\ufeff\ufffd"
    ]
)


def source_places(
    lines: Sequence[TracedText], counts: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The places of lines' tokens in the lines' sources, int32 [n] each, in characters; see `PlacedTokens`.

    Args:
        lines: any number of texts, of one or several sources.
        counts: int [len(lines)], the number of tokens of each line.
        begin, end: int [n], the tokens' places in the UTF-8 bytes of their lines; n is the sum of `counts`.
    """
    encoded = [line.encoded() for line in lines]
    codes = np.frombuffer("".join(line.text for line in lines).encode("utf-32-le", "replace"), np.uint32)
    size = len(codes)
    # From here on all lines are one text, and places are those of its characters.
    is_first_byte = np.frombuffer(b"".join(encoded), np.uint8) & 0xC0 != 0x80
    before = np.concatenate([[0], np.cumsum(is_first_byte)])
    bytes_before = np.repeat(np.cumsum([0, *map(len, encoded[:-1])]), counts)
    begin, end = before[begin + bytes_before], before[end + bytes_before]
    # Without blanks at both ends.
    place = np.arange(size + 1)
    visible = np.append(~np.isin(codes, BLANK), True)
    next_visible = np.minimum.accumulate(np.where(visible, place, size)[::-1])[::-1]
    last_visible = np.concatenate([[0], np.maximum.accumulate(np.where(visible, place + 1, 0))[:-1]])
    begin = np.minimum(next_visible[begin], end)
    end = np.maximum(last_visible[end], begin)
    # A token without visible characters is placed after the character before it.
    first = np.repeat(np.cumsum([0, *(len(line.text) for line in lines[:-1])]), counts)
    begins, ends = (np.concatenate([getattr(line, name) for line in lines]) for name in ("begin", "end"))
    behind = np.where(begin > first, ends[begin - 1], begins[first])
    is_empty = begin == end
    return np.where(is_empty, behind, begins[np.minimum(begin, size - 1)]), np.where(is_empty, behind, ends[end - 1])
