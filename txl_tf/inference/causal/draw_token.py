"""Choosing the next token from its log-probabilities: `sampling_settings.transform`, then one random number."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.hashing import fold
from txl_tf.inference.causal import sampling_settings


class Choice(typing.NamedTuple):
    """How to choose, as tensors: int32 seeds [B], and a scalar for each of `sampling_settings.SETTINGS` by name."""

    seeds: tf.Tensor
    values: dict[str, tf.Tensor]

    @classmethod
    def of(cls, seeds: Sequence[int] | np.ndarray, /, **given: float) -> Choice:
        """The Choice with int32 seeds [B] and settings by name; others change nothing.

        InputError if there is no such setting, or for a value out of range.
        """
        values = sampling_settings.checked(given)
        tensors = {name: tf.constant(values[name], spec.dtype) for name, spec in value_specs().items()}
        return cls(tf.constant(seeds, tf.int32), tensors)

    @classmethod
    def spec(cls) -> Choice:
        """The TensorSpecs of a Choice for any batch size."""
        return cls(tf.TensorSpec([None], tf.int32, "seeds"), value_specs())


Processor = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Changes log-probabilities, float32 [B, V], before the settings do, in TensorFlow operations. Its second argument
is the texts so far, int32 [B, L]: prompts and the tokens written, -1 where there is no token yet."""


def processed(processor: Processor, log_prob: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
    """The result of a Processor; InputError if it is not a tensor of the same shape."""
    found = tf.convert_to_tensor(processor(log_prob, texts))
    if found.dtype != log_prob.dtype or not found.shape.is_compatible_with(log_prob.shape):
        raise InputError(
            f"logits_processor gives {found.dtype.name} of shape {found.shape}: it must give "
            f"{log_prob.dtype.name} of shape {log_prob.shape}, as its first argument"
        )
    return found


def value_specs() -> dict[str, tf.TensorSpec]:
    """The TensorSpec of each setting's value, by name."""
    return {
        setting.name: tf.TensorSpec([], tf.int32 if setting.kind is int else tf.float32, setting.name)
        for setting in sampling_settings.SETTINGS
    }


def sample(log_prob: tf.Tensor, seen: tf.Tensor, random: tf.Tensor, values: dict[str, tf.Tensor]) -> tf.Tensor:
    """One token per row, int32 [B], from log_prob float32 [B, V].

    `seen`, bool [B, V], are the tokens that occur in each text, `values` those of a `Choice`. `random`, float32 [B], is
    in [0, 1): the first token whose cumulative probability exceeds it is chosen.
    """
    logits = sampling_settings.transform(log_prob, seen, values)
    vocab_size = log_prob.shape[-1]

    def first(flags: tf.Tensor) -> tf.Tensor:
        """The place of the first true value of bool [B, V]: int32 [B]; V if there is none."""
        return tf.reduce_min(tf.where(flags, tf.range(vocab_size), vocab_size), axis=-1)

    # Faster than argmax in XLA for CPU. If all are NaN, none is found, and this is the first token.
    best = first(logits >= tf.reduce_max(logits, axis=-1, keepdims=True)) % vocab_size

    def draw() -> tf.Tensor:
        probability = tf.nn.softmax(logits)
        cumulative = tf.cumsum(probability, axis=-1)
        drawn = first((cumulative > random[:, None] * cumulative[:, -1:]) & (probability > 0))
        # A parallel cumulative sum may not increase monotonically. If no token exceeds the random number because of
        # rounding, the most likely token is chosen.
        return tf.where(drawn < vocab_size, drawn, best)

    return tf.cond(values["temperature"] > 0, draw, lambda: best)


def uniform(seeds: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Random numbers in [0, 1), float32 [B], multiples of 2^-24, each only from its seed and position, int32 [B].

    TensorFlow's stateless generators give a row different numbers in another batch or on another device. This is a
    hash: two rounds of the 32-bit mixer "lowbias32" (Wellons 2018, https://nullprogram.com/blog/2018/07/31/).
    """
    bits = _mix(_mix(tf.bitcast(seeds, tf.uint32)) + tf.bitcast(positions, tf.uint32))
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float32) * 2.0**-24


def _mix(bits: tf.Tensor) -> tf.Tensor:
    bits = fold(bits, 16) * tf.constant(0x7FEB352D, tf.uint32)
    bits = fold(bits, 15) * tf.constant(0x846CA68B, tf.uint32)
    return fold(bits, 16)
