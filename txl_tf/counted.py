"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str = "") -> str:
    """A number and its noun.

    Args:
        number: how many; a whole number.
        noun: for one.
        plural: for any other number; "": the noun with an s.

    Examples:
        >>> counted(1, "class", "classes"), counted(1200, "update")
        ('1 class', '1,200 updates')
    """
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}"
