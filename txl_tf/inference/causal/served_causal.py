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

For serving on a TPU, fix the shapes: a TPU compiles once for each batch size, `max_tokens` and text length. Export the
signatures with the served sizes in place of None (their TensorSpecs are in `ServedModel.signatures`), and with
jit_compile=False, because the TPU's server compiles the graph itself. Strings stay on the host, so clients must call
`encode`, `step` and `write` instead of `generate`. None of this has been run on a TPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.causal.draw_token import Choice, value_specs
from txl_tf.inference.causal.generator import Draft, Generator, mark
from txl_tf.inference.causal.score_tokens import score_tokens
from txl_tf.inference.saved_model import signatures_of
from txl_tf.models.transformer_xl.cached import Cache
from txl_tf.storage.files import complete_directory, require_new_directory, write_atomically

README = """\
# A Transformer-XL, exported by txl_tf

    import tensorflow as tf
    import tensorflow_text  # only if loading says that an op is missing: subword vocabularies need it

    model = tf.saved_model.load("{name}").signatures
    model["generate"](
        prompts=tf.constant(["Once upon"]), max_tokens=tf.constant(200), seeds=tf.constant([1]),
        stop=tf.constant([], tf.string), {values})["texts"]
    model["score"](texts=tf.constant(["Once upon a time"]))["total"]

    # a session: the cache goes in and comes out
    cache = model["initial_cache"](batch_size=tf.constant(1))
    out = model["step"](tokens=tf.constant([[3, 1, 4]]), **cache)
    cache = {{key: out[key] for key in cache}}

Sizes: {sizes}.

| signature | in | out |
|---|---|---|
| generate | prompts: strings [B]; "" starts from the start token. max_tokens: int32, for each. seeds: int32 [B]; what \
is made depends on a row's own seed and prompt alone. stop: strings [n], n may be 0; texts end before the first of \
them. The settings of sampling. | texts: strings [B], the continuations. tokens: int32 [B, max_tokens], all \
that were made. |
| score | texts: strings [B] | tokens: int32 [B, n], -1 past a text's end. log_probs: float [B, n] in nats, the \
first token's after the start token, 0 past the end. lengths: int32 [B]. total: float [B], sums. |
| encode | texts: strings [B] | tokens: int32 [B, n], -1 past a text's end. lengths: int32 [B]. start_token: \
int32, what to read first where there is nothing else. |
| decode | tokens: int32 [B, n]. after: strings [B], the text before each, such as a prompt; "": none | texts: \
strings [B]: `after` and the text, joined, read right |
| initial_cache | batch_size: int32 | the cache of texts of which nothing was read |
| step | tokens: int32 [B, T], any T; the cache | log_probs: float [B, T, V], after each token; the new cache |
| read | tokens: int32 [B, {segment}], one segment. targets: int32 [B, {segment}], the token after each, \
or -1 where none is given; the cache | log_probs: float [B, {segment}], of the targets, 0 where none is given; the new \
cache. Without targets it only reads, which is faster than `step`. |
| write | tokens: int32 [B, T], T at least 1, what is to be read; the cache; max_tokens, seeds and the settings of \
sampling: as for generate | made: int32 [B, max_tokens]; the new cache. The last token made was not \
read yet: it comes first in what is read next. |

The settings of sampling, in the order in which they apply; `sampling.json` has the same for programs:

| setting | type | range | default | |
|---|---|---|---|---|
{settings}

A signature needs all its inputs: a SavedModel has no defaults, so pass the default where a setting should change \
nothing. A caller written for a SavedModel with fewer settings must add the new ones.

{reading}

The cache is four tensors by name, in and out: keys and values [B, layers, heads, memory, head size], oldest first; \
length int32 [B], tokens read so far; seen bool [B, V], which tokens the text has, for the repetition penalty.
Rows are independent: stack and split them along axis 0 as sessions come and go.
"""

READING = {
    True: "Every token sees equally much, so a text may be read in pieces of any length: the results are the same.",
    False: "This model was exported without same_length: each of {segment} tokens that are read at once sees the "
    "{memory} before all of them and those among them before it; a single token sees the {memory} before it. A call "
    "reads whole segments of {segment} tokens first (`generate` and `write` leave out at least the last token), then "
    "what is left over one by one (`score`: as one segment). So a text that is read in other pieces has other "
    "probabilities.",
}
"""The README's text about `same_length`."""


