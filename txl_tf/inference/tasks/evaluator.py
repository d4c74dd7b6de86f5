"""A fine-tuned model's outputs for a set of examples, and the metrics of its task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from txl_tf import families
from txl_tf.data.examples.batches import EvaluationExamples
from txl_tf.data.examples.example_set import ExampleSet
from txl_tf.devices import distribute
from txl_tf.metrics.task_results import TaskResults
from txl_tf.objectives.base import Batch
from txl_tf.progress import Progress
from txl_tf.settings.run import Config
from txl_tf.tasks.base import FineTuning

FEW_UPDATES = 100
"""Runs with fewer updates get a warning."""


class TaskReader:
    """Runs a model, made in the strategy's scope, over any sets of examples; its weights may change between calls.

    InputError if the batch cannot be divided among the replicas.
    """

    def __init__(self, config: Any, model: keras.Model, strategy: tf.distribute.Strategy):
        self._strategy, self._batch_size = strategy, config.eval.batch_size
        distribute.lanes_per_replica(strategy, self._batch_size)
        self._task, self._config, self._model = families.task_of(config, FineTuning), config, model
        self._lengths = config.lengths()
        self._reads: dict[tuple[Any, ...], Callable[[Batch], dict[str, tf.Tensor]]] = {}

        def on_replica(batch: Batch) -> dict[str, tf.Tensor]:
            return self._task.outputs(self._model, batch, self._config)

        if config.eval.jit_compile and distribute.compiles(strategy):
            on_replica = tf.function(on_replica, jit_compile=True, autograph=False)

        @tf.function(autograph=False)
        def read(batch: Batch) -> dict[str, tf.Tensor]:
            found = distribute.run(self._strategy, on_replica, args=(batch,))
            return {name: self._strategy.gather(tensor, axis=0) for name, tensor in found.items()}

        self._read = read

    def arranged(self, examples: ExampleSet) -> EvaluationExamples:
        """The batches of a set. A small set has smaller batches, of 2^n times the number of replicas."""
        replicas = self._strategy.num_replicas_in_sync
        needed = replicas << (-(-len(examples) // replicas) - 1).bit_length()
        return EvaluationExamples(examples, min(self._batch_size, needed), self._lengths)

    def outputs(self, data: EvaluationExamples, progress: Progress | None = None) -> dict[str, np.ndarray]:
        """The task's `outputs` for all examples, by name, [n, ..] in their order; shorter ones get zeros in front.

        `data` is from `arranged`; `progress`, called before each batch with (batches done, all batches), may raise.
        """
        parts: dict[str, list[np.ndarray]] = {}
        rows = np.concatenate([rows.ravel() for rows in data.groups.values()])
        done, steps = 0, sum(len(group) for group in data.groups.values())
        for length, group in data.groups.items():
            own = functools.partial(data.batches, length)
            iterator = iter(distribute.distribute_batches(self._strategy, own))
            for _ in group:
                if progress:
                    progress(done, steps)
                batch, done = next(iterator), done + 1
                key = (length, group.shape[1], data.sequences, *sorted(batch))
                if key not in self._reads:
                    self._reads[key] = self._read.get_concrete_function(batch)
                for name, tensor in self._reads[key](batch).items():
                    parts.setdefault(name, []).append(tensor.numpy())
        order = np.argsort(rows, kind="stable")[np.count_nonzero(rows < 0) :]
        return {name: _joined(arrays)[order] for name, arrays in parts.items()}


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    if arrays[0].ndim > 1:
        most = max(array.shape[1] for array in arrays)
        fronts = [(array, [(0, 0), (most - array.shape[1], 0), *[(0, 0)] * (array.ndim - 2)]) for array in arrays]
        arrays = [np.pad(array, front) for array, front in fronts]
    return np.concatenate(arrays)


def task_result(task: FineTuning, results: TaskResults, dev: Mapping[str, float]) -> dict[str, Any]:
    """The numbers that report an evaluation; dev: see `TaskResults.measure`. The error is 1 - the main metric."""
    metrics = results.measure(dev)
    return {
        "loss": float(np.mean(results.outputs["loss"], dtype=np.float64)),
        "metrics": metrics,
        "error": 1 - metrics[task.criterion],
        "examples": len(results.examples),
        "collapsed": results.collapse(dev),
    }


def no_better(task: FineTuning, metrics: Mapping[str, float], examples: ExampleSet, name: str) -> str | None:
    """A warning that always giving the most frequent class or choice is as accurate on `name`; None if it is not."""
    if not task.one_class:
        return None
    label = examples.known_labels()
    accuracy, most = metrics["accuracy"], float(np.bincount(label).max() / len(label))
    if accuracy > most or most == 1:
        return None
    return (
        f"an accuracy of {accuracy:.4f} on {name} is no better than always giving the most frequent class ({most:.4f})"
    )


def what_to_try(config: Config) -> str:
    """Advice for a run that learned nothing."""
    if config.train.train_steps < FEW_UPDATES:
        return "more train_steps, smaller batches or a higher learning_rate: it had few updates"
    return "another seed, a lower learning_rate, more warmup_steps or larger batches"
