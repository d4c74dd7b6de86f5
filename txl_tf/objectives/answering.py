"""Answering questions: where the answer starts and ends in a text, and whether there is one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from txl_tf.models.answer_heads import AnswerLogits
from txl_tf.models.xlnet.head_config import XLNetAnsweringConfig
from txl_tf.models.xlnet.model import Text
from txl_tf.objectives.base import TaskObjective

Examples = dict[str, tf.Tensor]
"""tokens, segments, padding, allowed [b, T]; cls_index, weight [b]; start, end, impossible [b], if they are known.
See data.tasks.windows.examples."""


class Answering(TaskObjective):
    """The objective of XLNet's official code for SQuAD 2.0.

    The loss of an example is (CE(start) + CE(end)) / 2 + BCE(impossible) / 2. CE(start) is the cross entropy of the
    column where the answer starts, CE(end) of the column where it ends, given the true start. BCE(impossible) is the
    binary cross entropy of whether there is no answer. If the answer is not in the example, start and end are the
    column of CLS.

    Files in which every question has an answer (SQuAD 1.1) are learned in the same way. There examples without an
    answer are windows that do not hold it, and "impossible" means that it is in another window.

    A model with answer_head="simple" learns only the two cross entropies, as XLNetForQuestionAnsweringSimple does. For
    it, no answer means start and end at the column of CLS.
    """

    @classmethod
    def batch_spec(cls, config: XLNetAnsweringConfig, lanes: int, training: bool) -> Examples:
        """The TensorSpecs of a batch."""
        columns, kinds = [lanes, config.data.tgt_len], {"tokens": "int32", "segments": "int32", "padding": "bool"}
        whole = {name: tf.TensorSpec(columns, kind) for name, kind in {**kinds, "allowed": "bool"}.items()}
        kinds = dict.fromkeys(("cls_index", "start", "end"), "int32") | dict.fromkeys(("impossible", "learned"), "bool")
        return whole | {name: tf.TensorSpec([lanes], kind) for name, kind in {**kinds, "weight": "float32"}.items()}

    def logits(self, batch: Examples, **options: Any) -> AnswerLogits:
        """The model's outputs for a batch with its true starts; see TaskObjective."""
        names = ("tokens", "allowed", "cls_index", "start", "segments", "padding")
        return self.model(**{name: batch[name] for name in names}, **options)

    @staticmethod
    def losses(logits: AnswerLogits, batch: Examples) -> tf.Tensor:
        """The loss of each example, [b], in nats."""
        start, end = (
            tf.nn.sparse_softmax_cross_entropy_with_logits(batch[name], getattr(logits, name))
            for name in ("start", "end")
        )
        if logits.impossible is None:
            return (start + end) / 2
        target = tf.cast(batch["impossible"], logits.impossible.dtype)
        impossible = tf.nn.sigmoid_cross_entropy_with_logits(target, logits.impossible)
        return (start + end + impossible) / 2

    def outputs(self, batch: Examples) -> dict[str, tf.Tensor]:
        """The fields of BestAnswers by name; see TaskObjective."""
        hidden, _, _ = self.model.body(batch["tokens"], text=Text(batch["segments"], padding=batch["padding"]))
        given = hidden, batch["allowed"], batch["cls_index"]
        found = self.model.head.best(*given, self.model.config.start_n_top, self.model.config.end_n_top)._asdict()
        if "start" in batch:
            found["loss"] = self.losses(self.model.head(*given, batch["start"]), batch)
        return found
