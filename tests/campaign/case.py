"""Not a test: what a case of the campaign is."""

import pathlib
import typing

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}


class Case(typing.NamedTuple):
    """A command with something wrong, or odd.

    Attributes:
        command: its name in COMMANDS.
        title: what is wrong; unique for a command.
        flags: that replace the command's own; False: omits one.
        file: of the world that is damaged, and how: a name of damage.KINDS; (): none.
        setup: function (folder) that changes what the command finds; None: nothing.
        moved: where parts of the world, and what the command writes, are while it runs: {path: other path}.
        refused: whether the command must refuse it. If not, it may also succeed: then with the usual result if a file
            was damaged, except for texts, whose words are free.
        works: whether the command must succeed.
        usual: whether it must succeed with the usual result.
        check: function (folder, what was printed) -> what is wrong with a success, "" if nothing is; None: nothing.
        environment: variables.
        says: a text that the command must print.
        interrupted: seconds of work after which Ctrl-C comes, in an interpreter that has to import everything; 0:
            never.
    """

    command: str
    title: str
    flags: dict = {}  # noqa: RUF012 (nobody changes it)
    file: tuple = ()
    setup: typing.Callable[[pathlib.Path], None] | None = None
    moved: dict = {}  # noqa: RUF012
    refused: bool = False
    works: bool = False
    usual: bool = False
    check: typing.Callable[[pathlib.Path, str], str] | None = None
    environment: dict = {}  # noqa: RUF012
    says: str = ""
    interrupted: float = 0
