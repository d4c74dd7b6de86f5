"""A Transformer-XL that keeps its memory between calls, like `LSTM(stateful=True)` of Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from txl_tf.models.decoder import Configured
from txl_tf.models.memory import Mems
from txl_tf.models.transformer_xl.config import TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL


@keras.saving.register_keras_serializable(package="txl_tf")
class StatefulTransformerXL(Configured):
    """A Transformer-XL that remembers: row b of a call continues row b of the call before it, until `reset_state`.

    For Keras' own fit, evaluate and predict on contiguous batches, on one device or under a strategy. Each replica
    keeps the memory of its rows. The memory is not a weight: it is not saved, and a loaded model begins without any.

    Args:
        config: a TransformerXLConfig.
        batch_size: B over all replicas; every batch must have it.

    Attributes:
        decoder: the TransformerXL, with all weights.

    Raises:
        ValueError: the replicas cannot share B evenly, or the config has an extended context.

    Examples:
        >>> model = StatefulTransformerXL(TransformerXLConfig(vocab_size=256, n_layer=2, mem_len=32), batch_size=4)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model.compile(keras.optimizers.Adam(1e-3, global_clipnorm=0.25), loss)
        >>> model.fit(batches, epochs=3, callbacks=[SeparateTexts()])  # of (inputs, targets), int32 [4, T] each
    """

    settings = TransformerXLConfig

    def __init__(self, config: TransformerXLConfig, batch_size: int, name: str = "stateful_transformer_xl"):
        super().__init__(config, name)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if config.ext_len:
            raise ValueError(f"ext_len={config.ext_len} must be 0: only memory is kept between calls")
        if batch_size < 1 or batch_size % replicas:
            raise ValueError(f"batch_size={batch_size} must be a positive multiple of the {replicas} replicas")
        self.batch_size = batch_size
        self.decoder = TransformerXL(config)
        self._rows = batch_size // replicas
        # ON_READ: each replica has its own values. They are not Keras variables, since Keras would save them.
        self._mems = tf.nest.map_structure(
            lambda first: tf.Variable(
                first,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            ),
            self.decoder.initial_mems(self._rows),
        )
        self.built = True

    def fit(self, *data: Any, shuffle: bool = False, **options: Any) -> keras.callbacks.History:
        """Keras' fit; the batches stay in order, since each continues the one before it."""
        return super().fit(*data, shuffle=shuffle, **options)

    def call(self, tokens: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Reads a segment, integers [B, T] with T static, and remembers it. A replica reads its own rows.

        The result is the log-probabilities of the token that follows each one, float32 [B, T, V].

        Raises:
            ValueError: another batch size.
        """
        if tokens.shape[0] not in (None, self._rows):
            raise ValueError(
                f"the memory has {self._rows} rows a replica, got tokens {tokens.shape}: make all batches of equal "
                "size, as tf.data's batch(.., drop_remainder=True) does"
            )
        tokens = tf.cast(tokens, tf.int32)  # with several replicas Keras builds the model with floats
        before = Mems(tuple(tf.convert_to_tensor(part) for part in self._mems.hidden), self._mems.length.read_value())
        hidden, after = self.decoder(tokens, before, training=bool(training))
        for variable, value in zip(tf.nest.flatten(self._mems), tf.nest.flatten(after), strict=True):
            variable.assign(value)
        return self.decoder.log_prob(hidden)

    def reset_state(self) -> None:
        """Forgets everything read so far. Call it outside of `strategy.run`."""
        first = tf.nest.flatten(self.decoder.initial_mems(self._rows))
        self.state = [[one] * len(parts) for one, parts in zip(first, self.state, strict=True)]

    @property
    def state(self) -> list[list[tf.Tensor]]:
        """The memory: for each part a list of the values on each replica. Assign it to restore it."""
        return [[tf.identity(part) for part in self._parts(variable)] for variable in tf.nest.flatten(self._mems)]

    @state.setter
    def state(self, values: list[list[tf.Tensor]]) -> None:
        for variable, parts in zip(tf.nest.flatten(self._mems), values, strict=True):
            for part, value in zip(self._parts(variable), parts, strict=True):
                part.assign(value)

    @staticmethod
    def _parts(variable: tf.Variable) -> tuple[tf.Variable, ...]:
        """A variable's copies on the replicas."""
        return getattr(variable, "values", (variable,))

    def get_config(self) -> dict[str, Any]:
        """The settings as a dict, B and the name."""
        return super().get_config() | {"batch_size": self.batch_size}


class SeparateTexts(keras.callbacks.Callback):
    """Keeps the texts of fit, evaluate and predict apart, for a StatefulTransformerXL.

    Each epoch of training, each evaluation and each prediction begins with an empty memory. After an evaluation or a
    prediction the earlier memory is restored, so that training goes on with its own text.
    """

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Begins the training text."""
        self.model.reset_state()

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Begins another text."""
        self._kept = self.model.state
        self.model.reset_state()

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Goes back to the text before."""
        self.model.state = self._kept

    on_predict_begin, on_predict_end = on_test_begin, on_test_end
