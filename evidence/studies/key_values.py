"""A text that gives values to keys and asks for them again, at distances from 1 to many segments. Not a script.

Words are separated by blanks. "c5" gives key c the value 5; "C" asks for it, and the next word, "5", is the answer.
Each value is asked for once, then its key is free again, so that the answer is at one place only. Distances from giving
to asking have the same probability for each doubling. "." fills the rest.
"""

import heapq
import math
import random
import string
from collections.abc import Iterable, Iterator

FILLER = "."


def key_values(length: int, keys: int, values: int, longest: int, rng: random.Random) -> list[str]:
    """The words of a text: see above.

    Args:
        length: words.
        keys, values: how many there are.
        longest: the largest distance from giving a value to asking for it.
        rng: a generator.
    """
    words: list[str | None] = [None] * length
    free = list(string.ascii_lowercase[:keys])
    used: list[tuple[int, str]] = []  # a heap: where a key is free again
    for place in range(length):
        while used and used[0][0] <= place:
            free.append(heapq.heappop(used)[1])
        if words[place] is not None:
            continue
        # The nearest place for a question and its answer that is not farther than the distance drawn.
        question = place + int(math.exp(rng.uniform(0, math.log(longest + 1))))
        while question > place and (question + 1 >= length or words[question] or words[question + 1]):
            question -= 1
        if not free or question == place:
            words[place] = FILLER
            continue
        key, value = free.pop(rng.randrange(len(free))), str(rng.randrange(values))
        words[place : place + 1], words[question : question + 2] = [key + value], [key.upper(), value]
        heapq.heappush(used, (question + 2, key))
    return [word or FILLER for word in words]


def questions(words: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yields (place, distance) of each answer of such a text: from giving the value to asking for it.

    Questions whose value was given before the text begins are left out.
    """
    given: dict[str, int] = {}
    for place, word in enumerate(words):
        if len(word) == 2:
            given[word[0]] = place
        elif word.isupper() and word.lower() in given:
            yield place + 1, place - given.pop(word.lower())
