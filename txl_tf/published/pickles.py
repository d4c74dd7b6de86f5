"""Reads pickles as data: nothing in them is imported or called.

A pickle is a program. `pickletools.genops` only splits it into operations. Here an operation that would look up a name
yields the name (`Global`), and one that would call a function yields a record of it (`PickledCall`). The result is a
tree, which the reader of a file format interprets. Only names that the format needs are allowed.
"""

from __future__ import annotations

import dataclasses
import pickletools
import re
from collections.abc import Callable, Iterable
from typing import IO, Any

from txl_tf.errors import InputError

_STRINGS = ("STRING", "BINSTRING", "SHORT_BINSTRING")
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
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
        return _Machine(allowed, where, outside).run(file)
    except InputError:
        raise
    except Exception as error:  # damaged files can cause any error
        raise InputError(f"{where} is not a whole pickle ({type(error).__name__}: {error}): fetch it again") from error


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


class _Machine:
    """The pickle machine: stack, marks and memo."""

    def __init__(self, allowed: re.Pattern[str], where: str, outside: Callable[[Any], Any] | None):
        self.allowed, self.where, self.outside = allowed, where, outside
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[Any, Any] = {}

    def run(self, file: IO[bytes]) -> Any:
        argument: Any
        for operation, argument, _ in pickletools.genops(file):
            name = operation.name
            if name in _VALUES:
                self.stack.append(argument)
            elif name in _STRINGS:
                self.stack.append(_python_2_string(argument))
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                self.memo[argument] = self.stack[-1]
            elif name == "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                self.stack.append(self.memo[argument])
            elif name == "STOP":
                return self.stack.pop()
            elif name not in ("PROTO", "FRAME"):
                self.build(name, argument)
        raise ValueError("no end")

    def build(self, name: str, argument: Any) -> None:
        """Executes an operation that combines values."""
        stack = self.stack
        match name:
            case "MARK":
                self.below.append(stack)
                self.stack = []
            case "POP":
                stack.pop() if stack else self.marked()
            case "POP_MARK":
                self.marked()
            case "DUP":
                stack.append(stack[-1])
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_SET":
                stack.append({"TUPLE": (), "LIST": [], "DICT": {}, "SET": set()}[name.removeprefix("EMPTY_")])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "TUPLE" | "LIST" | "FROZENSET":
                items = self.marked()
                make: Callable[[list[Any]], Any] = {"TUPLE": tuple, "LIST": list}.get(name, _checked_set)
                self.stack.append(make(items))
            case "DICT":
                items = self.marked()
                self.stack.append({})
                self.set_items(items)
            case "APPEND":
                self.add_items([stack.pop()])
            case "APPENDS" | "ADDITEMS":
                self.add_items(self.marked())
            case "SETITEM":
                self.set_items([stack.pop(-2), stack.pop()])
            case "SETITEMS":
                self.set_items(self.marked())
            case "GLOBAL":
                stack.append(self.named(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                attribute, module = stack.pop(), stack.pop()
                stack.append(self.named(module, attribute))
            case "PERSID" | "BINPERSID":
                if not self.outside:
                    raise InputError(f"{self.where} is refused: it needs an object that is not in it")
                stack.append(self.outside(argument if name == "PERSID" else stack.pop()))
            case "REDUCE" | "NEWOBJ":
                args, function = stack.pop(), stack.pop()
                self.call(function, args)
            case "NEWOBJ_EX":
                keywords, args, function = stack.pop(), stack.pop(), stack.pop()
                self.call(function, (*args, keywords))
            case "INST":
                args = tuple(self.marked())
                self.call(self.named(*argument.split(" ", 1)), args)
            case "OBJ":
                function, *args = self.marked()
                self.call(function, tuple(args))
            case "BUILD":
                state = stack.pop()
                if not isinstance(stack[-1], PickledCall):
                    raise InputError(f"{self.where} is refused: it would change something that is not its own")
                stack[-1].state = state
            case _:
                raise InputError(f"{self.where} is refused: it uses the pickle operation {name}")

    def marked(self) -> list[Any]:
        """Removes and returns the values since the last mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def named(self, module: str, name: str) -> Global:
        path = f"{module}.{name}"
        if not self.allowed.fullmatch(path):
            raise InputError(
                f"{self.where} is refused: it asks for {path!r}, which no such file needs; nothing was run"
            )
        return Global(path)

    def call(self, function: object, args: object) -> None:
        if not isinstance(function, Global) or not isinstance(args, tuple):
            raise InputError(f"{self.where} is refused: it would call something that it made itself")
        self.stack.append(PickledCall(function.path, args))

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, set):
            target |= _checked_set(items)
        else:
            (target.items if isinstance(target, PickledCall) else target).extend(items)

    def set_items(self, items: list[Any]) -> None:
        pairs, target = list(zip(items[::2], items[1::2], strict=True)), self.stack[-1]
        _checked_set(key for key, _ in pairs)
        target.items.extend(pairs) if isinstance(target, PickledCall) else target.update(pairs)


def _checked_set(items: Iterable[Any]) -> set[Any]:
    items = list(items)
    if not all(isinstance(item, _KEYS) for item in items):
        raise ValueError("a key that is neither text nor number")
    return set(items)


def _python_2_string(text: str) -> str | bytes:
    """A string that genops decoded as Latin-1: text if its bytes are UTF-8, else the bytes."""
    data = text.encode("latin-1")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
