"""A trained model, for use from Python.

Examples:
    >>> lm = LanguageModel.load("runs/demo")
    >>> lm.generate("def main(", max_tokens=200, temperature=0.8)
    >>> lm.score("import os\\n").total
"""

from __future__ import annotations

import codecs
import functools
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError
from txl_tf.families import require_generation
from txl_tf.inference.causal.beam import BeamSearch
from txl_tf.inference.causal.draw_token import Choice, Processor
from txl_tf.inference.generation.generator import CHUNK, Generator
from txl_tf.inference.one_or_all import one_or_all
from txl_tf.inference.repeats import repeats
from txl_tf.models.transformer_xl.cached import CachedDecoder
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.progress import Progress
from txl_tf.runs.model_dir import TrainedModel, load_trained
from txl_tf.settings.groups import Range
from txl_tf.storage.surrogates import whole

STREAM_TOKENS = 16  # at most this many tokens in one piece of streamed text


class Score(typing.NamedTuple):
    """How likely a text is: its token ids [n], log-probabilities [n] in nats, and their sum."""

    ids: np.ndarray
    log_probs: np.ndarray
    total: float


class Hypothesis(typing.NamedTuple):
    """A continuation that beam search found: its text, token ids [n], and log-probability in nats.

    If a stop string ended it, the log-probability includes that string; text and ids do not.
    """

    text: str
    ids: np.ndarray
    total: float


