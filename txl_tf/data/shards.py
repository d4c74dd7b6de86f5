"""Reads the shards of a split, starting at any token, in tf.data ops only."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from txl_tf.data.manifest import Corpus

_READ_BUFFER_BYTES = 1 << 18


class Shards:
    """Reads the shards of a split, starting at any token."""

    def __init__(self, corpus: Corpus, split: str):
        passes = corpus.split(split).passes
        self.tokens = corpus.split(split).tokens
        self._files = np.array([[corpus.path(shard.file) for shard in shards] for shards in passes])
        self._dtype, self._vocab_size = tf.as_dtype(corpus.dtype), corpus.vocab_size
        self._record_tokens, self._shard_records = corpus.record_tokens, corpus.shard_records

    def read(self, epoch: tf.Tensor, start: tf.Tensor, length: tf.Tensor, block: int | tf.Tensor) -> tf.data.Dataset:
        """Blocks (inputs, targets), int32 [block] each, with `length` targets in total, each the token after its input.

        The first input is at position `start` of the pass that `epoch` selects. The last block is padded with inputs 0
        and targets -1. Numbers may be tensors: int64, and int32 for `block`.
        """
        first_record = start // self._record_tokens
        last_record = (start + length) // self._record_tokens
        records = self._records(epoch, first_record, last_record)

        def cut(state: tuple[tf.Tensor, ...], record: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
            carried, skip, left = state
            tokens = self._ids(record)[skip : skip + left]
            left -= tf.size(tokens, out_type=tf.int64)
            tokens = tf.concat([carried, tokens], 0)
            fill = tf.where(left > 0, 0, (1 - tf.size(tokens)) % block)
            tokens = tf.pad(tokens, [[0, fill]], constant_values=-1)
            used = tf.size(tokens) - 1
            used -= used % block
            targets = tokens[1 : used + 1]
            inputs = tf.where(targets < 0, 0, tokens[:used])
            blocks = tf.reshape(inputs, [-1, block]), tf.reshape(targets, [-1, block])
            return (tokens[used:], tf.constant(0, tf.int64), left), blocks

        # The rest of a record after its last whole block is carried over to the next record. It has at least one
        # token, whose target is in the next record. (Dataset.rebatch fills the log with warnings.)
        return records.scan((tf.zeros([0], tf.int32), start % self._record_tokens, length + 1), cut).unbatch()

    def window(self, epoch: tf.Tensor, start: tf.Tensor, length: int) -> tf.data.Dataset:
        """One element, int32 [length]: the tokens from position `start` on, in the pass that `epoch` selects.

        The stretch may begin before the split and end after it; it has 0 where there is no token.
        """
        low, high = tf.maximum(start, 0), tf.minimum(start + length, self.tokens)
        first_record, last_record = low // self._record_tokens, (high - 1) // self._record_tokens

        def joined(records: tf.Tensor) -> tf.Tensor:
            tokens = tf.reshape(self._ids(tf.strings.reduce_join(records)), [-1])
            skip = low - first_record * self._record_tokens
            tokens = tokens[skip : skip + high - low]
            return tf.ensure_shape(tf.pad(tokens, [[low - start, start + length - high]]), [length])

        most = length // self._record_tokens + 2
        return self._records(epoch, first_record, last_record).batch(most).map(joined)

    def _ids(self, record: tf.Tensor) -> tf.Tensor:
        """The tokens of a record, int32 [n]. An InvalidArgumentError at run time if one is not in the vocabulary.

        A model would not notice: on a TPU, and wherever XLA compiles, it would read NaN or another token's vector.
        """
        tokens = tf.io.decode_raw(record, self._dtype)
        if self._dtype.max < self._vocab_size:
            return tf.cast(tokens, tf.int32)
        unsigned = tf.bitcast(tokens, tf.uint32) if self._dtype == tf.int32 else tokens  # below 0 is then far above
        largest = tf.cast(tf.reduce_max(unsigned), tf.int64)
        known = tf.debugging.assert_less(largest, tf.constant(self._vocab_size, tf.int64), "a token id is too large")
        with tf.control_dependencies([known]):
            return tf.cast(tokens, tf.int32)

    def _records(self, epoch: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tf.data.Dataset:
        """The records from number `first` to number `last` of a pass."""
        first_shard, last_shard = first // self._shard_records, last // self._shard_records
        files = tf.constant(self._files)[epoch % len(self._files)][first_shard : last_shard + 1]
        return (
            tf.data.TFRecordDataset(files, buffer_size=_READ_BUFFER_BYTES)
            .skip(first % self._shard_records)
            .take(last - first + 1)
        )
