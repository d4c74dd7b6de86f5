"""A Transformer-XL as a model of EleutherAI's lm-evaluation-harness, from a model_dir or a SavedModel.

Examples:
    >>> import lm_eval, txl_tf
    >>> from txl_tf.harness import HarnessModel
    >>> lm_eval.simple_evaluate(HarnessModel.of(txl_tf.load("runs/wt103")), tasks=["lambada_openai", "wikitext"])

A text is read as `score` reads it: the vocabulary's start token, then segments of S tokens, each with the memory of
those before it. So a text of any length is read whole, and nothing is read in windows. This module imports lm_eval.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.models.utils import normalize_gen_kwargs

from txl_tf.api import BATCH, Model
from txl_tf.errors import InputError
from txl_tf.families import require_generation
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.part_scorer import Part, PartScorer, batches
from txl_tf.inference.causal.served_causal import ServedCausal
from txl_tf.inference.repeats import repeats
from txl_tf.progress import progress_bar
from txl_tf.storage.files import read_json
from txl_tf.storage.literal_paths import load_saved_model
from txl_tf.storage.surrogates import whole

FIRST_TOKENS = 32
"""A continuation begins with this many tokens. Without a stop string it is written again, four times as long."""


class HarnessModel(LM):
    """Answers the harness's requests with the functions of a Transformer-XL's SavedModel.

    Args:
        functions: as `ServedCausal` has them, by name.
        segment: S, the tokens that `read` takes.
        settings: the defaults of all settings of sampling.
        about: what identifies the model, for the harness's file of results; "pretrained" is its place.
        batch_size: texts at once; does not change the results.

    Attributes:
        scored, unknown: how many tokens were scored, and how many of them the vocabulary does not know.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        segment: int,
        settings: Mapping[str, float],
        about: Mapping[str, Any],
        batch_size: int = BATCH,
    ):
        super().__init__()
        self._generate, self._settings = functions["generate"], dict(settings)
        self._scorer = PartScorer(functions, segment, batch_size)
        self.about, self.batch_size = dict(about), batch_size
        self.scored = self.unknown = 0

    @classmethod
    def of(cls, model: Model, batch_size: int = BATCH, jit_compile: bool | None = None) -> HarnessModel:
        """The Transformer-XL that `txl_tf.load` gives, compiled unless told otherwise; InputError for another model."""
        trained = model.trained
        require_generation(model.config, trained.model_dir)
        tool = LanguageModel.of(trained, jit_compile)
        served = ServedCausal(tool.generator, tool.vocabulary)
        functions = {name: getattr(served, name) for name in ("encode", "initial_cache", "read", "step", "generate")}
        defaults = {setting.name: setting.default for setting in sampling_settings.SETTINGS}
        about = {"pretrained": trained.model_dir, "step": trained.step, "weights": trained.weights}
        about |= {"dtype": trained.model.compute_dtype, "quantize": trained.quantize}
        about |= {"mem_len": tool.generator.decoder.reach.mem_len}
        return cls(functions, tool.generator.segment, defaults, about, batch_size)

    @classmethod
    def of_export(cls, export_dir: str, batch_size: int = BATCH) -> HarnessModel:
        """The SavedModel that scripts/export_savedmodel.py wrote; InputError if it is of another model."""
        root = load_saved_model(export_dir)
        functions = root.signatures
        if "fill" in functions or "generate" not in functions:
            kind = "an XLNet" if "fill" in functions else "a model"
            raise InputError(f"{export_dir} holds {kind} that is not trained to continue texts: give a Transformer-XL")
        if "read" not in functions:
            raise InputError(f"{export_dir} lacks the signature `read`: export the model again")
        segment = functions["read"].structured_input_signature[1]["tokens"].shape[1]
        settings = read_json(tf.io.gfile.join(export_dir, "sampling.json"), "export the model again")
        defaults = {setting["name"]: setting["default"] for setting in settings}
        model = cls(functions, segment, defaults, {"pretrained": export_dir}, batch_size)
        model._root = root  # its variables live as long as it does
        return model

    def __repr__(self) -> str:
        return f"txl_tf {self.about['pretrained']}"

    def get_model_info(self) -> dict[str, Any]:
        """The values that the harness writes beside its results."""
        counted = {} if self._scorer.unknown < 0 else {"unknown_tokens": self.unknown}
        return self.about | {"scored_tokens": self.scored} | counted

    @property
    def note(self) -> str:
        """A line about scored tokens that the vocabulary does not know; "": there are none."""
        if not self.unknown:
            return ""
        share = f"{self.unknown:,} of {self.scored:,} scored tokens ({self.unknown / self.scored:.1%})"
        return f"{share} are unknown words or pieces: each counts as <unk>, which flatters the perplexity"

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """For each (context, continuation) the continuation's log-probability in nats, and whether it is the likeliest.

        As in the harness, spaces at the end of a context belong to the continuation. If a token holds letters of both,
        it counts as the continuation's. An empty context is the start token alone.
        """
        pairs = [_split(*request.args) for request in requests]
        contexts = self._scorer.encode(context for context, _ in pairs)
        texts = self._scorer.encode(map("".join, pairs))
        readings = [self._reading(text, _common(*both)) for *both, text in zip(contexts, texts, texts, strict=True)]
        scores = ((i, (total, greedy)) for i, total, greedy in self._scorer.scores(readings))
        return self._answers("loglikelihood", requests, scores, disable_tqdm)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-probability of each whole text in nats, read from its first to its last token with memory."""
        texts = self._scorer.encode(request.args[0] for request in requests)
        totals = self._scorer.totals([self._reading(text, 0) for text in texts])
        return self._answers("loglikelihood_rolling", requests, totals, disable_tqdm)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Continues each (context, settings) up to the first of the strings `until`; the likeliest tokens by default.

        The settings are the harness's (until, max_gen_toks, do_sample) and those of sampling; InputError for others.
        """
        groups: dict[str, list[int]] = collections.defaultdict(list)
        prompts = [whole(request.args[0]) for request in requests]
        settings = [json.dumps(request.args[1], sort_keys=True, default=str) for request in requests]
        for i, given in enumerate(settings):
            groups[given].append(i)
        seeds = repeats(zip(prompts, settings, strict=True))  # a repeated request gets another text each time

        def texts() -> Iterator[tuple[int, str]]:
            for group in groups.values():
                stop, most, sampling = self._sampling(requests[group[0]].args[1])
                for some in batches(group, self.batch_size, lambda i: len(prompts[i])):
                    yield from self._continued(some, prompts, seeds, stop, most, sampling)

        return self._answers("generate_until", requests, texts(), disable_tqdm)

    def _answers(self, kind: str, requests: list[Instance], found: Iterable[tuple[int, Any]], quiet: bool) -> list[Any]:
        """The answers that are found, (number, answer), in the order of the requests."""
        answers: list[Any] = [None] * len(requests)
        with progress_bar(f"Running {kind} requests", len(requests), " requests", shown=not quiet) as bar:
            for i, answer in found:
                answers[i] = answer
                self.cache_hook.add_partial(kind, requests[i].args, answer)
                bar.update()
        return answers

    def _continued(
        self,
        some: list[int],
        prompts: Sequence[str],
        seeds: Sequence[int],
        stop: Sequence[str],
        most: int,
        sampling: Mapping[str, tf.Tensor],
    ) -> Iterator[tuple[int, str]]:
        """(number, continuation) of the prompts with these numbers, each when it is known."""
        tokens = min(FIRST_TOKENS, most)
        while some:
            filled = np.resize(some, self._scorer.filled(len(some)))
            made = self._generate(
                prompts=tf.constant([prompts[i] for i in filled]),
                max_tokens=tf.constant(tokens),
                seeds=tf.constant([seeds[i] for i in filled]),
                stop=tf.constant([], tf.string),
                **sampling,
            )
            texts = [text.decode("utf-8", "replace") for text in made["texts"].numpy()[: len(some)]]
            ends = [min((text.find(end) for end in stop if end in text), default=-1) for text in texts]
            done = [tokens == most or end >= 0 for end in ends]
            for i, text, end, is_done in zip(some, texts, ends, done, strict=True):
                if is_done:
                    yield i, text if end < 0 else text[:end]
            some = [i for i, is_done in zip(some, done, strict=True) if not is_done]
            tokens = min(4 * tokens, most)

    def _sampling(self, given: Mapping[str, Any]) -> tuple[list[str], int, dict[str, tf.Tensor]]:
        """The strings to stop at, how many tokens to make at most, and the settings of sampling."""
        settings: dict[str, Any] = dict(normalize_gen_kwargs(dict(given)))
        stop, most = [end for end in settings.pop("until", []) if end], settings.pop("max_gen_toks")
        sampled = settings.pop("do_sample")
        if strange := settings.keys() - self._settings.keys():
            raise InputError(
                f"a task sets {min(strange)}, and a text is continued by {', '.join(self._settings)} alone"
            )
        values = self._settings | settings | ({} if sampled else {"temperature": 0})
        return stop, most, {name: tf.constant(type(self._settings[name])(value)) for name, value in values.items()}

    def _reading(self, ids: np.ndarray, first: int) -> Part:
        """The reading of a text whose tokens from `first` on are scored, and counted."""
        self.scored += len(ids) - first
        self.unknown += int(np.count_nonzero(ids[first:] == self._scorer.unknown))
        return self._scorer.reading(ids, first)


def _split(context: str, continuation: str) -> tuple[str, str]:
    """Moves spaces at the end of the context to the continuation."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _common(first: np.ndarray, second: np.ndarray) -> int:
    """How many tokens at the beginning are the same."""
    n = min(len(first), len(second))
    different = np.flatnonzero(first[:n] != second[:n])
    return int(different[0]) if len(different) else n
