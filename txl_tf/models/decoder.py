"""The base class of both families' models: layers between an embedding and a softmax that is tied to it."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.layers.attention import MemoryAttention
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.embedding import AdaptiveEmbedding
from txl_tf.layers.softmax import AdaptiveSoftmax
from txl_tf.models.given_weights import recomputed
from txl_tf.models.memory import Mems, shift_in
from txl_tf.ops import Cluster
from txl_tf.settings.groups import from_dict

Look = Callable[[int, tf.Tensor], None]
"""A function that is called with each layer's number and attention probabilities [B, H, T, K]."""


class Configured(keras.Model):
    """A model that is made of its settings, `config` of the class `settings`, and saved with them."""

    settings: type

    def __init__(self, config: Any, name: str):
        super().__init__(name=name, dtype=config.dtype)
        self.config = config

    def get_config(self) -> dict[str, Any]:
        """The settings as a dict, and the name."""
        return {"config": dataclasses.asdict(self.config), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Configured:
        """The model of a dict from `get_config`."""
        rest, make = dict(config), typing.cast(Any, cls)  # subclasses take their settings and what else they save
        return make(from_dict(cls.settings, rest.pop("config"), "saved model"), **rest)


class Decoder(Configured):
    """An embedding, layers, and a softmax. Subclasses read segments with them.

    Args:
        layer, embedding: arguments of all layers, and of the embedding, in place of settings of the same name.
        softmax: the same for the softmax; None: there is no softmax.

    Attributes:
        shared_biases: the biases that all layers' attention shares; None: each layer has its own.
    """

    def __init__(self, config: Any, name: str, layer: dict, embedding: dict, softmax: dict | None):
        super().__init__(config, name)

        def settings(*names: str) -> dict[str, Any]:
            there = {name: getattr(config, name) for name in names if hasattr(config, name)}
            return there | {"init_std": config.init_std, "dtype": self.dtype_policy}

        vocabulary = settings(
            "vocab_size", "d_model", "d_embed", "cutoffs", "div_val", "proj_same_dim", "proj_init_std"
        )
        sizes = settings("n_head", "d_head", "d_inner", "activation", "dropout", "dropatt", "layer_norm_epsilon")
        self.embedding = AdaptiveEmbedding(**vocabulary, **embedding, name="embedding")
        self.decoder_layers = [
            DecoderLayer(**sizes | layer, own_biases=config.untie_r, name=f"layer_{i}") for i in range(config.n_layer)
        ]
        self.softmax: Any = None if softmax is None else AdaptiveSoftmax(**vocabulary, **softmax, name="softmax")
        self.build((None, None))

    def build(self, tokens_shape: tuple[int | None, ...]) -> None:
        """Creates all weights; they do not depend on any length or batch size."""
        hidden_shape = (None, None, self.config.d_model)
        self.embedding.build(tokens_shape)
        for layer in self.decoder_layers:
            layer.build(hidden_shape)
        if self.softmax is not None:
            self.softmax.build(hidden_shape)
        self.build_own()
        names = () if self.config.untie_r else self.attention.bias_names
        self.shared_biases = [
            self.add_weight(
                name=name,
                shape=(self.config.n_head, self.config.d_head),
                initializer=keras.initializers.RandomNormal(stddev=self.config.init_std),
            )
            for name in names
        ] or None
        self.built = True

    def build_own(self) -> None:
        """Creates weights that only one family has."""

    @property
    def attention(self) -> MemoryAttention:
        """The first layer's attention, for properties that all layers share, such as positions."""
        return self.decoder_layers[0].attention

    def first_mems(self, batch_size: int | tf.Tensor, m_len: int, masked: bool) -> Mems:
        """The memory of B texts before their first token: M zero vectors; masked: whether they count as empty."""
        slots = tf.zeros([batch_size, m_len, self.config.d_model], self.compute_dtype)
        return Mems((slots,) * self.config.n_layer, tf.fill([batch_size], 0 if masked else m_len))

    def check(self, tokens: tf.Tensor, mems: Mems, m_len: int) -> None:
        """Raises ValueError unless tokens are integers [B, T], T known, and mems are of N layers with M slots."""
        if len(tokens.shape) != 2 or tokens.shape[1] is None or not tokens.dtype.is_integer:
            raise ValueError(f"tokens must be integers [B, T] with T known, got {tokens.dtype.name} {tokens.shape}")
        n_layer, want = self.config.n_layer, tf.TensorShape([tokens.shape[0], m_len, self.config.d_model])
        given = [memory.shape for memory in mems.hidden]
        if len(given) != n_layer or not all(want.is_compatible_with(shape) for shape in given):
            raise ValueError(
                f"mems must be {n_layer} tensors {want} for tokens {tokens.shape} and mem_len={m_len}, got "
                f"{[tuple(shape) for shape in given]}: take them from initial_mems with the same batch size and reach"
            )

    def read_segment(
        self,
        hidden: tf.Tensor,
        mems: Mems,
        *,
        positions: Sequence[Any],
        seeds: Sequence[tf.Tensor | None],
        training: bool,
        remembered: int | tf.Tensor | None = None,
        look: Look | None = None,
        **inputs: Any,
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """The last layer's output [B, T, D] for an embedded segment [B, T, D] with memory, and N new states.

        Args:
            positions, seeds: for each layer, the `positions` of its attention, and its seed as for `dropout`.
            remembered: as for `shift_in`.
            look: called with every layer's attention probabilities.
            inputs: further arguments for all layers.
        """
        new_states = []
        for i, (layer, memory) in enumerate(zip(self.decoder_layers, mems.hidden, strict=True)):
            new_states.append(shift_in(memory, hidden, remembered))
            own = {"positions": positions[i], "seed": seeds[i], "biases": self.shared_biases, "training": training}
            if look is not None:
                own["look"] = functools.partial(look, i)
            hidden = self._run(layer, hidden, memory, **own, **inputs)
        return hidden, tuple(new_states)

    def _run(self, layer: DecoderLayer, hidden: tf.Tensor, mems: tf.Tensor, **inputs: Any) -> tf.Tensor:
        """The layer's output; with `remat` training keeps only its input, and computes the rest again."""
        if self.config.remat and inputs["training"]:
            return recomputed(lambda hidden: layer(hidden, mems, **inputs), layer, hidden)
        return layer(hidden, mems, **inputs)

    def nll(self, hidden: tf.Tensor, targets: tf.Tensor, clusters: list[Cluster] | None = None) -> tf.Tensor:
        """Negative log-likelihood of targets [B, T] given hidden [B, T, D]: float32 [B, T], in nats.

        A target of -1 means no target: the result is 0, without gradient. clusters: as for `AdaptiveSoftmax.nll`.
        """
        if not tf.TensorShape(hidden.shape[:-1]).is_compatible_with(targets.shape):
            raise ValueError(f"each of hidden's {hidden.shape[:-1]} states needs a target, got targets {targets.shape}")
        return self._checked_softmax().nll(hidden, targets, self.embedding, clusters)

    def log_prob(self, hidden: tf.Tensor, clusters: list[Cluster] | None = None) -> tf.Tensor:
        """Log-probabilities of all V tokens: float32 [.., V]. clusters: as for `AdaptiveSoftmax.log_prob`."""
        return self._checked_softmax().log_prob(hidden, self.embedding, clusters)

    def _checked_softmax(self) -> AdaptiveSoftmax:
        if self.softmax is None:
            raise ValueError(f"{self.name} has no softmax: it is the body of a model with another head")
        return self.softmax
