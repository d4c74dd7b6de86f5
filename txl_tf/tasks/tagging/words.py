"""Where the words of a text stand.

A word is a run of letters, marks, digits and underscores, without Han or Kana. Every other character but a space is a
word by itself, with the marks that follow a Han or Kana sign.
"""

from __future__ import annotations

import functools
import itertools
import sys
import unicodedata

import numpy as np

from txl_tf.data.text.blanks import BLANK

SPACE, OTHER, WORD, SIGN, MARK = range(5)

_SIGNS = ("CJK ", "IDEOGRAPHIC ", "HIRAGANA ", "KATAKANA", "HALFWIDTH KATAKANA")
"""The beginnings of the names of Han and Kana signs among the letters and numbers."""


@functools.cache
def character_kinds(runs: bool) -> tuple[np.ndarray, np.ndarray]:
    """The codes at which the kind of characters changes, and the kinds, int32 [k]; `runs`: Han and Kana are letters."""
    kinds = np.full([sys.maxunicode + 1], OTHER, np.int32)
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        group = unicodedata.category(character)[0]
        if group == "M" and not runs:
            kinds[code] = MARK
        elif character == "_" or group in "LMN":
            is_sign = code > 0x2E80 and not runs and unicodedata.name(character, "").startswith(_SIGNS)
            kinds[code] = SIGN if is_sign else WORD
        elif character.isspace():
            kinds[code] = SPACE
    kinds[BLANK] = SPACE
    begins = np.flatnonzero(np.diff(kinds, prepend=-1)).astype(np.int32)
    return begins, kinds[begins]


def word_places(text: str, runs: bool = False) -> list[tuple[int, int]]:
    """Where each word of a text begins and ends, in characters; `runs` as for `character_kinds`."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    begins, kinds = character_kinds(runs)
    kind = kinds[np.searchsorted(begins, codes, side="right") - 1]
    before, after = kind[:-1], kind[1:]
    joined = ((before >= WORD) & (after == MARK)) | (((before == WORD) | (before == MARK)) & (after == WORD))
    limits: list[int] = np.flatnonzero(np.concatenate([[True], ~joined, [True]])).tolist() if len(kind) else []
    return [(first, end) for first, end in itertools.pairwise(limits) if kind[first] != SPACE]
