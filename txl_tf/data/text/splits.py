"""The splits that the names of the user's files and folders say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from txl_tf.errors import InputError

SPLITS = ("train", "valid", "test")
WORDS = {
    "train": "train",
    **dict.fromkeys(("valid", "val", "validation", "dev", "eval"), "valid"),
    "test": "test",
}
"""The words that name a split, with the split."""
RULES = {
    "names": "the names of files and folders say the splits",
    "documents": "every document is drawn: 90 % train, 5 % valid, 5 % test",
    "files": "every file is drawn: 90 % train, 5 % valid, 5 % test",
    "shares": "the last 5 % of every file is test, the 5 % before it valid",
}
"""The rules that can decide a text's split, in words."""


def named_splits(names: Sequence[str], root: str, required: bool = False) -> list[str] | None:
    """The split of each file, from the words of its name and of its folders; None if no name says one.

    A word is a run of letters: my_train_set.txt, ptb.train.txt and train/a.txt are all training text. The file's own
    name has precedence over its folder, and an inner folder over an outer one.

    `names` are paths below the source, `root`. InputError if only some names say a split, a split is missing, two words
    claim one, or no name says one and that is `required`.
    """
    told = [told_words(name) for name in names]
    named = [words for words in told if words]
    if not named and not required:
        return None
    ways_out = "rename them, or give --splits=shares, which takes shares of every file and ignores names"
    for path, words in zip(names, told, strict=True):
        if len({WORDS[word] for word in words}) > 1:
            raise InputError(f"{path} names several splits ({', '.join(sorted(words))}): {ways_out}")
    for split in SPLITS:
        said = [(word, path) for path, words in zip(names, told, strict=True) for word in words]
        claims = {word: path for word, path in said if WORDS[word] == split}
        if len(claims) > 1:
            raise InputError(f"{_listed(claims.values())} both claim to be the {split} text: {ways_out}")
    found = [WORDS[next(iter(words))] if words else None for words in told]
    if lacking := [split for split in SPLITS if split not in found]:
        examples = [path for path, split in zip(names, found, strict=True) if split]
        seen = f", only files such as {_listed(examples)}" if examples else ""
        raise InputError(
            f"{root} has no files named for {' and '.join(lacking)}{seen}: add files with such names "
            f"(train; valid, val, validation, dev or eval; test), {ways_out}"
        )
    if others := [path for path, split in zip(names, found, strict=True) if not split]:
        raise InputError(f"{_listed(others)} is not named for a split, but others are: move it away, {ways_out}")
    return [split for split in found if split]


def told_words(path: str) -> set[str]:
    """The words that name a split in the innermost part of a path that has one."""
    for part in reversed(path.split("/")):
        words = WORDS.keys() & re.findall(r"[^\W\d_]+", part.lower())
        first = next((split for split in SPLITS if part.startswith(split)), None)
        if first and not re.match(rf"{first}(?![^\W\d_])|validation(?![^\W\d_])", part):
            words.add(first)  # training.txt, tests.txt: the beginning of a word is enough
        if words:
            return words
    return set()


def _listed(paths: Iterable[str]) -> str:
    names = list(paths)
    return " and ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
