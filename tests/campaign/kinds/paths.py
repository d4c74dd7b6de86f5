"""Not a test: every path that a command takes, under names that a shell or TensorFlow could take for something else."""

import functools

from campaign.case import Case
from campaign.commands import COMMANDS

NAMES = {
    "brackets": "lr=[1e-3] {}",
    "signs of patterns": "run*?{}",
    "a backslash": "a\\b{}",
    "a dash and signs of shells": "-a,b 'c' \"d\" #%25~$HOME {}",
    "spaces, a line's end and letters": " größe  日本\n{}",
    "a colon": "C:{}",
}
"""Names that must work, made from a part's own."""
NEIGHBOURS = {"lr=[1e-3] {}": "lr=1 {}", "run*?{}": "run-1{}"}
"""Other names that they match as patterns."""
LONG = "a" * 240
CHOICES = ("dataset", "format")
"""Flags whose values are not paths, though parts of the world have these names."""
REFUSED = dict.fromkeys(("export", "export_xlnet"), ("brackets", "signs of patterns", "a backslash"))
"""By command: names under which it must not write, since plain TensorFlow could not read there."""


def cases():
    """Every command with all its paths under each name, and reached in other ways."""
    for name, command in COMMANDS.items():
        if command.by_hand or not (paths := own_paths(command)):
            continue
        for title, form in NAMES.items():
            setup = functools.partial(add_neighbours, parts=paths, form=NEIGHBOURS.get(form))
            works = {"refused": True} if title in REFUSED.get(name, ()) else {"usual": True}
            moved = {part: form.format(part) for part in paths}
            yield Case(name, f"paths with {title}", named(command, form), setup=setup, moved=moved, **works)
        yield Case(name, "paths through a folder and back", named(command, "a folder/../{}"), usual=True)
        behind = {part: f"deep/{part}" for part in paths}
        yield Case(name, "paths behind a link", named(command, "far/../{}"), setup=add_far_link, moved=behind,
                   usual=not command.by_argparse)  # fmt: skip
        linked = {part: f"behind/{part}" for part in paths if part in command.reads}
        links = functools.partial(add_links, paths=linked)
        yield Case(name, "paths that are links", named(command, "link to {}", linked), setup=links, moved=linked,
                   usual=True)  # fmt: skip
        folders = [part for part in paths if "." not in part]
        yield Case(name, "paths with a slash at the end", named(command, "{}/", folders), usual=True)
        for title, form in (("with very long names", LONG + "{}"), ("below what is missing", "none/such/{}")):
            moved = {part: form.format(part) for part in command.writes if part not in command.reads}
            yield Case(name, f"paths {title}", named(command, form, moved), moved=moved)
        stray = functools.partial(add_strays, parts=[part for part in folders if part in command.reads])
        yield Case(name, "paths with neighbours that are not UTF-8", setup=stray)
    yield from patterns()


def patterns():
    """Sources that are patterns, or names with signs of patterns."""
    one = {"text/train.txt": "text/a*.txt", "text/valid.txt": "text/ab.txt"}
    yield Case("prepare", "paths: a file named like a pattern", {"source": "text/a*.txt"}, moved=one, works=True,
               check=functools.partial(says, line="of a*.txt"))  # fmt: skip
    yield Case("prepare", "paths: a pattern", {"source": "text/*.txt"}, usual=True)
    deep = {"text/train.txt": "text/a/b/train.txt", "text/valid.txt": "text/a/valid.txt"}
    yield Case("prepare", "paths: a pattern of all folders", {"source": "text/**/*.txt"}, moved=deep, works=True,
               check=functools.partial(says, line="of a/b/train.txt"))  # fmt: skip
    yield Case(
        "prepare", "paths: a pattern without match", {"source": "text/*.none"}, refused=True, says="no text found"
    )
    yield Case("prepare", "paths: half a bracket", {"source": "text/[a.txt"}, refused=True, says="no text found")
    yield Case("import_official_tf", "paths: a checkpoint's prefix", {"source": "official_tf/model.ckpt-0"}, usual=True)


def says(folder, printed, line):
    """A complaint that a command did not print a line; "" if it did."""
    return "" if line in printed else f"it does not say {line!r}: {printed[-300:]}"


def own_paths(command):
    """The parts of the world, and what is written, that the flags of a command name."""
    values = [
        path for flag, value in command.flags.items() if value and flag not in CHOICES for path in value.split(",")
    ]
    return sorted({value.split("/")[0] for value in values} & {*command.reads, *command.writes})


def named(command, form, parts=None):
    """The flags of a command with its paths (all, or those of some parts) in this form."""
    flags = {}
    parts = own_paths(command) if parts is None else parts
    for flag, value in command.flags.items():
        given = [renamed(path, form, parts) for path in (value or "").split(",")]
        if flag not in CHOICES and ",".join(given) != (value or ""):
            flags[flag] = given if len(given) > 1 else given[0]
    return flags


def renamed(path, form, parts):
    first, *rest = path.split("/")
    return "/".join([form.format(first), *rest]).replace("//", "/") if first in parts else path


def add_neighbours(folder, parts, form):
    """Makes what a path matches as a pattern: a folder with files of such names, or a file."""
    for part in parts if form else ():
        path = folder / form.format(part)
        if path.suffix:
            path.write_text("text\tlabel\nneighbour\tno\n")
            continue
        path.mkdir()
        for name in ("train.txt", "valid.txt", "test.txt", "ckpt-9.index", "config.json", "manifest.json"):
            (path / name).write_text("neighbour\n")


def add_far_link(folder):
    """Makes a link to a folder in another folder: "far/.." is not where "far" stands."""
    (folder / "deep" / "inside").mkdir(parents=True)
    (folder / "far").symlink_to("deep/inside")


def add_links(folder, paths):
    """Makes links to where paths are moved."""
    for part, target in paths.items():
        (folder / f"link to {part}").symlink_to(target)


def add_strays(folder, parts):
    """Adds a file whose name is not UTF-8 to parts of the world."""
    for part in parts:
        (folder / part / "caf\udce9").write_text("word1 word2\n")
