"""The base class of our Keras layers."""

from __future__ import annotations

import inspect
import typing

import keras


class Layer(keras.layers.Layer):
    """A Keras layer that keeps its constructor's arguments as attributes; new kernels are normal(0, init_std)."""

    init_std: float

    def keep(self, arguments: dict[str, typing.Any]) -> None:
        """Makes the constructor's arguments, its `locals()`, attributes."""
        for name, value in arguments.items():
            if name not in ("self", "kwargs", "__class__"):
                setattr(self, name, value)

    def get_config(self) -> dict[str, typing.Any]:
        """The constructor's arguments."""
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, Layer) and kind is not Layer]
        parameters = [parameter for kind in kinds for parameter in inspect.signature(kind.__init__).parameters.values()]
        names = {parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD} - {"self"}
        return super().get_config() | {name: getattr(self, name) for name in sorted(names)}

    def new_weight(self, name: str, *shape: int, initializer: str | None = None) -> keras.Variable:
        """A weight of this layer."""
        initializer = initializer or keras.initializers.RandomNormal(stddev=self.init_std)
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def new_dense(self, units: int | None, name: str, **options: typing.Any) -> keras.layers.Dense:
        """A dense layer in this layer, in its dtype."""
        initializer = keras.initializers.RandomNormal(stddev=self.init_std)
        return keras.layers.Dense(units, kernel_initializer=initializer, dtype=self.dtype_policy, name=name, **options)
