"""Reads pickles as data: nothing in them is imported or called.

A pickle is a program. Here an operation of it that would look up a name yields the name (`Global`), and one that would
call a function yields a record of it (`PickledCall`). The result is a tree, which the reader of a file format
interprets. Only names that the format needs are allowed.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Callable
from typing import IO, Any, ClassVar

from txl_tf.errors import InputError

_KEYS = (str, bytes, int, float, bool, type(None))  # of dicts; hashing nested tuples recurses without a limit


@dataclasses.dataclass(frozen=True)
class Global:
    """A name in the pickle, "module.name". It is not looked up."""

    path: str


@dataclasses.dataclass(eq=False)
class PickledCall:
    """A call in the pickle, which is not made; also an object, which a call would create.

    path: the "module.name" of the function.
    args: tuple.
    state: the state that would be set on the object; None: none.
    items: values that would be appended to it, or (key, value) pairs that would be set in it.
    """

    path: str
    args: tuple
    state: Any = None
    items: list = dataclasses.field(default_factory=list)

    def append(self, item: Any) -> None:
        """Called by the pickle, as the other two."""
        self.items.append(item)

    add = append

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


def read_pickle(
    file: IO[bytes], allowed: re.Pattern[str], where: str, outside: Callable[[Any], Any] | None = None
) -> Any:
    """The tree of one pickle, in a binary file from its place on.

    It has None, bool, int, float, str, bytes, list, tuple, dict, set, Global or PickledCall, nested, and what `outside`
    makes of the ids of objects that are not in the pickle. Strings of Python 2 become str where they are UTF-8. `where`
    is the file's name for messages.

    InputError if `allowed` does not match the whole "module.name" of a Global, an operation is unknown, or the pickle
    is not complete.
    """
    try:
        return _Reader(file, allowed, where, outside).load()
    except InputError:
        raise
    except Exception as error:  # damaged files can cause any error
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise InputError(f"{where} is not a whole pickle ({reason}): fetch it again") from error


def as_dict(node: object) -> dict[Any, Any] | None:
    """The dict of a node that is a dict, an OrderedDict or a Counter; None for other nodes."""
    if isinstance(node, dict):
        return node
    if not isinstance(node, PickledCall) or node.path not in ("collections.OrderedDict", "collections.Counter"):
        return None
    given = node.args[0] if node.args else []
    pairs = [*(given.items() if isinstance(given, dict) else given if isinstance(given, list) else [None]), *node.items]
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], _KEYS) for pair in pairs):
        return None
    return dict(map(tuple, pairs))


class _Reader(pickle._Unpickler):
    """Python's reader of pickles, with other operations in place of those that would look up, call or change things."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    stack: list[Any]

    def __init__(self, file: IO[bytes], allowed: re.Pattern[str], where: str, outside: Callable[[Any], Any] | None):
        super().__init__(file)
        self.allowed, self.where, self.outside = allowed, where, outside

    def refuse(self, why: str = "it uses an operation that no such file needs") -> Any:
        raise InputError(f"{self.where} is refused: {why}")

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if not self.allowed.fullmatch(path):
            self.refuse(f"it asks for {path!r}, which no such file needs; nothing was run")
        return Global(path)

    def persistent_load(self, id: Any) -> Any:
        return self.outside(id) if self.outside else self.refuse("it needs an object that is not in it")

    def _decode_string(self, value: bytes) -> str | bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value

    def _instantiate(self, function: Any, args: Any) -> None:
        if not isinstance(function, Global) or not isinstance(args, (tuple, list)):
            self.refuse("it would call something that it made itself")
        self.stack.append(PickledCall(function.path, tuple(args)))

    def call(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self._instantiate(function, args)

    def call_with_keywords(self) -> None:
        keywords, args = self.stack.pop(), self.stack.pop()
        self._instantiate(self.stack.pop(), (*args, keywords))

    def build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], PickledCall):
            self.refuse("it would change something that is not its own")
        self.stack[-1].state = state


def _with_plain_keys(operation: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    """An operation on a dict or set, whose keys are these of the values on the stack."""

    def checked(reader: _Reader) -> None:
        if not all(isinstance(key, _KEYS) for key in reader.stack[keys]):
            raise ValueError("a key that is neither text nor number")
        operation(reader)

    return checked


_Reader.dispatch |= {code[0]: _Reader.call for code in (pickle.REDUCE, pickle.NEWOBJ)}
_Reader.dispatch |= {pickle.NEWOBJ_EX[0]: _Reader.call_with_keywords, pickle.BUILD[0]: _Reader.build}
for _code in (pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER):
    _Reader.dispatch[_code[0]] = _Reader.refuse
for _code, _keys in {
    pickle.SETITEM: slice(-2, -1),
    pickle.SETITEMS: slice(0, None, 2),
    pickle.DICT: slice(0, None, 2),
    pickle.ADDITEMS: slice(None),
    pickle.FROZENSET: slice(None),
}.items():
    _Reader.dispatch[_code[0]] = _with_plain_keys(_Reader.dispatch[_code[0]], _keys)
