"""All settings of sampling. Flags, Python arguments, SavedModel inputs and the server follow from this one description.

A sampler is one function and one entry of `SETTINGS`. The function transforms logits:
`(logits, seen, value) -> logits`. logits are float32 [B, V]; the first transform gets the log-probabilities of the
next token. seen is bool [B, V], which tokens occur in the text. value is the setting as a scalar tensor. A transform
sets the logits of tokens that it excludes to -inf. It never excludes all tokens. Shapes: B texts, V vocabulary.

This module loads TensorFlow only when a transform runs, so that flags and --help respond at once.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from txl_tf.errors import TYPES, InputError
from txl_tf.settings.groups import INT32_MAX

FLOAT32_MAX = 3.4028234663852886e38


class _TensorFlow:
    """TensorFlow, loaded when it is first used."""

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        return getattr(tensorflow, name)


if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _TensorFlow()


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of sampling.

    Attributes:
        name: of the flag, the argument, the SavedModel's input and the field of a request.
        default: the value if none is given, with which the transform changes nothing; an int or a float, which is also
            the setting's type.
        low: the smallest value.
        high: the largest value; None: the largest value of the type, int32 or float32.
        above_low: whether `low` itself is not allowed.
        off: further values with which the transform changes nothing.
        help: the meaning of the values, for users.
        transform: the function, as described in this module's docstring. It runs only if it changes something.
    """

    name: str
    default: int | float
    low: int | float
    help: str
    transform: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
    high: int | float | None = None
    above_low: bool = False
    off: tuple[int | float, ...] = ()

    @property
    def kind(self) -> type:
        """`int` or `float`."""
        return type(self.default)

    @property
    def range(self) -> str:
        """The values that are allowed, in words."""
        low = f"{'above' if self.above_low else 'at least'} {self.low:g}"
        return low if self.high is None else f"{low} and at most {self.high:g}"

    def check(self, value: object) -> int | float:
        """`value` as `kind`; InputError if it is not a number of that kind, or out of range, as is NaN."""
        wanted = numbers.Integral if self.kind is int else numbers.Real
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise InputError(f"{self.name}={value!r} must be {TYPES[self.kind]}; {self.help}")
        most = (INT32_MAX if self.kind is int else FLOAT32_MAX) if self.high is None else self.high
        value = cast("float", value)  # the type numbers.Real does not declare comparison with float
        above = value > self.low if self.above_low else value >= self.low
        if not (above and value <= most):  # false for NaN
            type_limit = f" and fit {self.kind.__name__}32" if self.high is None and not value <= most else ""
            raise InputError(f"{self.name}={value} must be {self.range}{type_limit}; {self.help}")
        return self.kind(value)

    def allows(self, value: tf.Tensor) -> tf.Tensor:
        """Whether a scalar tensor is within the range: bool; false for NaN and infinities."""
        above = value > self.low if self.above_low else value >= self.low
        return above & (value <= (value.dtype.max if self.high is None else self.high))


