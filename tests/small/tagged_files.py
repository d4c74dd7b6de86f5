"""Files of words with tags, made here: names stand behind "River" and "fine"; in some schemes of tags."""

import json

import numpy as np

SCHEMES = ("IOB1", "IOB2", "IOBES")


def sentences(count, seed=0, scheme="IOB2", words=12):
    """Pairs of words and tags, of at most `words` words."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        text, kinds = [], []
        while len(text) < rng.integers(3, words - 3):
            which = rng.integers(4)
            if which == 0:
                text += ["River", str(rng.integers(10, 99))]
                kinds += ["PLACE"] * 2
            elif which == 1:
                text += ["fine", "End"]
                kinds += ["", "NAME"]
            else:
                text.append(str(rng.choice(["the", "so", "one", "a", "dash"])))
                kinds.append("")
        found.append((text, tags(kinds, scheme)))
    return found


def tags(kinds, scheme):
    """Tags of a scheme; equal kinds side by side are one entity."""
    found = []
    for i, kind in enumerate(kinds):
        first, last = i == 0 or kinds[i - 1] != kind, i + 1 == len(kinds) or kinds[i + 1] != kind
        letter = "IEBS"[2 * first + last] if scheme == "IOBES" else "B" if first and scheme == "IOB2" else "I"
        found.append(f"{letter}-{kind}" if kind else "O")
    return found


def write(path, rows):
    """Writes them as JSON lines, or in CoNLL's format with a column between; the path."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"tokens": words, "tags": tags}) + "\n" for words, tags in rows))
    else:
        lines = ("".join(f"{word} x {tag}\n" for word, tag in zip(*row, strict=True)) for row in rows)
        path.write_text("-DOCSTART- x O\n\n" + "\n".join(lines))
    return str(path)
