"""--help and --helpfull, and the arguments of a command: its flags, and those that it requires."""

import re
import sys

from absl import flags

from txl_tf.errors import InputError, one_line
from txl_tf.settings.groups import HEADINGS

HELP = ("--help", "-help", "-?", "--helpshort", "-helpshort")
HELPFULL = ("--helpfull", "-helpfull")


_CHOICES = re.compile("^<.*?>: ")
"""The beginning of absl's help for a flag with choices."""

_places = {}
"""For each flag, by name: its heading, and whether --help lists it, or only --helpfull."""

shared = []
"""The names of the settings that --set sets."""

_required = []
"""The flags that the command needs, each with the flag that makes it unneeded; "": none does."""


def place(*names, heading="", usual=True):
    """Lists flags as those of the command, wherever they were defined; a flag that has a place keeps it.

    `heading` is one of HEADINGS; "": above all. `usual`: whether --help lists them, or only --helpfull.
    """
    for name in names:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
        _places.setdefault(name, (heading, usual))


def require_flags(*names, unless=""):
    """Makes the command require these flags, unless another flag is given."""
    _required.extend((name, unless) for name in names)


def check_required():
    """Raises InputError if a flag that the command needs was not given."""
    for name, unless in _required:
        if flags.FLAGS[name].value is None and not (unless and flags.FLAGS[unless].value):
            raise InputError(f"give --{name}: {_CHOICES.sub('', flags.FLAGS[name].help)}")


def parse(argv):
    """Reads the flags; returns the other arguments.

    --help, --helpfull and a wrong flag, which gives one line, end the process.
    """
    full = any(argument in HELPFULL for argument in argv)
    if full or any(argument in HELP for argument in argv):
        print(help_text(full))
        sys.stdout.flush()  # here, so that the command hears if nobody reads it
        sys.exit(0)
    try:
        return flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        for name in (error.flagname, error.flagname.removeprefix("no")):
            if name in shared:
                sys.exit(f"error: --{name} is not a separate flag: give --set={name}=VALUE")
        sys.exit(f"error: {one_line(error)}")
    except flags.Error as error:
        sys.exit(f"error: {one_line(error)}")


def help_text(full):
    """The program's docstring and its flags under headings; `full`: also its rare ones, and those of every command."""
    own = {flag.name: flag for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0])}
    listed = {heading: [] for heading in ("", *HEADINGS)}
    left_out = 0
    for name, flag in own.items():
        heading, usual = _places.get(name, ("", True))
        if full or usual:
            listed[heading].append(_described(flag))
        else:
            left_out += 1
    if full:
        every = {flag.name: flag for flag in map(flags.FLAGS.__getitem__, flags.FLAGS)}
        listed["every command"] = [_described(flag) for name, flag in sorted(every.items()) if name not in own]
    lines = [sys.modules["__main__"].__doc__ or "", "flags:"]
    for heading, found in listed.items():
        lines += ["", f"{heading}:"] * bool(heading and found) + found
    return "\n".join(lines + ["", f"--helpfull lists all flags, {left_out} more."] * bool(left_out))


def _described(flag):
    """A flag as a paragraph: its name and its help, with its values and its default."""
    text = _CHOICES.sub(lambda found: found[0].replace("|", " | "), flag.help)  # so that the lines can be broken
    default = f" (default: {flag.default_as_str})" if flag.default is not None else ""
    name = f"--{'[no]' if flag.boolean else ''}{flag.name}"
    return flags.text_wrap(f"{name}: {text}{default}", indent="    ", firstline_indent="  ")
