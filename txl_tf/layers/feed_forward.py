"""The position-wise feed-forward block."""

from __future__ import annotations

import typing

import keras
import tensorflow as tf

from txl_tf import ops
from txl_tf.layers.dropout import TIME, check_rate, dropout, split_seed
from txl_tf.layers.layer import Layer


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    return keras.activations.gelu(x, approximate=True)


ACTIVATIONS = {"relu": keras.activations.relu, "gelu": keras.activations.gelu, "gelu_tanh": gelu_tanh}


@keras.saving.register_keras_serializable(package="txl_tf")
class FeedForward(Layer):
    """activation(x W1 + b1) W2 + b2, with dropout after the activation and after the output.

    Shapes: [.., D] in and out.

    Args:
        d_inner: width of the hidden layer.
        activation: "relu", "gelu" (Hendrycks & Gimpel 2016, exact, with the error function) or "gelu_tanh" (their
            approximation by tanh, which differs by at most 4.7e-4; the official XLNet code calls it gelu).
        dropout: rate of both dropouts.
        variational: each dropout has one mask for all positions of a row (axis -2).
        init_std: W1 and W2 start as normal(0, init_std), the biases at zero.

    Raises:
        ValueError: a width that is not positive, an unknown activation.
    """

    def __init__(
        self,
        d_inner: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        variational: bool = False,
        init_std: float = 0.02,
        **kwargs: typing.Any,
    ):
        super().__init__(**kwargs)
        if d_inner < 1:
            raise ValueError(f"FeedForward: d_inner must be positive, got {d_inner}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"FeedForward: activation is {activation!r}; choose from {tuple(ACTIVATIONS)}")
        self.keep(locals())
        check_rate(dropout, "dropout", self)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the two dense layers for inputs [.., D]."""
        self.inner, self.outer = self.new_dense(self.d_inner, "inner"), self.new_dense(input_shape[-1], "outer")
        self.inner.build(input_shape)
        self.outer.build((*input_shape[:-1], self.d_inner))

    def call(
        self,
        hidden: tf.Tensor,
        seed: tf.Tensor | None = None,
        training: bool = False,
        kernels: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The block on hidden [.., D]; kernels: by `kernels()`, in the compute dtype, if the caller keeps them."""
        rate = self.dropout if training else 0.0
        inner_seed, outer_seed = split_seed(seed, 2)
        shared_axis = TIME if self.variational else None
        inner_kernel, outer_kernel = kernels or (self.inner.kernel, self.outer.kernel)
        inner = ACTIVATIONS[self.activation](ops.dense(hidden, inner_kernel, self.inner.bias))
        inner = dropout(inner, rate, inner_seed, shared_axis)
        return dropout(ops.dense(inner, outer_kernel, self.outer.bias), rate, outer_seed, shared_axis)

    def kernels(self) -> tuple[tf.Tensor, ...]:
        """W1 [D, d_inner] and W2 [d_inner, D], as tensors."""
        return tuple(tf.convert_to_tensor(layer.kernel) for layer in (self.inner, self.outer))
