"""Batches of an ExampleSet for training and for evaluation, in tf.data ops only.

A batch is a dict of the features, [b, ..] each, and "weight", float32 [b]: how much an example counts, 0 where a batch
is filled up to its size. Integers are int32, booleans stay, other numbers are float32.

Shapes: n examples, B global batch, T columns of time, R replicas of a host, b = B / (hosts * R) rows of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from txl_tf.data.examples.example_set import ExampleSet, TaskCorpus
from txl_tf.data.lanes import host_lanes
from txl_tf.hashing import numbered_seeds, random_bits
from txl_tf.settings.run import Config


class TrainingExamples:
    """The batches of a training run: in each epoch every example once, in an order that follows from (seed, epoch).

    Examples of weight 0, from which nothing is learned, are left out. The last batch of an epoch is filled up with
    examples of weight 0. `weights` [n] say how much each example counts; None: all count 1. See TrainingData.
    """

    def __init__(self, examples: ExampleSet, batch_size: int, seed: tuple[int, int], weights: np.ndarray | None = None):
        self._reader = _BatchReader(examples, weights)
        self._rows = np.arange(len(examples)) if weights is None else np.flatnonzero(weights)
        self._batch_size, self._seed = batch_size, seed
        self.epoch_steps = -(-len(self._rows) // batch_size)
        self.step_tokens = batch_size * examples.features["padding"][0].size
        self.unused, self.reads = 0, 1

    @classmethod
    def of(cls, corpus: TaskCorpus, config: Config) -> TrainingExamples:
        """The batches of a run. Examples count as their weights say; with balance_classes also by their class."""
        weights = corpus.train.training_weights
        if getattr(config.objective, "balance_classes", False):
            by_class = class_weights(corpus.train.features["label"], len(corpus.labels))
            weights = by_class if weights is None else by_class * weights
        # The second number makes the orders independent of dropout.
        return cls(corpus.train, config.data.batch_size, (config.train.seed, 3), weights)

    def batches(self, step: int, *, host: int = 0, num_hosts: int = 1, replicas_per_host: int = 1) -> tf.data.Dataset:
        """Batches without end, starting at any step; arguments and errors as for `lanes.TrainingLanes`."""
        lanes = host_lanes(self._batch_size, host, num_hosts, replicas_per_host)

        def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
            bits = random_bits([len(self._rows)], numbered_seeds(tf.constant(self._seed), epoch))
            order = tf.gather(tf.constant(self._rows, tf.int32), tf.argsort(tf.cast(bits, tf.int64), stable=True))
            fill = self.epoch_steps * self._batch_size - len(self._rows)
            rows = tf.reshape(tf.pad(order, [[0, fill]], constant_values=-1), [self.epoch_steps, self._batch_size])
            first = tf.where(epoch == step // self.epoch_steps, step % self.epoch_steps, 0)
            return tf.data.Dataset.from_tensor_slices(rows[first:])

        epochs = tf.data.Dataset.range(step // self.epoch_steps, np.iinfo(np.int64).max)
        return self._reader.read(epochs.flat_map(epoch_rows), lanes, replicas_per_host, self._reader.t_len)


class EvaluationExamples:
    """One pass over an ExampleSet, sorted by length, in batches of B that are cut to a few lengths, the last of them T.

    Attributes:
        groups: for each length that occurs, the rows of its batches, int [steps, B]; -1: filled up, with weight 0.
        sequences: how many sequences an example has, (C,); (): one.
    """

    def __init__(self, examples: ExampleSet, batch_size: int, lengths: Sequence[int]):
        self._reader = _BatchReader(examples)
        self._batch_size = batch_size
        own, self.sequences = examples.lengths(), examples.features["padding"].shape[1:-1]
        order = np.argsort(own, kind="stable")
        order = np.pad(order, [0, -len(order) % batch_size], constant_values=-1).reshape(-1, batch_size)
        longest = np.array([own[rows[rows >= 0][-1]] for rows in order])
        place = np.searchsorted(lengths, longest)
        self.groups = {length: order[place == i] for i, length in enumerate(lengths) if (place == i).any()}

    def batches(self, length: int, *, host: int = 0, num_hosts: int = 1, replicas_per_host: int = 1) -> tf.data.Dataset:
        """The batches of a group for one host, alternating between its replicas; arguments as for training."""
        lanes = host_lanes(self._batch_size, host, num_hosts, replicas_per_host)
        return self._reader.read(
            tf.data.Dataset.from_tensor_slices(self.groups[length]), lanes, replicas_per_host, length
        )


class _BatchReader:
    def __init__(self, examples: ExampleSet, weights: np.ndarray | None = None):
        weights = np.ones([len(examples)]) if weights is None else weights
        with tf.device("CPU:0"):
            self._tensors = {name: tf.constant(array) for name, array in examples.features.items()}
            self._weights = tf.constant(weights, tf.float32)
        self._timed, self._padded = frozenset(examples.timed), examples.padded
        self.t_len = examples.t_len

    def read(self, rows: tf.data.Dataset, lanes: np.ndarray, replicas: int, length: int) -> tf.data.Dataset:
        """Rows of global batches, int [B], -1 for no example -> a host's batches, alternating between its replicas.

        `lanes` are the places of its rows. `length` columns of the time axis are read, on the side without padding.
        """
        shape = [replicas, len(lanes) // replicas]
        columns = slice(self.t_len - length, None) if self._padded == "left" else slice(length)

        def take(rows: tf.Tensor) -> dict[str, tf.Tensor]:
            found = tf.maximum(rows, 0)
            batch = {"weight": tf.where(rows >= 0, tf.gather(self._weights, found), 0)}
            for name, tensor in self._tensors.items():
                feature = tf.gather(tensor, found)
                kind = tf.bool if tensor.dtype == tf.bool else tf.int32 if tensor.dtype.is_integer else tf.float32
                batch[name] = tf.cast(feature[..., columns] if name in self._timed else feature, kind)
            return batch

        return (
            rows.map(lambda rows: tf.reshape(tf.gather(rows, lanes), shape))
            .unbatch()
            .map(lambda rows: take(tf.ensure_shape(rows, shape[1:])), tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )


def class_weights(numbers: np.ndarray, classes: int) -> np.ndarray:
    """The weight of each example, [n], so that all classes that occur count alike; the mean is 1."""
    counts = np.bincount(numbers, minlength=classes)
    return (len(numbers) / (np.count_nonzero(counts) * np.maximum(counts, 1)))[numbers]