def _repetition_penalty(logits: tf.Tensor, seen: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
    """Keskar et al. 2019 (arXiv 1909.05858), section 4.1."""
    penalised = tf.where(logits > 0, logits / penalty, logits * penalty)
    return tf.where(seen, tf.maximum(penalised, logits.dtype.min), logits)


def _temperature(logits: tf.Tensor, _: tf.Tensor, temperature: tf.Tensor) -> tf.Tensor:
    divided = logits / tf.where(temperature > 0, temperature, 1.0)  # `draw_token.sample` handles 0
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    # However small the temperature, the most likely token stays finite.
    return tf.where(logits < largest, divided, tf.maximum(divided, logits.dtype.min))


def _top_k(logits: tf.Tensor, _: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    target = tf.where(k > 0, tf.cast(k, tf.float32), float("inf"))
    return _limited(logits, _largest(logits, tf.ones_like(logits), target))


def _top_p(logits: tf.Tensor, _: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    """Nucleus sampling: Holtzman et al. 2019 (arXiv 1904.09751)."""
    return _limited(logits, _largest(logits, tf.nn.softmax(logits), _all_at_1(p)))


def _min_p(logits: tf.Tensor, _: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    """Nguyen et al. 2024 (arXiv 2407.01082)."""
    return _limited(logits, logits >= tf.reduce_max(logits, axis=-1, keepdims=True) + tf.math.log(p))


def _typical(logits: tf.Tensor, _: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    """Locally typical sampling: Meister et al. 2022 (arXiv 2202.00666)."""
    log_prob = tf.nn.log_softmax(logits)
    probability = tf.exp(log_prob)
    entropy = -tf.reduce_sum(tf.math.multiply_no_nan(log_prob, probability), axis=-1, keepdims=True)
    distance = tf.abs(-log_prob - entropy)  # infinite for tokens that are excluded
    return _limited(logits, _largest(-distance, probability, _all_at_1(p)))


def _limited(logits: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """Logits [B, V] with -inf where `kept` is false."""
    return tf.where(kept, logits, -float("inf"))


def _all_at_1(p: tf.Tensor) -> tf.Tensor:
    """The target p; infinity for 1, since by rounding the sum over a part of the tokens may be 1."""
    return tf.where(p >= 1, float("inf"), p)


def _largest(numbers: tf.Tensor, weights: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """The largest numbers whose weights together reach a target: as few as possible, but with all equal ones.

    The smallest of them is found bit by bit, from sums of weights. Sorting a large vocabulary is much slower. Numbers
    and weights are float32 [B, V], without NaN, weights not negative, and the target is above 0. The result is bool [B,
    V], all true if the weights do not reach the target.
    """
    keys = _in_order(numbers)[:, None]
    digits = tf.cast(tf.range(1, 2**DIGIT), tf.uint32)

    def add_digit(i: tf.Tensor, smallest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """smallest: uint32 [B], the first i digits of the key that is searched; all others are 0."""
        place = tf.cast(32 - DIGIT * (i + 1), tf.uint32)
        tried = smallest[:, None] | tf.bitwise.left_shift(digits, place)
        reached = tf.reduce_sum(tf.where(keys >= tried[:, :, None], weights[:, None], 0.0), axis=-1)
        fits = (reached >= target) & (reached > 0)  # XLA for CPU takes the smallest targets for 0
        digit = tf.reduce_sum(tf.cast(fits, tf.uint32), axis=-1)
        return i + 1, smallest | tf.bitwise.left_shift(digit, place)

    first = (tf.constant(0), tf.zeros_like(keys[:, 0, 0]))
    smallest = tf.while_loop(lambda i, _: i < 32 // DIGIT, add_digit, first)[1]
    return keys[:, 0] >= smallest[:, None]


DIGIT = 2
"""Bits of a key that `_largest` finds at once. With more bits it needs fewer passes, but more sums in each."""


def _in_order(numbers: tf.Tensor) -> tf.Tensor:
    """uint32 keys of float32 numbers, in the same order; that of -0.0 is below that of 0.0."""
    bits = tf.bitcast(numbers, tf.uint32)
    sign = tf.constant(1 << 31, tf.uint32)
    return tf.where(bits < sign, bits | sign, tf.bitwise.invert(bits))


SETTINGS = (
    Setting(
        "repetition_penalty",
        default=1.0,
        low=1.0,
        help="makes tokens that already occur in the text less likely: their log-probabilities are multiplied by it; "
        "1: no penalty",
        transform=_repetition_penalty,
    ),
    Setting(
        "temperature",
        default=1.0,
        low=0.0,
        help="divides the log-probabilities; 0: always the most likely token that the other settings allow",
        transform=_temperature,
        off=(0.0,),
    ),
    Setting(
        "top_k",
        default=0,
        low=0,
        help="choose only among this many of the most likely tokens, and those as likely as the last of them; 0: all",
        transform=_top_k,
    ),
    Setting(
        "top_p",
        default=1.0,
        low=0.0,
        high=1.0,
        help="choose only among the most likely tokens that together reach this probability; 1: all",
        transform=_top_p,
        above_low=True,
    ),
    Setting(
        "min_p",
        default=0.0,
        low=0.0,
        high=1.0,
        help="choose only among tokens with at least this share of the most likely token's probability; 0: all",
        transform=_min_p,
    ),
    Setting(
        "typical_p",
        default=1.0,
        low=0.0,
        high=1.0,
        help="choose only among the tokens whose information is closest to the entropy and that together reach this "
        "probability; 1: all",
        transform=_typical,
        above_low=True,
    ),
)
"""All settings, in the order in which their transforms are applied."""


def names() -> tuple[str, ...]:
    """The settings' names, in their order."""
    return tuple(setting.name for setting in SETTINGS)


def checked(given: Mapping[str, object]) -> dict[str, int | float]:
    """A value for every setting: the given values, checked, and the defaults of the other settings.

    InputError if there is no such setting, or its value is out of range.
    """
    unknown = [name for name in given if name not in names()]
    if unknown:
        raise InputError(f"{unknown[0]} is not a setting of sampling: choose from {', '.join(names())}")
    return {setting.name: setting.check(given.get(setting.name, setting.default)) for setting in SETTINGS}


def transform(logits: tf.Tensor, seen: tf.Tensor, values: dict[str, tf.Tensor]) -> tf.Tensor:
    """Applies every setting's transform, with a scalar tensor for each setting, to log-probabilities: float32 [B, V].

    `seen`, bool [B, V], are the tokens that occur in each text.
    """
    for setting in SETTINGS:
        value = values[setting.name]

        def apply(logits: tf.Tensor = logits, setting: Setting = setting, value: tf.Tensor = value) -> tf.Tensor:
            return setting.transform(logits, seen, value)

        off = tf.reduce_any(tf.equal(value, (setting.default, *setting.off)))
        logits = tf.cond(off, lambda logits=logits: logits, apply)
    return logits


def to_json() -> str:
    """The descriptions as JSON, for programs without this package: a list of objects, one for each setting.

    Each has name, type ("int" or "float"), default, low, above_low, high (a number or null), range (in words), help.
    """
    fields = ("name", "default", "low", "above_low", "high", "range", "help")
    described = [
        {"type": setting.kind.__name__} | {field: getattr(setting, field) for field in fields} for setting in SETTINGS
    ]
    return json.dumps(described, indent=2) + "\n"