class ServedModel(tf.Module):
    """The graph functions that are exported.

    Args:
        generator: a Generator.
        vocabulary: a Vocabulary.
    """

    def __init__(self, generator: Generator, vocabulary: Vocabulary):
        super().__init__(name="served_model")
        self.generator = generator
        self.vocabulary = vocabulary

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The functions by name, as `tf.saved_model.save` takes them."""
        texts, numbers = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32)
        count = tf.TensorSpec([], tf.int32)
        config, decoder = self.generator.model.config, self.generator.decoder
        ring = tf.TensorSpec(
            [None, config.n_layer, config.n_head, decoder.reach.mem_len, config.d_head],
            self.generator.model.compute_dtype,
        )
        cache = {
            "keys": ring,
            "values": ring,
            "length": numbers,
            "seen": tf.TensorSpec([None, config.vocab_size], tf.bool),
        }
        tokens, sampling = (
            tf.TensorSpec([None, None], tf.int32),
            {"max_tokens": count, "seeds": numbers, **value_specs()},
        )
        segment = tf.TensorSpec([None, self.generator.segment], tf.int32)
        inputs: dict[Callable[..., Any], dict[str, tf.TensorSpec]] = {
            self.generate: {"prompts": texts, "stop": texts, **sampling},
            self.score: {"texts": texts},
            self.encode: {"texts": texts},
            self.decode: {"tokens": tokens, "after": texts},
            self.initial_cache: {"batch_size": count},
            self.step: {"tokens": tokens, **cache},
            self.read: {"tokens": segment, "targets": segment, **cache},
            self.write: {"tokens": tokens, **cache, **sampling},
        }
        return signatures_of(inputs)

    def generate(
        self, prompts: tf.Tensor, max_tokens: tf.Tensor, seeds: tf.Tensor, stop: tf.Tensor, **sampling: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `generate`; see README. sampling: the settings of sampling."""
        choice = Choice(seeds, sampling)
        with tf.control_dependencies([*_checks(tf.size(prompts), max_tokens, choice), _check_stop(stop)]):
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
        ids = self.vocabulary.encode_tensor(texts)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        tokens = ids.to_tensor(-1)
        log_probs = score_tokens(self.generator, tokens, lengths, self.vocabulary.start_token)
        return {
            "tokens": tokens,
            "log_probs": tf.cast(log_probs, tf.float32),
            "lengths": lengths,
            "total": tf.cast(tf.reduce_sum(tf.cast(log_probs, tf.float64), axis=1), tf.float32),
        }

    def encode(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `encode`; see README."""
        ids = self.vocabulary.encode_tensor(texts)
        return {
            "tokens": ids.to_tensor(-1),
            "lengths": tf.cast(ids.row_lengths(), tf.int32),
            "start_token": tf.constant(self.vocabulary.start_token, tf.int32),
        }

    def decode(self, tokens: tf.Tensor, after: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `decode`; see README."""
        paired = tf.debugging.assert_equal(
            tf.size(after),
            tf.shape(tokens)[0],
            "give after for each row of tokens: the text before it, or an empty one",
        )
        with tf.control_dependencies([self._check_tokens(tokens), paired]):
            return {"texts": self.vocabulary.decode_tensor(tf.identity(tokens), tf.identity(after))}

    def initial_cache(self, batch_size: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature `initial_cache`; see README."""
        draft = self.generator.begin(batch_size)
        return self._pack(draft.cache, draft.seen)

    def step(
        self, tokens: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, length: tf.Tensor, seen: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The signature `step`; see README."""
        with tf.control_dependencies([self._check_tokens(tokens)]):
            log_probs, cache = self.generator.read(tokens, self._unpack(keys, values, length))
            seen = mark(seen, tokens)
        return {"log_probs": log_probs} | self._pack(cache, seen)

    def read(
        self,
        tokens: tf.Tensor,
        targets: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        length: tf.Tensor,
        seen: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The signature `read`; see README."""
        vocab_size = self.generator.model.config.vocab_size
        fits = tf.debugging.assert_less(targets, vocab_size, f"targets must be below {vocab_size}")
        with tf.control_dependencies([self._check_tokens(tokens), fits]):
            hidden, cache = self.generator.read_segment(tokens, self._unpack(keys, values, length))
        log_probs = tf.cond(
            tf.reduce_any(targets >= 0),
            lambda: tf.cast(-self.generator.model.nll(hidden, targets), tf.float32),
            lambda: tf.zeros(tf.shape(targets), tf.float32),
        )
        return {"log_probs": log_probs} | self._pack(cache, mark(seen, tokens))

    def write(
        self,
        tokens: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        length: tf.Tensor,
        seen: tf.Tensor,
        max_tokens: tf.Tensor,
        seeds: tf.Tensor,
        **sampling: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The signature `write`; see README. sampling: the settings of sampling."""
        batch_size, t_len = tf.shape(tokens)[0], tf.shape(tokens)[1]
        choice = Choice(seeds, sampling)
        checks = [*_checks(batch_size, max_tokens, choice), self._check_tokens(tokens)]
        with tf.control_dependencies([*checks, tf.debugging.assert_positive(t_len, "tokens must be at least one")]):
            draft = Draft(self._unpack(keys, values, length), tf.zeros([batch_size], tf.int32), seen)
        made, draft = self.generator.write(draft, tokens, tf.fill([batch_size], t_len), max_tokens, choice)
        return {"made": made} | self._pack(draft.cache, draft.seen)

    def _check_tokens(self, tokens: tf.Tensor) -> tf.Operation:
        vocab_size = self.generator.model.config.vocab_size
        allowed = (tokens >= 0) & (tokens < vocab_size)
        return tf.debugging.assert_equal(allowed, True, f"tokens must be from 0 to {vocab_size - 1}")

    def _pack(self, cache: Cache, seen: tf.Tensor) -> dict[str, tf.Tensor]:
        """A Cache as tensors whose rows are independent: keys and values [B, N, H, M, d], oldest first."""
        slots, m_len = self.generator.decoder.slots, self.generator.decoder.reach.mem_len

        def pack(rings: Sequence[tf.Tensor]) -> tf.Tensor:
            return tf.stack([tf.roll(ring, -cache.start, axis=2)[:, :, slots - m_len :] for ring in rings], axis=1)

        return {"keys": pack(cache.keys), "values": pack(cache.values), "length": cache.length, "seen": seen}

    def _unpack(self, keys: tf.Tensor, values: tf.Tensor, length: tf.Tensor) -> Cache:
        spare = self.generator.decoder.slots - self.generator.decoder.reach.mem_len

        def unpack(rings: tf.Tensor) -> tuple[tf.Tensor, ...]:
            padded = tf.pad(rings, [[0, 0]] * 3 + [[spare, 0], [0, 0]])
            return tuple(tf.unstack(padded, axis=1))

        return Cache(unpack(keys), unpack(values), start=tf.constant(0), length=length)


def export(generator: Generator, vocabulary: Vocabulary, export_dir: str, unit: str) -> None:
    """Writes the SavedModel, a README.md about its signatures, and sampling.json with the settings of sampling.

    Args:
        generator: a Generator.
        vocabulary: its Vocabulary.
        export_dir: directory to write to, local or gs://. It must be empty or not exist.
        unit: the unit of a token, such as "byte", for the README.

    Raises:
        InputError: export_dir is not empty.
    """
    require_new_directory(export_dir, "export_dir")
    served = ServedModel(generator, vocabulary)
    root = tf.Module()
    # Saves only what the functions use. Keras layers would be saved together with their Python configuration.
    root.weights = [variable.value for variable in generator.model.variables]
    root.kept = generator.decoder.kept
    root.vocabulary = vocabulary
    config, reach = generator.model.config, generator.decoder.reach
    sizes = {
        "vocabulary": config.vocab_size,
        "unit": unit,
        "start_token": vocabulary.start_token,
        "layers": config.n_layer,
        "memory": reach.mem_len,
        "same_length": reach.same_length,
        "clamp_len": reach.clamp_len,
        "mem_init": reach.mem_init,
    }
    readme = README.format(
        name=export_dir.rstrip("/").rpartition("/")[2],
        values=", ".join(f"{setting.name}=tf.constant({setting.default})" for setting in sampling_settings.SETTINGS),
        sizes=json.dumps(sizes),
        segment=generator.segment,
        settings="\n".join(
            f"| {setting.name} | {setting.kind.__name__} | {setting.range} | {setting.default} | {setting.help} |"
            for setting in sampling_settings.SETTINGS
        ),
        reading=READING[reach.same_length].format(segment=generator.segment, memory=reach.mem_len),
    )
    with complete_directory(export_dir) as folder:
        tf.saved_model.save(root, folder, signatures=served.signatures())
        for file_name, text in [("README.md", readme), ("sampling.json", sampling_settings.to_json())]:
            write_atomically(tf.io.gfile.join(folder, file_name), text)


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


def _check_stop(stop: tf.Tensor) -> tf.Operation:
    return tf.debugging.assert_equal(tf.strings.length(stop) > 0, True, "stop strings must not be empty")


def _until_stop(texts: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
    """Strings [B], each cut before the first occurrence of any of the strings `stop` [n]."""

    def shorten(i: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        before = tf.strings.split(texts, stop[i], maxsplit=1).to_tensor()[:, 0]
        return i + 1, tf.minimum(ends, tf.strings.length(before))

    ends = tf.strings.length(texts)
    ends = tf.while_loop(lambda i, _: i < tf.size(stop), shorten, (0, ends))[1]
    return tf.strings.substr(texts, tf.zeros_like(ends), ends)
