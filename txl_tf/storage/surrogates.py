"""Half a surrogate pair, such as half an emoji, which is not a character and does not exist in UTF-8.

JSON can hold one, and so can a text in Python. Everywhere it becomes U+FFFD, the replacement character.
"""

from __future__ import annotations

import functools
import re
import sys

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_HALF = re.compile(r"[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def whole(text: str) -> str:
    """`text` with U+FFFD for every half of a surrogate pair, with one message; two halves become their character."""
    if not _SURROGATE.search(text):
        return text
    if _HALF.search(text):
        _say_once()
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@functools.cache
def _say_once() -> None:
    print("half a surrogate pair (such as half an emoji) is not a character: it is read as U+FFFD", file=sys.stderr)
