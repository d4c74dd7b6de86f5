"""A fine-tuned XLNet as a SavedModel that plain TensorFlow loads and serves, without this package.

Its signatures take strings and return the results of `Predictor`; the task has them: see `FineTuning.signatures`. The
first is also named `serving_default`. The vocabulary is inside. Texts are laid out and cut as in training. The model is
traced for a few lengths; a batch uses the smallest one that its longest example fits.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from txl_tf import families
from txl_tf.data.examples.layout import pad_left
from txl_tf.data.tables.columns import table_columns
from txl_tf.devices.distribute import has_xla
from txl_tf.inference.saved_model import (
    READMES,
    Served,
    by_length,
    filled,
    in_groups,
    signatures_of,
    traced_to_be_saved,
)
from txl_tf.runs.model_dir import TrainedModel

AT_ONCE = 16
"""Rows that are computed at once, where there may be any number of them for a text."""


class ServedTask(Served):
    """The graph functions that are exported, and what a task's signatures use.

    `lengths` are those of rows in tokens, ascending; the last is the length of the longest texts that the model reads.
    None: those of the model's evaluation. With `jit_compile` the model is compiled where it runs.

    Attributes:
        vocabulary, config, labels, dev, scheme: the model's, its run's settings, classes, metrics on dev, and of tags.
        encode: strings [B] -> ids, and where each token begins and ends in characters, all int32 [B, None].
    """

    def __init__(self, trained: TrainedModel, jit_compile: bool = True, lengths: Sequence[int] | None = None):
        config: Any = trained.config
        self.config = config
        self._task: Any = families.task_of(trained.config, families.FineTuning)
        self.readme = self._task.name if (READMES / f"{self._task.name}.md").exists() else "task"
        self.step = trained.step
        self.dev = trained.dev_metrics()
        self.model, self.vocabulary, self.labels = trained.model, trained.vocabulary, trained.class_names()
        self.lengths = tuple(lengths or config.lengths())
        self.scheme = table_columns(trained.model_dir, None, labelled=False).scheme
        self._compile = jit_compile and has_xla()
        self._functions = functools.cache(self._function)
        # A function of its own, so that it is traced and stored once for all signatures.
        self.encode = tf.function(
            lambda texts: self.vocabulary.encode_with_places_tensor(texts),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )

    def facts(self) -> dict[str, Any]:
        """See `Served`."""
        labels = json.dumps(self.labels[:10], ensure_ascii=False)
        own = {"labels": labels, "step": f"{self.step:,}", "sizes": self.sizes()}
        guide = self._task.guide
        own |= {"task": self._task.name, "purpose": guide.purpose if guide else "has no description"}
        if self.readme == "task":
            shown = []
            for function, specs in self._task.signatures(self).items():
                inputs = ", ".join(f"{name} ({spec.dtype.name} {spec.shape})" for name, spec in specs.items())
                shown.append(f"- {function.__name__}: {inputs}")
            own["inputs"] = "\n".join(shown)
        return self._lengths() | own | self._task.facts(self)

    def filled(self, readme: str) -> str:
        """The text of a file in readmes/, with the model's lengths in place of its placeholders."""
        return filled(readme, **self._lengths())

    def _lengths(self) -> dict[str, Any]:
        return {**vars(self.config.data), "t_len": self.config.data.tgt_len}

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """See `Served`; the first one is also named `serving_default`."""
        signatures = signatures_of(self._task.signatures(self))
        return signatures | {"serving_default": next(iter(signatures.values()))}

    def outputs(
        self, ids: tf.RaggedTensor, segments: tf.RaggedTensor, count: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The predictions for rows, or for rows that are `count` sequences of each example."""

        def padded(t_len: int) -> tf.Tensor:
            return self._functions(t_len)(pad_left(ids, segments, t_len))

        logits = by_length(tf.reduce_max(ids.row_lengths()), self.lengths, padded)
        if count is not None:
            logits = tf.reshape(logits, [-1, count, 1])
        found = self._task.predictions(logits, self.config)
        return {name: tf.cast(values, tf.float32) for name, values in found.items()}

    def in_groups(
        self, longest: tf.Tensor, rows: Callable[[int], dict[str, tf.Tensor]], finish: Callable[..., Any] = dict
    ) -> dict[str, tf.Tensor]:
        """`finish` of what `FineTuning.served` computes from rows(T), some at a time; T is at least `longest`."""

        def read(t_len: int) -> Any:
            return finish(in_groups(self._functions(t_len), rows(t_len), AT_ONCE))

        return by_length(longest, self.lengths, read)

    def specs(self) -> dict[str, tf.TensorSpec]:
        """The TensorSpecs of what `FineTuning.served` computes."""
        with traced_to_be_saved():
            return self._functions(self.lengths[0]).get_concrete_function().structured_outputs

    def _function(self, t_len: int) -> Any:
        """The model on rows of one length, dicts of features: see `FineTuning.served`."""
        return tf.function(
            lambda rows: self._task.served(self.model, rows, self.config),
            input_signature=[self._task.row_specs(t_len)],
            jit_compile=self._compile,
            autograph=False,
        )
