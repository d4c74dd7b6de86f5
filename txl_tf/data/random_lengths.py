"""Training batches whose segments have random lengths, in tf.data ops only.

Lanes are those of lanes.py. All lanes of a batch have the same length, and are padded to the longest one that can
occur, so that shapes are static. Which lengths an epoch has follows from (seed, epoch), so any step can be found.
"""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from txl_tf.data.lanes import TrainingLanes, by_replica, host_lanes, together
from txl_tf.data.manifest import Corpus
from txl_tf.settings.run import Config, DataConfig

HALF = 0.05
"""The probability that a length is drawn about half of tgt_len (AWD-LSTM, and the official code's get_varlen_iter)."""
SHORTEST = 5
"""The least length, from the same code; only an epoch's last segment may be shorter."""
_GROUP = 64  # segments of a lane that are read at once


class RandomLanes(TrainingLanes):
    """The batches of a training run over "train", as TrainingLanes has them, with random lengths.

    A length is drawn from a normal distribution with the mean tgt_len and the standard deviation tgt_len_std. With
    probability 0.05 the mean is half of tgt_len. The length is rounded down, and is at least SHORTEST and at most three
    standard deviations above tgt_len. In an epoch each lane is read once from its first token to its last; the last
    segment is cut. `epoch_steps` and `step_tokens` are those on average, without padding.
    """

    def __init__(self, corpus: Corpus, data: DataConfig, seed: int = 0):
        super().__init__(corpus, data, seed)
        self._lane, self.unused = divmod(self._shards.tokens - 1, data.batch_size)
        mean = data.tgt_len * (1 - HALF / 2)
        self.epoch_steps = max(1, round(self._lane / mean))
        self.step_tokens = round(data.batch_size * mean)

    def lengths(self, epoch: int | tf.Tensor) -> tf.Tensor:
        """The lengths of an epoch's segments, in order: int64 [n]; their sum is a lane's number of targets."""
        t_len, shortest = self._data.tgt_len, min(SHORTEST, self._data.tgt_len)
        most = -(-self._lane // shortest)
        epoch = tf.cast(epoch, tf.int64)
        halved, drawn = (tf.stack([tf.constant(self._seed, tf.int64), number]) for number in (epoch, -1 - epoch))
        mean = tf.where(tf.random.stateless_uniform([most], halved) < HALF, t_len / 2, float(t_len))
        lengths = mean + self._data.tgt_len_std * tf.random.stateless_normal([most], drawn)
        ends = tf.cumsum(tf.cast(tf.clip_by_value(lengths, shortest, self._data.longest), tf.int64))
        ends = tf.minimum(ends, self._lane)
        lengths = ends - tf.concat([[0], ends[:-1]], 0)
        return tf.boolean_mask(lengths, lengths > 0)

    def place(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and the step's number in it."""
        with tf.init_scope():
            for epoch in itertools.count():
                steps = int(tf.size(self.lengths(epoch)))
                if step < steps:
                    return epoch, step
                step -= steps
        raise AssertionError("epochs do not end")

    def batches(self, step: int, *, host: int = 0, num_hosts: int = 1, replicas_per_host: int = 1) -> tf.data.Dataset:
        """Batches without end from a step on: (inputs, targets), int32 [b, T] each, T the longest length.

        Padding has inputs 0 and targets -1. Arguments and rows are those of TrainingLanes.
        """
        lanes = host_lanes(self._data.batch_size, host, num_hosts, replicas_per_host)
        first_epoch, first_place = self.place(step)
        shards, rows, longest = self._shards, len(lanes) // replicas_per_host, self._data.longest

        def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
            lengths = self.lengths(epoch)
            ends = tf.cumsum(lengths)
            first = tf.where(tf.equal(epoch, first_epoch), tf.constant(first_place, tf.int64), 0)

            def group_batches(i: tf.Tensor) -> tf.data.Dataset:
                own = lengths[i : i + _GROUP]
                start, total = ends[i] - lengths[i], tf.reduce_sum(own)

                def lane_block(lane: tf.Tensor) -> tf.data.Dataset:
                    return shards.read(epoch, lane * self._lane + start, total, tf.cast(total, tf.int32))

                def cut(tokens: tf.Tensor, padding: int) -> tf.Tensor:  # [R b, total] -> [n R, b, T]
                    places = (tf.cumsum(own) - own)[:, None] + tf.range(longest, dtype=tf.int64)
                    segments = tf.gather(tokens, tf.minimum(places, total - 1), axis=1)
                    segments = tf.where(tf.range(longest, dtype=tf.int64) < own[:, None], segments, padding)
                    return by_replica(segments, replicas_per_host, rows, longest)

                return (
                    together(lane_block, lanes)
                    .map(lambda inputs, targets: (cut(inputs, 0), cut(targets, -1)))
                    .unbatch()
                )

            return tf.data.Dataset.range(first, tf.size(lengths, tf.int64), _GROUP).flat_map(group_batches)

        epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
        return epochs.flat_map(epoch_batches).prefetch(tf.data.AUTOTUNE)


def training_lanes(corpus: Corpus, config: Config) -> TrainingLanes:
    """The batches of a training run: of segments of one length, or with tgt_len_std of random lengths."""
    return (RandomLanes if config.data.tgt_len_std else TrainingLanes)(corpus, config.data, config.train.seed)
