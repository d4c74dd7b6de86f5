"""Settings as dataclasses: each field has a default, a help text, and the values that it may have.

Flags, config.json and presets come from these dataclasses. A setting is described in one place, and the same check
serves all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from txl_tf.errors import TYPES, InputError

INT32_MAX = 2**31 - 1
HEADINGS = ("data", "model", "optimizer", "schedule", "saving", "evaluation", "devices")
"""The headings that flags of settings are listed under, in this order."""


def require(condition: object, message: str) -> None:
    """Raises InputError with this message unless the condition is true."""
    if not condition:
        raise InputError(message)


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] | None = None,
    *,
    flag: str = "rare",
    under: str | None = None,
    **limits: float,
) -> Any:
    """A field of a `Group`; its help and choices are also those of its command-line flag.

    Args:
        choices: the values that a string may have; None: any.
        flag: "rare": its flag is listed by --helpfull only; the others have functions of their own, which follow.
        under: the heading of its flag, one of HEADINGS; None: that of its group.
        limits: of a number, or of each number of a tuple: the arguments of its Range.
    """
    about = {"help": help, "choices": choices, "range": Range(**limits), "flag": flag, "under": under}
    return dataclasses.field(default=default, metadata=about)


usual = functools.partial(setting, flag="usual")
"""A `setting` whose flag is also listed by --help."""
minor = functools.partial(setting, flag="set")
"""A `setting` that shares the flag --set with others, since hardly anybody changes it."""
hidden = functools.partial(setting, flag="none")
"""A `setting` without a flag, since only presets and imported checkpoints set it."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that a number may have: finite, and within the limits that are not None. Integers must fit int32."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def check(self, value: float, name: str) -> None:
        """Raises InputError, which begins with `name`, if a number is outside the range."""
        if isinstance(value, int) and abs(value) > INT32_MAX:
            raise InputError(f"{name} must be between -{INT32_MAX:,} and {INT32_MAX:,}")
        inside = (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )
        require(inside, f"{name} must be {self}" + ("" if isinstance(value, int) else " and finite"))

    def __str__(self) -> str:
        """The limits in words, to follow "must be"."""
        words = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        return " and ".join(f"{word} {limit:g}" for word, limit in words.items() if limit is not None) or "a number"


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Several settings that one name chooses: `values` has the settings by the names that may be given."""

    help: str
    values: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Option:
    """One flag: a setting, or a bundle of settings."""

    kind: Any
    help: str
    choices: tuple[str, ...] | None
    heading: str
    usual: bool
    own: bool = True
    """Whether it has a flag of its own; if not, --set=NAME=VALUE sets it."""


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of settings. All fields are made by `setting`, and a value that is not allowed raises InputError.

    A subclass with rules for several settings together has a `__post_init__`, which must call this one first.
    """

    owner: ClassVar[str] = ""
    """Precedes the names of settings in messages, such as "evaluation's "."""

    heading: ClassVar[str] = "model"
    """The heading of the settings' flags, one of HEADINGS."""

    bundles: ClassVar[Mapping[str, Bundle]] = types.MappingProxyType({})
    """Names that stand for several settings: one flag for all of them."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata["choices"]
            require(not choices or value in choices, f"{field.name} is {value!r}; choose from {choices}")
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float) and not isinstance(number, bool):
                    field.metadata["range"].check(number, f"{self.owner}{field.name}={shown}")


Settings = typing.TypeVar("Settings", bound=Group)


def field_types(config_class: type) -> dict[str, Any]:
    """The type of each field as an object, not a string: {"cutoffs": tuple[int, ...], ..}."""
    hints = typing.get_type_hints(config_class)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_class)}


def options(config_class: type[Group]) -> dict[str, Option]:
    """The options of a group that have flags, by name."""
    kinds, found = field_types(config_class), {}
    for field in dataclasses.fields(config_class):
        about = field.metadata
        if about["flag"] != "none":
            heading, flag = about["under"] or config_class.heading, about["flag"]
            shown = heading, flag == "usual", flag != "set"
            found[field.name] = Option(kinds[field.name], about["help"], about["choices"], *shown)
    for name, bundle in config_class.bundles.items():
        found[name] = Option(str, bundle.help, tuple(bundle.values), config_class.heading, False)
    return found


def option_value(group: Group, name: str) -> Any:
    """The value of one of a group's `options`; of a bundle "mixed", if no name stands for the group's values."""
    if name not in group.bundles:
        return getattr(group, name)
    choices = group.bundles[name].values.items()
    return next((name for name, held in choices if all(getattr(group, k) == v for k, v in held.items())), "mixed")


def update(config: Settings, values: Mapping[str, Any]) -> Settings:
    """`config` with some fields, or bundles of them, replaced; each value is checked as in `from_dict`."""
    values, where = dict(values), type(config).__name__
    for name in [name for name in config.bundles if name in values]:
        chosen, choices = values.pop(name), config.bundles[name].values
        require(chosen in choices, f"{where}: {name} is {chosen!r}; choose from {tuple(choices)}")
        values |= choices[chosen]
    return dataclasses.replace(config, **_typed(type(config), values, where))


def from_dict(config_class: type[Settings], values: Any, where: str) -> Settings:
    """A group from a dict. InputError, which begins with `where`, for an unknown key or a value that is not allowed."""
    require(isinstance(values, dict), f"{where} must be a JSON object, not {type(values).__name__}")
    typed = _typed(config_class, values, where)
    try:
        return config_class(**typed)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _typed(config_class: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    kinds = field_types(config_class)
    unknown = sorted(set(values) - set(kinds))
    require(not unknown, f"{where} has unknown keys {unknown}; known are {sorted(kinds)}")
    return {name: _coerce(value, kinds[name], f"{where}: {name}") for name, value in values.items()}


def _coerce(value: Any, kind: Any, where: str) -> Any:
    """`value` as `kind`: an int is converted to float and a list to tuple; other conversions are refused."""
    if isinstance(kind, types.GenericAlias):
        require(
            isinstance(value, (list, tuple)) and all(type(item) is int for item in value),
            f"{where} must be a list of integers, got {value!r}",
        )
        return tuple(value)
    if kind is float and type(value) is int:
        require(abs(value) < 2**1023, f"{where} is too large a number")
        return float(value)
    require(type(value) is kind, f"{where} must be {TYPES[kind]}, got {value!r}")
    return value
