"""Reads a prepared corpus as batches of contiguous lanes, in tf.data ops only.

A split is cut into B lanes, read in parallel: row b of a batch continues row b of the batch before it. Lanes are cut
when they are read. So one set of shards serves any batch size, segment length and number of replicas, and the position
of any step is computed. The rows of the global batch [B, T] are divided among hosts, and within a host among its
replicas: a host reads only the rows of its own replicas.

Shapes: B global batch, T = tgt_len, R replicas of a host, b = B / (hosts * R) rows of a replica.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf
from absl import logging

from txl_tf.counted import counted
from txl_tf.data.manifest import Corpus
from txl_tf.errors import InputError, one_line
from txl_tf.settings.run import Config, DataConfig

if TYPE_CHECKING:
    from txl_tf.data.examples.example_set import TaskCorpus

# Tokens that are read at once, in all lanes together and in one lane: enough to make the cost of an op small, few
# enough for little memory, and for a first batch soon after a seek.
_BLOCK_TOKENS = 1 << 20
_LANE_BLOCK_TOKENS = 1 << 14
_READ_BUFFER_BYTES = 1 << 18
HALF = 0.05
"""The probability that a length is drawn about half of tgt_len (AWD-LSTM, and the official code's get_varlen_iter)."""
SHORTEST = 5
"""The least length, from the same code; only an epoch's last segment may be shorter."""
_GROUP = 64  # segments of a lane that are read at once


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


class TrainingData(Protocol):
    """The batches of a run. An epoch has `epoch_steps` steps of `step_tokens` tokens; `unused` tokens are left over.

    An epoch reads each other token about `reads` times.
    """

    epoch_steps: int
    step_tokens: int
    unused: int
    reads: int

    def batches(self, step: int, *, host: int, num_hosts: int, replicas_per_host: int) -> tf.data.Dataset:
        """One host's batches without end from a step on, alternating between its replicas."""


class EvaluationData(Protocol):
    """One pass over a split: `steps` batches of `lanes` lanes, with `targets` targets in total."""

    @property
    def lanes(self) -> int:
        """B."""

    @property
    def steps(self) -> int:
        """Batches in the pass."""

    @property
    def targets(self) -> int | None:
        """The total number of targets; None: known only after the pass."""

    def batches(self, *, host: int, num_hosts: int, replicas_per_host: int) -> tf.data.Dataset:
        """One host's batches, alternating between its replicas."""


class TrainingLanes:
    """The batches of a training run over "train"; attributes as for TrainingData.

    An epoch is n = (N - 1) // (B T) segments of each lane. Every token is a target once, except N - 1 - n B T tokens,
    fewer than one segment per lane. These are left out at the end. With `random_offset` an offset, drawn for each epoch
    from (seed, epoch), divides them between both ends. Epoch e of a corpus with several passes reads pass e mod passes.
    InputError if the split is too small for a single batch.
    """

    def __init__(self, corpus: Corpus, data: DataConfig, seed: int = 0):
        self._shards, self._data, self._seed = Shards(corpus, "train"), data, seed
        tokens, self.step_tokens = self._shards.tokens, data.batch_size * data.tgt_len
        self.epoch_steps = (tokens - 1) // self.step_tokens
        if self.epoch_steps < 1:
            raise InputError(
                f"{corpus.data_dir}: a batch of {data.batch_size} x {data.tgt_len} needs {self.step_tokens + 1:,} "
                f"tokens, but train has {tokens:,}: lower batch_size or tgt_len"
            )
        self.unused = tokens - 1 - self.epoch_steps * self.step_tokens
        self.reads = 1

    def batches(self, step: int, *, host: int = 0, num_hosts: int = 1, replicas_per_host: int = 1) -> tf.data.Dataset:
        """Batches without end, from a global step on: (inputs, targets), int32 [b, T] each.

        Element k goes to local replica k mod R, R = replicas_per_host. InputError if B is not a multiple of the number
        of replicas.
        """
        lanes = host_lanes(self._data.batch_size, host, num_hosts, replicas_per_host)
        shards, segments, tgt_len, slack = self._shards, self.epoch_steps, self._data.tgt_len, self.unused
        if host == 0:
            logging.info(
                "train: %d steps per epoch; %d of %d tokens (%.3g%%) are left out in each",
                *(segments, slack, shards.tokens, 100 * slack / shards.tokens),
            )

        def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
            first = tf.where(epoch == step // segments, tf.constant(step % segments, tf.int64), 0)
            offset = tf.constant(0, tf.int64)
            if self._data.random_offset and slack:
                key = tf.stack([tf.constant(self._seed, tf.int64), epoch])
                offset = tf.random.stateless_uniform([], key, 0, slack + 1, dtype=tf.int64)
            steps, start = segments - first, offset + first * tgt_len

            def lane_blocks(lane: tf.Tensor, block: int) -> tf.data.Dataset:
                return shards.read(epoch, start + lane * segments * tgt_len, steps * tgt_len, block)

            return _side_by_side(lane_blocks, lanes, steps, tgt_len, replicas_per_host)

        epochs = tf.data.Dataset.range(step // segments, np.iinfo(np.int64).max)
        return epochs.flat_map(epoch_batches).prefetch(tf.data.AUTOTUNE)


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
            epoch = 0
            while step >= (steps := int(tf.size(self.lengths(epoch)))):
                epoch, step = epoch + 1, step - steps
            return epoch, step

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


class EvaluationLanes:
    """One pass over a split: every token but the first of each lane is a target exactly once.

    The N tokens are cut into B lanes whose lengths differ by at most one; after the end of a lane targets are -1 and
    inputs 0. Attributes as for EvaluationData. InputError if some lane would have no target.
    """

    def __init__(self, corpus: Corpus, split: str, batch_size: int, tgt_len: int):
        self._shards, self.lanes, self._t_len = Shards(corpus, split), batch_size, tgt_len
        tokens = self._shards.tokens
        if batch_size < 1 or tgt_len < 1 or tokens < 2 * batch_size:
            raise InputError(
                f"{corpus.data_dir}: {split} has {counted(tokens, 'token')}, too few for "
                f"{counted(batch_size, 'lane')}: lower batch_size"
            )
        longest = -(-tokens // batch_size)
        self.steps, self.targets = -(-(longest - 1) // tgt_len), tokens - batch_size

    def batches(self, *, host: int = 0, num_hosts: int = 1, replicas_per_host: int = 1) -> tf.data.Dataset:
        """`steps` batches for each replica; arguments, rows and errors as for TrainingLanes."""
        lanes = host_lanes(self.lanes, host, num_hosts, replicas_per_host)
        base, longer = divmod(self._shards.tokens, self.lanes)

        def lane_blocks(lane: tf.Tensor, block: int) -> tf.data.Dataset:
            start = lane * base + tf.minimum(lane, longer)
            targets = base - 1 + tf.cast(lane < longer, tf.int64)
            return self._shards.read(tf.constant(0, tf.int64), start, targets, block)

        return _side_by_side(lane_blocks, lanes, self.steps, self._t_len, replicas_per_host).prefetch(tf.data.AUTOTUNE)


@contextlib.contextmanager
def named_read_errors(corpus: Corpus | TaskCorpus) -> Iterator[None]:
    """Within this context TensorFlow's error about a damaged or foreign shard becomes an InputError that names it."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        corpus.check_content()
        if isinstance(error, tf.errors.InvalidArgumentError):  # the data is not the cause
            raise
        raise InputError(f"{corpus.data_dir} cannot be read: {one_line(error)}") from error


def host_lanes(batch_size: int, host: int, num_hosts: int, replicas_per_host: int) -> np.ndarray:
    """The numbers of the lanes that a host reads, [R b]."""
    replicas = num_hosts * replicas_per_host
    if batch_size % replicas:
        raise InputError(
            f"batch_size {batch_size} is not a multiple of the {replicas} replicas ({num_hosts} hosts x "
            f"{replicas_per_host}): every replica needs the same number of lanes"
        )
    rows = batch_size // num_hosts
    return np.arange(host * rows, (host + 1) * rows, dtype=np.int64)


def by_replica(segments: tf.Tensor, replicas: int, rows: int, t_len: int) -> tf.Tensor:
    """G segments of each lane, [R b, G T] or [R b, G, T] -> batches of the replicas, one after another: [G R, b, T]."""
    segments = tf.reshape(segments, [replicas, rows, -1, t_len])
    return tf.reshape(tf.transpose(segments, [2, 0, 1, 3]), [-1, rows, t_len])


def together(lane_blocks: Callable[[tf.Tensor], tf.data.Dataset], lanes: np.ndarray) -> tf.data.Dataset:
    """The first blocks of all lanes, the second ones, and so on; each field has the shape [R b, ..]."""
    options = {"cycle_length": len(lanes), "num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}
    blocks = tf.data.Dataset.from_tensor_slices(lanes).interleave(lane_blocks, **options)
    return blocks.batch(len(lanes), drop_remainder=True)


def _side_by_side(
    lane_blocks: Callable[[tf.Tensor, int], tf.data.Dataset],
    lanes: np.ndarray,
    steps: int | tf.Tensor,
    tgt_len: int,
    replicas: int,
) -> tf.data.Dataset:
    """Lanes -> `steps` batches (inputs, targets) [b, T] for each replica, replica after replica.

    lane_blocks(lane, n) is the dataset of a lane's blocks of n tokens.
    """
    rows = len(lanes) // replicas
    segments = max(1, min(_BLOCK_TOKENS // len(lanes), _LANE_BLOCK_TOKENS) // tgt_len)

    return (
        together(lambda lane: lane_blocks(lane, segments * tgt_len), lanes)
        .map(
            lambda *blocks: tuple(by_replica(block, replicas, rows, tgt_len) for block in blocks),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .unbatch()
        .take(steps * replicas)
    )
