"""A trained model to use from Python.

>>> lm = LanguageModel.load("runs/demo")
>>> lm.generate("def main(", max_tokens=200, temperature=0.8)
>>> lm.score("import os\\n").total
"""

import codecs
import typing

import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.inference.generate import CHUNK, Generator
from txl_tf.inference.sampling import Sampling
from txl_tf.inference.score import score_tokens
from txl_tf.model_dir import load_trained

STREAM_TOKENS = 16  # at most so many between two pieces of streamed text


class Score(typing.NamedTuple):
    """How likely a text is: its token ids [n], log-probabilities [n] in nats, and their sum."""

    ids: np.ndarray
    log_probs: np.ndarray
    total: float


class LanguageModel:
    """Generates and scores text.

    Args:
        model: a TransformerXL.
        vocabulary: its Vocabulary.
        reach: a Reach; None: the model's.
    """

    def __init__(self, model, vocabulary, reach=None):
        self.model = model
        self.vocabulary = vocabulary
        self.generator = Generator(model, reach or model.config.reach)
        tokens = tf.TensorSpec([None, None], tf.int32)
        self._score = tf.function(
            lambda ids, lengths: score_tokens(self.generator, ids, lengths, vocabulary.start_token),
            autograph=False,
            input_signature=[tokens, tf.TensorSpec([None], tf.int32)],
        )

    @classmethod
    def load(cls, model_dir, **reach):
        """The model of a directory that training wrote, with the reach it is evaluated with.

        Args:
            model_dir: local or gs://.
            reach: mem_len, clamp_len, same_length, mem_init to use instead.

        Raises:
            InputError: there is no trained model.
        """
        trained = load_trained(model_dir)
        _, reach = trained.config.for_evaluation(**reach)
        return cls(trained.model, trained.vocabulary, reach)

    def generate(self, prompts, max_tokens=200, *, temperature=1.0, top_k=0, top_p=1.0, seed=0):
        """Continues one prompt or several at once.

        Args:
            prompts: str, or a list of them; "" starts from the vocabulary's start token.
            max_tokens: how many tokens to make for each.
            temperature, top_k, top_p: see `Sampling`.
            seed: int, or a list with one for each prompt: what is made depends on it and on the prompt alone.

        Returns:
            The continuation, str, or a list of them.

        Raises:
            InputError: settings out of range.
        """
        single = isinstance(prompts, str)
        texts = [prompts] if single else list(prompts)
        if not texts:
            return []
        sampling = _checked(max_tokens, temperature, top_k, top_p)
        ids, lengths = self._pad([self._encode_prompt(text) for text in texts])
        made = self.generator.generate(
            ids, lengths, tf.constant(max_tokens), _seeds(seed, len(texts)), *map(tf.constant, sampling)
        )
        texts = [self.vocabulary.decode(row) for row in made.numpy()]
        return texts[0] if single else texts

    def stream(self, prompt, max_tokens=200, *, temperature=1.0, top_k=0, top_p=1.0, seed=0):
        """Yields the continuation of a prompt piece by piece as it is made; arguments as for `generate`."""
        sampling = [tf.constant(value) for value in _checked(max_tokens, temperature, top_k, top_p)]
        seeds = _seeds(seed, 1)
        return self._stream(self._encode_prompt(prompt), max_tokens, seeds, sampling)

    def _stream(self, ids, max_tokens, seeds, sampling):
        whole = (len(ids) - 1) // self.generator.segment * self.generator.segment
        cache = self.generator.read_segments(tf.constant(ids[None, :whole]), self.generator.initial_cache(1))
        rest = ids[whole:]  # one token at least, at most a segment
        last, skip = tf.constant([0]), len(rest) - 1  # steps inside the prompt choose nothing of use
        text = codecs.getincrementaldecoder("utf-8")("replace")
        burst = 1
        while max_tokens > 0:
            given = np.full([1, CHUNK], -1, np.int32)
            given[0, : len(rest)] = rest[:CHUNK]
            n = min(skip + burst, skip + max_tokens, CHUNK)
            made, last, cache = self.generator.decode(cache, last, tf.constant(given), tf.constant(n), seeds, *sampling)
            made = made.numpy()[0, skip:n]
            max_tokens, rest, skip, burst = max_tokens - len(made), rest[:0], 0, min(2 * burst, STREAM_TOKENS)
            if piece := text.decode(self.vocabulary.decode_bytes(made)):
                yield piece
        if piece := text.decode(b"", final=True):
            yield piece

    def score(self, texts):
        """How likely a text is, or each of several: a Score or a list of them.

        The first token's probability is that after the vocabulary's start token.
        """
        single = isinstance(texts, str)
        encoded = [self.vocabulary.encode(text) for text in ([texts] if single else texts)]
        if not encoded:
            return []
        log_probs = self._score(*self._pad(encoded)).numpy()
        scores = [
            Score(ids, row[: len(ids)], float(np.sum(row[: len(ids)], dtype=np.float64)))
            for ids, row in zip(encoded, log_probs, strict=True)
        ]
        return scores[0] if single else scores

    def _encode_prompt(self, text):
        ids = np.asarray(self.vocabulary.encode(text), np.int32)
        return ids if len(ids) else np.array([self.vocabulary.start_token], np.int32)

    def _pad(self, rows):
        lengths = np.array([len(row) for row in rows], np.int32)
        padded = np.zeros([len(rows), lengths.max()], np.int32)
        for row, ids in zip(padded, rows, strict=True):
            row[: len(ids)] = ids
        return tf.constant(padded), tf.constant(lengths)


def _checked(max_tokens, temperature, top_k, top_p):
    if max_tokens < 1:
        raise InputError(f"max_tokens={max_tokens} must be at least 1")
    sampling = Sampling(temperature, top_k, top_p)
    return float(sampling.temperature), int(sampling.top_k), float(sampling.top_p)


def _seeds(seed, count):
    """int32 [count] from one int for all or one for each."""
    seeds = np.broadcast_to(np.asarray(seed, np.int64), [count])
    return tf.constant((seeds & 0x7FFFFFFF).astype(np.int32))
