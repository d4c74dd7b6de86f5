"""The training step, and the host loop that carries mems from step to step on the device."""

import math
import typing

import tensorflow as tf

from txl_tf.distribute import compiles


class Sums(typing.NamedTuple):
    """What the host loop adds up from step to step; it carries them stacked, as a float64 [4].

    loss: over the good steps of a log window, in nats per target.
    grad_norm: of the gradients before clipping, over the same steps.
    skipped: the window's other steps, whose loss or gradient was not finite.
    skipped_in_a_row: the steps skipped since the last good one, in this window and before it.
    """

    loss: float = 0.0
    grad_norm: float = 0.0
    skipped: float = 0.0
    skipped_in_a_row: float = 0.0

    def stacked(self):
        """As the host loop carries them."""
        return tf.stack([tf.convert_to_tensor(value, tf.float64) for value in self])

    def with_step(self, loss, norm):
        """With one more step, of this loss and norm: scalar tensors."""
        good = is_good(loss, norm)
        bad = 1 - tf.cast(good, loss.dtype)
        return Sums(
            loss=self.loss + tf.where(good, loss, 0),
            grad_norm=self.grad_norm + tf.where(good, norm, 0),
            skipped=self.skipped + bad,
            skipped_in_a_row=(self.skipped_in_a_row + 1) * bad,
        )

    def means(self, steps):
        """Mean loss and gradient norm of a window of so many steps: NaN if none was good."""
        good = steps - self.skipped
        return (self.loss / good, self.grad_norm / good) if good else (math.nan, math.nan)


def is_good(loss, norm):
    """Whether a step counts: loss and gradient norm, over all replicas and so alike on each, are finite."""
    return tf.math.is_finite(loss) & tf.math.is_finite(norm)


def train_step(model, optimizer, config, seed, inputs, targets, mems, average=None):
    """One update on one replica; runs inside `strategy.run`.

    The loss is the mean over the targets of the global batch that count (`loss_positions`), so gradients are summed
    over replicas, and only their sum is clipped. A step that is not good (`is_good`) leaves weights, moments and
    averages as they are and empties the memory, which may be what was wrong; it counts as a step all the same.
    Seeds fold in the step and the replica: every step of every replica has its own dropout masks, and a resumed run
    has those of the uninterrupted one.

    Args:
        model: a TransformerXL.
        optimizer: an Adam.
        config: a TrainConfig, for clip, loss_positions and accumulate_steps.
        seed: int32 [2], the run's.
        inputs, targets: int32 [B / replicas, T].
        mems: this replica's Mems.
        average: a WeightAverage to keep up to date.

    Returns:
        loss (nats per target that counts, over the global batch), the gradients' global norm before clipping, and the
        new Mems.
    """
    replica = tf.distribute.get_replica_context()
    seed = tf.random.fold_in(seed, optimizer.iterations)
    seed = tf.random.fold_in(seed, replica.replica_id_in_sync_group)
    replicas = replica.num_replicas_in_sync
    loss, gradients, new_mems = loss_and_gradients(model, config, seed, inputs, targets, mems, replicas)
    loss, gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, [loss, gradients])
    norm = tf.linalg.global_norm(gradients)
    good = is_good(loss, norm)
    optimizer.apply(gradients, config.clip / tf.maximum(norm, config.clip) if config.clip else 1.0, good)
    if average is not None:
        average.update(optimizer.iterations, good)
    empty = model.initial_mems(inputs.shape[0])
    return loss, norm, tf.nest.map_structure(lambda new, start: tf.where(good, new, start), new_mems, empty)


def loss_and_gradients(model, config, seed, inputs, targets, mems, parts=1):
    """What these lanes add to the loss of a batch of `parts` times as many, its gradients, and their new Mems.

    With accumulate_steps = A the lanes are read in A groups, one after the other and each with dropout masks of its
    own: nothing else changes, but only one group's activations are alive at a time.

    Args:
        model, config, seed, inputs, targets, mems: as for `train_step`.
        parts: a number.

    Returns:
        their mean loss / parts, a list of gradients of the trainable weights, Mems.
    """
    groups = config.accumulate_steps
    if groups == 1:
        return _loss_and_gradients(model, config, seed, inputs, targets, mems, parts)

    def cut(tensor):
        return tf.reshape(tensor, [groups, tensor.shape[0] // groups, *tensor.shape[1:]])

    inputs, targets, mems = tf.nest.map_structure(cut, (inputs, targets, mems))
    memory = tf.nest.flatten(mems)

    def add_group(i, loss, gradients, new_memory):
        group_mems = tf.nest.pack_sequence_as(mems, [tensor[i] for tensor in memory])
        loss_i, gradients_i, mems_i = _loss_and_gradients(
            model, config, tf.random.fold_in(seed, i), inputs[i], targets[i], group_mems, parts * groups
        )
        return (
            i + 1,
            loss + tf.cast(loss_i, loss.dtype),
            [total + gradient for total, gradient in zip(gradients, gradients_i, strict=True)],
            [array.write(i, new) for array, new in zip(new_memory, tf.nest.flatten(mems_i), strict=True)],
        )

    _, loss, gradients, new_memory = tf.while_loop(
        lambda i, *_: i < groups,
        add_group,
        (
            0,
            tf.zeros([], model.variable_dtype),
            [tf.zeros(variable.shape, variable.dtype) for variable in model.trainable_variables],
            [tf.TensorArray(tensor.dtype, groups, element_shape=tensor.shape[1:]) for tensor in memory],
        ),
        maximum_iterations=groups,
    )
    new_memory = [
        tf.reshape(array.stack(), [-1, *tensor.shape[2:]]) for array, tensor in zip(new_memory, memory, strict=True)
    ]
    return loss, gradients, tf.nest.pack_sequence_as(mems, new_memory)


def _loss_and_gradients(model, config, seed, inputs, targets, mems, parts):
    with tf.GradientTape() as tape:
        hidden, new_mems = model(inputs, mems, seed=seed, training=True)
        first = targets.shape[1] // 2 if config.loss_positions == "half" else 0
        loss = tf.reduce_mean(model.nll(hidden[:, first:], targets[:, first:])) / parts
    variables = [variable.value for variable in model.trainable_variables]
    return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)], new_mems


def make_host_loop(strategy, model, optimizer, config, average=None):
    """A function that takes n steps in one call, with mems as per-replica values.

    Args:
        strategy, model, optimizer: of the run.
        config: a TrainConfig.
        average: a WeightAverage, or None.

    Returns:
        loop(iterator, mems, sums, n) -> (mems, sums), where `sums` is a stacked Sums, and n an int tensor, so that
        other counts do not retrace.
    """
    seed = tf.constant([config.seed, 0])

    def replica_step(inputs, targets, mems):
        return train_step(model, optimizer, config, seed, inputs, targets, mems, average)

    if config.jit_compile and compiles(strategy, model.compute_dtype):
        replica_step = tf.function(replica_step, jit_compile=True)

    @tf.function
    def host_loop(iterator, mems, sums, n):
        for _ in tf.range(n):
            inputs, targets = next(iterator)
            loss, norm, mems = strategy.run(replica_step, args=(inputs, targets, mems))
            # Every replica has the same loss and norm: take the first's.
            loss, norm = (tf.cast(strategy.experimental_local_results(value)[0], sums.dtype) for value in (loss, norm))
            sums = Sums(*tf.unstack(sums)).with_step(loss, norm).stacked()
        return mems, sums

    return host_loop
