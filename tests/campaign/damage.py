"""Not a test: what can be wrong with a file."""

import json
import os

DEPTH = 100_000


def flip(data):
    """One bit, a little after the middle."""
    place = len(data) * 5 // 8
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


CONTENTS = {
    "with a flipped bit": flip,
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "of zeros": lambda data: bytes(len(data)),
}
JSON_CONTENTS = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a list": lambda data: b"[1]\n",
    "a number": lambda data: b"5\n",
    "null": lambda data: b"null\n",
    "nested deeply": lambda data: b"[" * DEPTH + b"]" * DEPTH + b"\n",
    "nested objects": lambda data: b'{"a":' * DEPTH + b"\n",
    "not UTF-8": lambda data: data.replace(b'"', b'"\xff', 1),
    "with another key": lambda data: data.replace(b"{", b'{"none_such": [1e999, NaN], ', 1),
}


def kinds(path):
    """How the file at a path can be damaged."""
    contents = JSON_CONTENTS if path.suffix in (".json", ".jsonl") else CONTENTS
    rights = ("unreadable",) if os.geteuid() else ()  # root reads everything
    return (*contents, "missing", "a pipe", "a circle", "a folder", *rights)


def apply(path, kind):
    """Damages the file at a path."""
    contents = JSON_CONTENTS if path.suffix in (".json", ".jsonl") else CONTENTS
    if kind in contents:
        path.write_bytes(contents[kind](path.read_bytes()))
    elif kind == "unreadable":
        path.chmod(0)
    elif kind.startswith(("without ", "null in ", "list in ")):
        what, key = kind.removesuffix(" in").replace(" in ", " ").split(" ", 1)
        value = json.loads(path.read_text())
        if what == "without":
            del value[key]
        else:
            value[key] = None if what == "null" else [[]]
        path.write_text(json.dumps(value))
    else:
        path.unlink()
        make(path, kind)


def make(path, kind):
    """Makes something that is not a file: nothing, a pipe that nobody writes to, a link to itself, or a folder."""
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a circle":
        path.symlink_to(path.name)
    elif kind == "a folder":
        path.mkdir()


def put_places(folder):
    """Makes in a folder what flags of the cases name."""
    for kind in ("a pipe", "a circle", "a folder"):
        make(folder / kind, kind)
    (folder / "a file").write_text("nothing to see\n")
