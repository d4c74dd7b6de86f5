"""The sizes that a benchmark measures: `--size=NAME`, `--size=n_layer=4,d_model=256,..`, or a name and changes to it.

Not a script.
"""

import argparse
import sys


def add_flag(parser, named):
    """Adds --size to an ArgumentParser; named: {name: {setting: number}}, the first of which is the default."""
    usual = next(iter(named))
    parser.add_argument(
        "--size",
        default=usual,
        metavar="[NAME,][SETTING=NUMBER,..]",
        help=f"{', '.join(named)} ({usual} by default), and changes to it. Settings: {', '.join(named[usual])}",
    )


def chosen(named):
    """The settings of the size that this process's command line gives; an unknown one ends the process with a line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_flag(parser, named)
    given = parser.parse_known_args()[0].size
    first, *changes = given.split(",")
    if first not in named:
        first, changes = next(iter(named)), [first, *changes]
    size = dict(named[first])
    for change in changes:
        name, _, number = change.partition("=")
        if name not in size or not number.isdigit() or not int(number):
            sys.exit(f"error: --size={given}: {change} is neither of {', '.join(named)} nor a SETTING=NUMBER of a size")
        size[name] = int(number)
    return size