class LanguageModel:
    """Generates and scores text. Steps are compiled once for each number of texts.

    Args:
        reach: a Reach; None: the model's own. See `load` for reading without same_length.
        jit_compile, int8: as for `Generator`.

    Attributes:
        decoder: as for `Generator`.
        note: a remark about its texts for the user; "": none.
    """

    decoder = CachedDecoder
    note = ""

    def __init__(
        self,
        model: TransformerXL,
        vocabulary: Vocabulary,
        reach: Reach | None = None,
        jit_compile: bool = True,
        int8: bool = False,
    ):
        self.model = model
        self.vocabulary = vocabulary
        self.generator = Generator(
            model, reach or model.config.reach, jit_compile=jit_compile, int8=int8, decoder=self.decoder
        )
        self._beam_search = functools.cache(functools.partial(BeamSearch, self.generator))

    @classmethod
    def load(
        cls,
        model_dir: str,
        checkpoint: str | None = None,
        *,
        dtype: str | None = None,
        quantize: str | None = None,
        **reach: Any,
    ) -> LanguageModel:
        """The model of a directory that training wrote, with the reach of its evaluation.

        Args:
            model_dir, checkpoint, dtype, quantize: as for `load_trained`.
            reach: mem_len, clamp_len, same_length, mem_init to use instead. With same_length every token sees the same
                number of keys. Without it texts are read in segments, as in training. `score` reads segments of
                `generator.segment` tokens; the last one may be shorter. `generate`, `stream` and `search` read whole
                segments of the prompt without its last token, and the rest token by token.

        Raises:
            InputError: there is no trained model, or the model is of a kind that does not generate text.
        """
        trained = load_trained(model_dir, checkpoint=checkpoint, dtype=dtype, quantize=quantize)
        require_generation(trained.config, model_dir)
        return cls.of(trained, **reach)

    @classmethod
    def of(cls, trained: TrainedModel, jit_compile: bool | None = None, **reach: Any) -> LanguageModel:
        """The LanguageModel of a TrainedModel. jit_compile None: compiled; `reach` as for `load`."""
        _, evaluated_with = trained.config.for_evaluation(**reach)  # type: ignore[attr-defined]
        int8 = trained.quantize == "int8"
        return cls(trained.model, trained.vocabulary, evaluated_with, jit_compile is not False, int8)

    @one_or_all
    def generate(
        self,
        prompts: list[str],
        max_tokens: int = 200,
        *,
        seed: int | Sequence[int] = 0,
        stop: Sequence[str] = (),
        logits_processor: Processor | None = None,
        **sampling: float,
    ) -> list[str]:
        """Continues one prompt or several at once: str or a list. prompt + continuation is the whole text.

        Args:
            prompts: str, or a list of them; "" starts from the vocabulary's start token.
            max_tokens: how many tokens to generate for each prompt.
            seed: int, or a list with one for each prompt. An int is every prompt's seed, but equal prompts have seed,
                seed + 1, seed + 2, .., so that their texts differ. A continuation depends only on its seed, its prompt
                and the settings.
            stop: strings; a continuation ends before the first of them.
            logits_processor: a Processor, f(log_prob, texts), which changes log-probabilities before the settings do.
                It is compiled at its first use.
            sampling: temperature and the other settings by name, as `sampling_settings.SETTINGS` describes them.

        Raises:
            InputError: settings out of range.
        """
        if not prompts:
            return []
        seeds = np.asarray(seed, np.int64)
        if not seeds.ndim:
            seeds = seeds + np.array(repeats(prompts))
        choice = _choice(max_tokens, seeds, len(prompts), stop, sampling, logits_processor)
        ids, lengths = self._pad([self._encode_prompt(text) for text in prompts])
        made = self.generator.generate(ids, lengths, tf.constant(max_tokens), choice, logits_processor)
        decoded = [self.vocabulary.decode(row, after=text) for row, text in zip(made.numpy(), prompts, strict=True)]
        return ["".join(_until_stop([text], stop)) for text in decoded]

    @one_or_all
    def search(
        self,
        prompts: list[str],
        max_tokens: int = 200,
        *,
        beam_size: int = 4,
        length_penalty: float = 0.0,
        stop: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> list[list[Hypothesis]]:
        """Looks for the most likely continuations of one prompt, or of each of several, by beam search.

        Args:
            prompts, max_tokens: as for `generate`.
            beam_size: hypotheses that are kept at a time; 1 always takes the most likely token.
            length_penalty: above 0 favours longer continuations if stop strings end some of them: see `BeamSearch`.
            stop: strings of one token each, such as a newline; a continuation ends before the first of them.
            progress: called now and then with (steps done, all steps).

        Returns:
            list of at most beam_size `Hypothesis`, the best first; or a list of such lists.

        Raises:
            InputError: settings out of range, or a stop string that is not one token.
        """
        _check_request(max_tokens, stop)
        Range(at_least=0).check(float(length_penalty), f"length_penalty={length_penalty}")
        ends = [self.vocabulary.encode(string) for string in stop]
        for string, ids in zip(stop, ends, strict=True):
            if len(ids) != 1:
                raise InputError(f"stop string {string!r} is {len(ids)} tokens: beam search can only stop at one")
        search = self._beam_search(beam_size)
        if not prompts:
            return []
        ids, lengths = self._pad([self._encode_prompt(text) for text in prompts])
        last = np.ravel(ends).astype(np.int32)
        rows, totals = search.search(ids, lengths, max_tokens, last, float(length_penalty), progress)
        return [
            [
                Hypothesis(self.vocabulary.decode(ids[ids >= 0], after=text), ids[ids >= 0], float(total))
                for ids, total in zip(hypotheses, scores, strict=True)
                if np.isfinite(total)
            ]
            for text, hypotheses, scores in zip(prompts, rows.numpy(), totals.numpy(), strict=True)
        ]

    def stream(
        self,
        prompt: str,
        max_tokens: int = 200,
        *,
        seed: int = 0,
        stop: Sequence[str] = (),
        progress: Progress | None = None,
        logits_processor: Processor | None = None,
        **sampling: float,
    ) -> Iterator[str]:
        """Yields the continuation of a prompt piece by piece while it is generated; arguments as for `generate`.

        `progress` is called after each piece with (tokens generated, all tokens).
        """
        choice = _choice(max_tokens, seed, 1, stop, sampling, logits_processor)
        return _until_stop(self._stream(prompt, max_tokens, choice, progress, logits_processor), stop)

    def _stream(
        self, prompt: str, max_tokens: int, choice: Choice, progress: Progress | None, processor: Processor | None
    ) -> Iterator[str]:
        ids, decode = self._encode_prompt(prompt), self.vocabulary.decoder(prompt)
        segments = (len(ids) - 1) // self.generator.segment
        whole = segments * self.generator.segment
        draft = self.generator.begin(1)
        if segments:  # else tracing their reader would cost time for nothing
            draft = self.generator.read_on(draft, tf.constant(ids[None, :whole]), tf.constant([segments]))
        if processor:
            draft = self.generator.for_processor(draft, *self._pad([ids]), tf.constant(max_tokens))
        rest = ids[whole:]  # at least one token, at most a segment
        skip = len(rest) - 1  # the tokens chosen at steps inside the prompt are not used
        text = codecs.getincrementaldecoder("utf-8")("replace")
        burst, wanted = 1, max_tokens
        while max_tokens > 0:
            given = np.full([1, CHUNK], -1, np.int32)
            given[0, : len(rest)] = rest
            n = min(skip + burst, skip + max_tokens, CHUNK)
            made, draft = self.generator.decode(draft, tf.constant(given), tf.constant(n), choice, processor=processor)
            made = made.numpy()[0, skip:n]
            max_tokens, rest, skip, burst = max_tokens - len(made), rest[:0], 0, min(2 * burst, STREAM_TOKENS)
            if progress:
                progress(wanted - max_tokens, wanted)
            if piece := text.decode(decode(made)):
                yield piece
        if piece := text.decode(b"", final=True):
            yield piece

    @one_or_all
    def score(self, texts: list[str]) -> list[Score]:
        """The log-probability of a text, or of each of several texts: a Score or a list of them.

        The first token's probability is conditioned on the vocabulary's start token.
        """
        encoded = [self.vocabulary.encode(text) for text in texts]
        if not encoded:
            return []
        log_probs = self.generator.score(*self._pad(encoded), self.vocabulary.start_token).numpy()
        return [
            Score(ids, row[: len(ids)], float(np.sum(row[: len(ids)], dtype=np.float64)))
            for ids, row in zip(encoded, log_probs, strict=True)
        ]

    def _encode_prompt(self, text: str) -> np.ndarray:
        ids = np.asarray(self.vocabulary.encode(whole(text)), np.int32)
        return ids if len(ids) else np.array([self.vocabulary.start_token], np.int32)

    def _pad(self, rows: Sequence[np.ndarray]) -> tuple[tf.Tensor, tf.Tensor]:
        padded = keras.utils.pad_sequences(rows, padding="post")
        return tf.constant(padded), tf.constant([len(row) for row in rows])


def _choice(
    max_tokens: int,
    seed: int | Sequence[int] | np.ndarray,
    count: int,
    stop: Sequence[str],
    sampling: dict[str, float],
    processor: Processor | None,
) -> Choice:
    """The Choice for `count` texts, from one seed for all or one for each."""
    _check_request(max_tokens, stop)
    if not (processor is None or callable(processor)):
        raise InputError(f"logits_processor={processor!r} must be a function of log-probabilities and texts")
    seeds = np.broadcast_to(np.asarray(seed, np.int64), [count])
    return Choice.of((seeds & 0x7FFFFFFF).astype(np.int32), **sampling)


def _check_request(max_tokens: int, stop: Sequence[str]) -> None:
    Range(at_least=1).check(max_tokens, f"max_tokens={max_tokens}")
    if isinstance(stop, str) or not all(stop):
        raise InputError(f"stop={stop!r} must be a list of strings that are not empty")


def _until_stop(pieces: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """The pieces of a text up to the first stop string; an ending that may begin a stop string is held back."""
    longest = max(map(len, stop), default=1)
    held = ""
    for piece in pieces:
        held += piece
        ends = [place for place in map(held.find, stop) if place >= 0]
        if ends:
            held = held[: min(ends)]
            break
        ready = len(held) - (longest - 1)
        if ready > 0:
            yield held[:ready]
            held = held[ready:]
    if held:
        yield held
