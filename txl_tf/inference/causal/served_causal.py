"""A SavedModel that plain TensorFlow loads and serves, without this package; the vocabulary is inside the graph.

Signatures (`saved_model_cli show --all --dir=..` lists them with their shapes):

generate       prompts, and how to sample -> texts
score          texts -> the log-probability of every token, and of each text
encode, decode texts -> tokens, and back
initial_cache  batch_size -> the cache before any token is read
step           tokens, cache -> log-probabilities of the next token after each, and the new cache
read           one segment of tokens, cache -> log-probabilities of given next tokens, and the new cache
write          tokens, cache, and how to sample -> more tokens, and the new cache

A session is a cache that the client keeps. Caches can be split and concatenated along axis 0 at any time, so sessions
of different lengths can share a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.causal.draw_token import Choice, value_specs
from txl_tf.inference.generation.generator import Draft, Generator, mark
from txl_tf.inference.saved_model import Served, filled, require_tokens, signatures_of, with_lengths, with_total
from txl_tf.models.transformer_xl.cached import Cache


class ServedCausal(Served):
    """The graph functions that are exported, and sampling.json with the settings of sampling."""

    readme = "causal"

    def __init__(self, generator: Generator, vocabulary: Vocabulary):
        self.generator, self.vocabulary = generator, vocabulary
        self.model = generator.model

    @property
    def kept(self) -> Sequence[Any]:  # type: ignore[override]
        """See `Served`."""
        return self.generator.kept()

    def facts(self) -> dict[str, Any]:
        """See `Served`; `rows`, `how` and `memory` describe what continues a text."""
        config, reach = self.model.config, self.generator.decoder.reach
        sizes = {
            "vocabulary": config.vocab_size,
            "unit": self.vocabulary.unit,
            "start_token": self.vocabulary.start_token,
            "layers": config.n_layer,
            "memory": reach.mem_len,
            "same_length": reach.same_length,
            "clamp_len": reach.clamp_len,
            "mem_init": reach.mem_init,
        }
        settings, segment = sampling_settings.SETTINGS, self.generator.segment
        reading = "causal_same_length" if reach.same_length else "causal_segments"
        table = "\n".join(
            f"| {setting.name} | {setting.kind.__name__} | {setting.range} | {setting.default} | {setting.help} |"
            for setting in settings
        )
        how = filled(reading, segment=segment, memory=reach.mem_len).rstrip()
        return {
            "values": ", ".join(f"{setting.name}=tf.constant({setting.default})" for setting in settings),
            "sizes": json.dumps(sizes),
            "memory": reach.mem_len,
            "rows": filled("continuing_rows", segment=segment).rstrip(),
            "how": filled("continuing", settings=table, reading=how).rstrip(),
        }

    def files(self) -> dict[str, str]:
        """See `Served`."""
        return {"sampling.json": sampling_settings.to_json()}

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """See `Served`."""
        texts, tokens = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
        inputs: dict[Callable[..., Any], dict[str, tf.TensorSpec]] = {
            self.score: {"texts": texts},
            self.encode: {"texts": texts},
            self.decode: {"tokens": tokens, "after": texts},
        }
        return signatures_of(inputs | self.continuing())

    def continuing(self) -> dict[Callable[..., Any], dict[str, tf.TensorSpec]]:
        """The functions that continue texts, with the specs of their arguments."""
        texts, numbers = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32)
        count, config = tf.TensorSpec([], tf.int32), self.model.config
        slots = [None, config.n_layer, config.n_head, self.generator.decoder.reach.mem_len, config.d_head]
        ring, seen = tf.TensorSpec(slots, self.model.compute_dtype), tf.TensorSpec([None, config.vocab_size], tf.bool)
        cache = {"keys": ring, "values": ring, "length": numbers, "seen": seen}
        sampling = {"max_tokens": count, "seeds": numbers, **value_specs()}
        tokens, segment = (tf.TensorSpec([None, n], tf.int32) for n in (None, self.generator.segment))
        return {
            self.generate: {"prompts": texts, "stop": texts, **sampling},
            self.initial_cache: {"batch_size": count},
            self.step: {"tokens": tokens, **cache},
            self.read: {"tokens": segment, "targets": segment, **cache},
            self.write: {"tokens": tokens, **cache, **sampling},
        }

    def generate(
        self, prompts: tf.Tensor, max_tokens: tf.Tensor, seeds: tf.Tensor, stop: tf.Tensor, **sampling: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `generate`; see README. sampling: the settings of sampling."""
        choice = Choice(seeds, sampling)
        full = tf.debugging.assert_equal(tf.strings.length(stop) > 0, True, "stop strings must not be empty")
        with tf.control_dependencies([*_checks(tf.size(prompts), max_tokens, choice), full]):
            ids = self.vocabulary.encode_tensor(prompts)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        padded = ids.to_tensor(self.vocabulary.start_token, shape=[None, None])
        padded = tf.cond(
            tf.size(padded) > 0, lambda: padded, lambda: tf.fill([tf.size(lengths), 1], self.vocabulary.start_token)
        )
        tokens = self.generator.generate(padded, tf.maximum(lengths, 1), max_tokens, choice)
        return {"texts": _until_stop(self.vocabulary.decode_tensor(tokens, prompts), stop), "tokens": tokens}

    def score(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `score`; see README."""
        rows = with_lengths(self.vocabulary.encode_tensor(texts))
        start = self.vocabulary.start_token
        return rows | with_total(self.generator.score(rows["tokens"], rows["lengths"], start))

    def encode(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `encode`; see README."""
        return self.tokenized(texts)

    def decode(self, tokens: tf.Tensor, after: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `decode`; see README."""
        paired = tf.debugging.assert_equal(
            tf.size(after),
            tf.shape(tokens)[0],
            "give after for each row of tokens: the text before it, or an empty one",
        )
        with tf.control_dependencies([require_tokens(tokens, self.model.config.vocab_size), paired]):
            return {"texts": self.vocabulary.decode_tensor(tf.identity(tokens), tf.identity(after))}

    def initial_cache(self, batch_size: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `initial_cache`; see README."""
        draft = self.generator.begin(batch_size)
        return self._pack(draft.cache, draft.seen)

    def step(self, tokens: tf.Tensor, **state: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `step`; see README. state: the cache's tensors."""
        with tf.control_dependencies([require_tokens(tokens, self.model.config.vocab_size)]):
            log_probs, cache = self.generator.read(tokens, self._unpack(state))
            seen = mark(state["seen"], tokens)
        return {"log_probs": log_probs} | self._pack(cache, seen)

    def read(self, tokens: tf.Tensor, targets: tf.Tensor, **state: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `read`; see README. state: the cache's tensors."""
        vocab_size = self.model.config.vocab_size
        fits = tf.debugging.assert_less(targets, vocab_size, f"targets must be below {vocab_size}")
        with tf.control_dependencies([require_tokens(tokens, vocab_size), fits]):
            hidden, cache = self.generator.read_segment(tokens, self._unpack(state))
        log_probs = tf.cond(
            tf.reduce_any(targets >= 0),
            lambda: tf.cast(-self.model.nll(hidden, targets), tf.float32),
            lambda: tf.zeros(tf.shape(targets), tf.float32),
        )
        return {"log_probs": log_probs} | self._pack(cache, mark(state["seen"], tokens))

    def write(
        self, tokens: tf.Tensor, max_tokens: tf.Tensor, seeds: tf.Tensor, **given: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `write`; see README. given: the cache's tensors and the settings of sampling."""
        batch_size, t_len = tf.shape(tokens)[0], tf.shape(tokens)[1]
        state = {name: given.pop(name) for name in ("keys", "values", "length", "seen")}
        choice = Choice(seeds, given)
        checks = [*_checks(batch_size, max_tokens, choice), require_tokens(tokens, self.model.config.vocab_size)]
        with tf.control_dependencies([*checks, tf.debugging.assert_positive(t_len, "tokens must be at least one")]):
            draft = Draft(self._unpack(state), tf.zeros([batch_size], tf.int32), state["seen"])
        made, draft = self.generator.write(draft, tokens, tf.fill([batch_size], t_len), max_tokens, choice)
        return {"made": made} | self._pack(draft.cache, draft.seen)

    def _pack(self, cache: Cache, seen: tf.Tensor) -> dict[str, tf.Tensor]:
        """A Cache as tensors whose rows are independent: keys and values [B, N, H, M, d], oldest first."""
        slots, m_len = self.generator.decoder.slots, self.generator.decoder.reach.mem_len

        def pack(rings: Sequence[tf.Tensor]) -> tf.Tensor:
            return tf.stack([tf.roll(ring, -cache.start, axis=2)[:, :, slots - m_len :] for ring in rings], axis=1)

        return {"keys": pack(cache.keys), "values": pack(cache.values), "length": cache.length, "seen": seen}

    def _unpack(self, state: dict[str, tf.Tensor]) -> Cache:
        """The Cache of such tensors."""
        spare = self.generator.decoder.slots - self.generator.decoder.reach.mem_len

        def unpack(rings: tf.Tensor) -> tuple[tf.Tensor, ...]:
            padded = tf.pad(rings, [[0, 0]] * 3 + [[spare, 0], [0, 0]])
            return tuple(tf.unstack(padded, axis=1))

        return Cache(unpack(state["keys"]), unpack(state["values"]), start=tf.constant(0), length=state["length"])


def _checks(batch_size: tf.Tensor, max_tokens: tf.Tensor, choice: Choice) -> list[tf.Operation]:
    """Assertions; a client of the SavedModel sees their messages."""
    return [
        tf.debugging.assert_greater(max_tokens, 0, "max_tokens must be at least 1"),
        *(
            tf.debugging.assert_equal(
                setting.allows(choice.values[setting.name]), True, f"{setting.name} must be {setting.range}"
            )
            for setting in sampling_settings.SETTINGS
        ),
        tf.debugging.assert_equal(tf.size(choice.seeds), batch_size, "give one seed for each text"),
    ]


def _until_stop(texts: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
    """Strings [B], each cut before the first occurrence of any of the strings `stop` [n]."""

    def shorten(i: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        before = tf.strings.split(texts, stop[i], maxsplit=1).to_tensor()[:, 0]
        return i + 1, tf.minimum(ends, tf.strings.length(before))

    ends = tf.strings.length(texts)
    ends = tf.while_loop(lambda i, _: i < tf.size(stop), shorten, (0, ends))[1]
    return tf.strings.substr(texts, tf.zeros_like(ends), ends)
