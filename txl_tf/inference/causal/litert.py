"""A Transformer-XL for LiteRT (TensorFlow Lite): a file whose one signature, `token`, reads a token of a text.

It has only built-in operations, so the runtime is enough, also on a phone. The memory goes in and out: M slots
for each layer. Shapes: N layers, H heads, M slots, d = d_head, V vocabulary.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf import families, ops
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.inference.saved_model import filled
from txl_tf.layers.attention import Biases
from txl_tf.layers.decoder_layer import DecoderLayer
from txl_tf.layers.masks import visible_keys
from txl_tf.layers.positions import key_distances, sinusoids
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.ops.gradients import without_custom_gradients
from txl_tf.ops.platform import using
from txl_tf.runs.model_dir import TrainedModel
from txl_tf.storage.files import complete_directory, require_new_directory, write_atomically

MODEL, TOKENS = "model.tflite", "tokens.json"


def export_litert(trained: TrainedModel, export_dir: str, **reach: Any) -> int:
    """Writes a trained Transformer-XL for LiteRT, the texts of its tokens, and a README.md; returns the file's bytes.

    Args:
        trained: a TrainedModel that computes in float32; if it is quantized, the file has int8 weights.
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        reach: as for `LanguageModel.load`.

    Raises:
        InputError: export_dir is not empty, the model is not a Transformer-XL with the paper's attention, or it would
            have no memory.
    """
    require_new_directory(export_dir, "export_dir")
    families.require_generation(trained.config, trained.model_dir)
    if not trained.model.attention.cacheable:
        raise InputError(
            f"attn_type={trained.model.config.attn_type} keeps no keys: only transformer_xl can be exported"
        )
    _, evaluated_with = trained.config.for_evaluation(**reach)  # type: ignore[attr-defined]
    if not evaluated_with.mem_len:
        raise InputError("mem_len=0: a file for LiteRT needs a memory, so give --mem_len=1 or more")
    reader = TokenReader(trained.model, evaluated_with)
    converted = reader.converted(int8=trained.quantize == "int8")
    config, vocabulary = trained.model.config, trained.vocabulary
    shape = [config.n_layer, config.n_head, evaluated_with.mem_len, config.d_head]
    readme = filled("litert", shape=shape, vocabulary=config.vocab_size, unit=vocabulary.unit, step=trained.step)
    with complete_directory(export_dir) as folder:
        tf.io.gfile.makedirs(folder)
        for name, content in ((MODEL, converted), (TOKENS, tokens_json(vocabulary)), ("README.md", readme)):
            write_atomically(tf.io.gfile.join(folder, name), content)
    return len(converted)


def tokens_json(vocabulary: Vocabulary) -> str:
    """The tokens for a program that reads and writes text: each token's bytes, as characters of the same numbers."""
    texts = [vocabulary.decode_bytes([token]).decode("latin-1") for token in range(vocabulary.vocab_size)]
    special = {"start_token": vocabulary.start_token, "unknown": vocabulary.special.unknown}
    return json.dumps({"unit": vocabulary.unit, **special, "tokens": texts}) + "\n"


class TokenReader:
    """Reads a token with the weights of a model in float32. It sees the M slots and itself, as in `Generator`."""

    def __init__(self, model: TransformerXL, reach: Reach):
        self.model, self.reach = model, reach
        encoding = sinusoids(key_distances(reach.mem_len + 1, reach.clamp_len), model.config.d_model)
        with using("plain"):
            layers = model.decoder_layers
            self.positions = [np.asarray(layer.attention.project_positions(encoding)) for layer in layers]

    def token(self, tokens: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature.

        Args:
            tokens: int32 [1, 1].
            keys, values: float32 [N, H, M, d], oldest first; before the first token any numbers will do.
            length: int32 [1], the number of tokens read.

        Returns:
            log_probs float32 [1, V] of the next token; and keys, values and length for it.
        """
        model, m_len = self.model, self.reach.mem_len
        biases = None if model.shared_biases is None else tuple(map(tf.convert_to_tensor, model.shared_biases))
        filled_slots = tf.minimum(length, m_len)
        seen = filled_slots if self.reach.mem_init == "empty" else tf.fill([1], m_len)
        mask = visible_keys(1, m_len, self.reach.window, seen)
        holds_token = (tf.range(m_len) >= m_len - filled_slots)[None, None, :, None]
        hidden = model.embedding(tokens)
        rings: tuple[list[tf.Tensor], list[tf.Tensor]] = ([], [])
        for i, layer in enumerate(model.decoder_layers):
            zeros = layer.project_zero_memory()
            memory = [
                tf.where(holds_token, kept[i][None], zero) for kept, zero in zip((keys, values), zeros, strict=True)
            ]
            hidden, *new = _read(layer, hidden, memory, self.positions[i], mask, biases)
            for ring, part in zip(rings, new, strict=True):
                ring.append(part[0, :, 1:])
        new_keys, new_values = (tf.stack(ring) for ring in rings)
        return {
            "log_probs": model.log_prob(hidden[:, 0]),
            "keys": new_keys,
            "values": new_values,
            "length": length + 1,
        }

    def converted(self, int8: bool = False) -> bytes:
        """The content of a .tflite file. With `int8` matrices are kept in int8.

        LiteRT then rounds the other factor to int8, too.
        """
        config = self.model.config
        memory = [config.n_layer, config.n_head, self.reach.mem_len, config.d_head]
        specs = {
            "tokens": tf.TensorSpec([1, 1], tf.int32, "tokens"),
            "keys": tf.TensorSpec(memory, tf.float32, "keys"),
            "values": tf.TensorSpec(memory, tf.float32, "values"),
            "length": tf.TensorSpec([1], tf.int32, "length"),
        }
        with using("plain"), without_custom_gradients(), tempfile.TemporaryDirectory() as folder:
            token = tf.function(self.token, autograph=False).get_concrete_function(**specs)
            root = tf.Module()
            root.weights = [variable.value for variable in self.model.variables]  # as in `Served.save`
            tf.saved_model.save(root, folder, signatures={"token": token})
            converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["token"])
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
            converter.optimizations = [tf.lite.Optimize.DEFAULT] if int8 else []
            return converter.convert()


def _read(
    layer: DecoderLayer,
    hidden: tf.Tensor,
    memory: list[tf.Tensor],
    position: tf.Tensor,
    mask: tf.Tensor,
    biases: Biases | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`DecoderLayer.extend` for hidden [1, 1, D], and keys and values [1, H, M, d] in order.

    A ring would need an operation that LiteRT does not have.
    """
    kernels, *inner = layer.kernels()
    query, *new = layer.attention.project(
        layer.attention_norm(hidden) if layer.config.pre_lnorm else hidden, None, kernels
    )
    keys, values = (tf.concat(parts, axis=2) for parts in zip(memory, new, strict=True))
    scores = layer.attention.scores(query, keys, position, biases)
    hidden += layer.attention.combine(ops.attend(scores, values, mask), kernels)
    if layer.config.pre_lnorm:
        return hidden + layer.feed_forward(layer.feed_forward_norm(hidden), kernels=inner), keys, values
    hidden = layer.attention_norm(hidden)
    return layer.feed_forward_norm(hidden + layer.feed_forward(hidden, kernels=inner)), keys, values
