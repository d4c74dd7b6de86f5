"""What a fine-tuned model says of a set of examples, and its task's metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf import distribute, families
from txl_tf.config import Config
from txl_tf.data.tasks.batches import EvaluationExamples
from txl_tf.data.tasks.examples import ExampleSet
from txl_tf.objectives.base import Batch


class TaskEvaluator:
    """Runs a model over examples, sorted by length. It can be called again after the weights change.

    Args:
        config: a Config of a task for which models are fine-tuned.
        model: the model, made in the strategy's scope.
        examples: an ExampleSet.
        strategy: where to run.

    Raises:
        InputError: the batch cannot be divided among the replicas.
    """

    def __init__(self, config: Config, model: keras.Model, examples: ExampleSet, strategy: tf.distribute.Strategy):
        self._task = families.fine_tuning_of(config)
        self._examples, self._strategy = examples, strategy
        distribute.lanes_per_replica(strategy, config.eval.batch_size)
        self._data = EvaluationExamples(examples, config.eval.batch_size, self._task.lengths(config))
        with strategy.scope():
            self._objective = self._task.objective(model, config)
        self._read = self._make_read(config.eval.jit_compile and distribute.compiles(strategy, model.compute_dtype))
        self._reads: dict[int, Callable[[Batch], dict[str, tf.Tensor]]] = {}

    def __call__(self, progress: Callable[..., None] | None = None) -> dict[str, Any]:
        """Evaluates with the model's current weights.

        Args:
            progress: called before each batch; may raise to end the evaluation.

        Returns:
            dict: loss, the mean over the examples; metrics, those of the task by name; error, 1 - its main metric;
            examples, their number; and collapsed, how the model has collapsed, or None.
        """
        outputs = self.outputs(progress)
        metrics = self._task.measure(outputs, self._examples)
        return {
            "loss": float(np.mean(outputs["loss"], dtype=np.float64)),
            "metrics": metrics,
            "error": 1 - metrics[self._task.criterion],
            "examples": len(self._examples),
            "collapsed": self._task.collapse(outputs, self._examples),
        }

    def outputs(self, progress: Callable[..., None] | None = None) -> dict[str, np.ndarray]:
        """The objective's `outputs` for all examples, by name, arrays [n, ..] in the order of the ExampleSet."""
        parts: dict[str, list[np.ndarray]] = {}
        rows = np.concatenate([rows.ravel() for rows in self._data.groups.values()])
        for length in self._data.groups:
            batches = distribute.distribute_batches(
                self._strategy, lambda length=length, **hosts: self._data.batches(length, **hosts)
            )
            iterator = iter(batches)
            for _ in self._data.groups[length]:
                if progress:
                    progress()
                batch = next(iterator)
                if length not in self._reads:
                    self._reads[length] = self._read.get_concrete_function(batch)
                for name, tensor in self._reads[length](batch).items():
                    parts.setdefault(name, []).append(tensor.numpy())
        order = np.argsort(rows, kind="stable")[np.count_nonzero(rows < 0) :]
        return {name: np.concatenate(arrays)[order] for name, arrays in parts.items()}

    def _make_read(self, jit_compile: bool) -> Any:
        """A function of a global batch; it is traced once for each length."""

        def on_replica(batch: Batch) -> dict[str, tf.Tensor]:
            return self._objective.outputs(batch)

        if jit_compile:
            on_replica = tf.function(on_replica, jit_compile=True)

        @tf.function
        def read(batch: Batch) -> dict[str, tf.Tensor]:
            found = self._strategy.run(on_replica, args=(batch,))
            return {name: self._strategy.gather(tensor, axis=0) for name, tensor in found.items()}

        return read
