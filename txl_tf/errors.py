"""InputError, an error that the user can fix; all faults of a file in one error; and messages in one line."""

from __future__ import annotations

import collections
import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

TYPES: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}
"""The words for types in messages."""


class InputError(ValueError):
    """Bad input: a flag, a path, a file. The message is one line: what is wrong, where, how to fix it.

    Scripts print it without a traceback and exit with status 1 (`-v=1` shows the traceback).
    """


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Puts the path of the file before the message of an InputError that the block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def one_line(error: BaseException | str) -> str:
    """An exception's message without line breaks and without TensorFlow's names of operations."""
    message = str(getattr(error, "message", error))  # str() of a TensorFlow error may add a stack trace
    return " ".join(re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", message).split())


class FaultsError(InputError):
    """Several faults of one file, each in one line. The message has a line with their number, and then the faults.

    Attributes:
        summary: the first line.
        faults: the other lines: the first SHOWN_FAULTS, and how many more there are.
    """

    def __init__(self, where: str, faults: Sequence[str]):
        more = len(faults) - SHOWN_FAULTS
        self.summary = f"{len(faults):,} faults in {where}"
        self.faults = [*faults[:SHOWN_FAULTS], *([f"and {more:,} more"] if more > 0 else [])]
        super().__init__("\n".join([f"{self.summary}:", *self.faults]))


SHOWN_FAULTS = 10
"""How many faults of a file are shown."""


class Faults:
    """Collects all faults of a file, `where`, for one error."""

    def __init__(self, where: str):
        self._where = where
        self._found: list[tuple[int, str]] = []

    def add(self, fault: str, line: int = 0) -> None:
        """Adds a fault; faults are shown in the order of lines."""
        self._found.append((line, fault))

    @contextlib.contextmanager
    def noted(self, line: int = 0) -> Iterator[None]:
        """Adds the InputError that the block raises, if any."""
        try:
            yield
        except FaultsError:
            raise
        except InputError as error:
            self.add(str(error), line)

    def raise_any(self, good: int | None = None) -> None:
        """Raises InputError if there is a fault, FaultsError if there are several.

        `good` is how many lines have no fault. If at least half of all lines have faults of one kind, and more than a
        few, one message stands for them.
        """
        found = [fault for _, fault in sorted(self._found, key=lambda one: one[0])]
        if len(found) == 1:
            raise InputError(found[0])
        if good is not None and len(found) > FEW_FAULTS:
            (kind, count), lines = collections.Counter(map(_kind, found)).most_common(1)[0], good + len(found)
            if count > FEW_FAULTS and count * 2 >= lines:
                example = next(fault for fault in found if _kind(fault) == kind)
                raise InputError(f"{example} (the same in {count:,} of {lines:,} lines: is it a file of this form?)")
        if found:
            raise FaultsError(self._where, found)


FEW_FAULTS = 5
"""Fewer faults of one kind are shown one by one."""


def _kind(fault: str) -> str:
    """A fault without what differs from line to line: numbers with their nouns, and quoted texts."""
    return re.sub(r"'.*'|\".*\"|\d[\d,.]*( \w+)?", "", fault)
