"""The training step, and the host loop that carries mems from step to step on the device."""

import tensorflow as tf


def train_step(model, optimizer, config, seed, inputs, targets, mems, average=None):
    """One update on one replica; runs inside `strategy.run`.

    The loss is the mean over the targets of the global batch that count (`loss_positions`), so gradients are summed
    over replicas, and only their sum is clipped.
    Seeds fold in the step and the replica: every step of every replica has its own dropout masks, and a resumed run
    has those of the uninterrupted one.

    Args:
        model: a TransformerXL.
        optimizer: a built ReducedGradientsAdam.
        config: a TrainConfig, for clip and loss_positions.
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
    with tf.GradientTape() as tape:
        hidden, new_mems = model(inputs, mems, seed=seed, training=True)
        first = targets.shape[1] // 2 if config.loss_positions == "half" else 0
        loss = tf.reduce_mean(model.nll(hidden[:, first:], targets[:, first:])) / replica.num_replicas_in_sync
    variables = [variable.value for variable in model.trainable_variables]
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
    loss, gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, [loss, gradients])
    norm = tf.linalg.global_norm(gradients)
    if config.clip:
        gradients, _ = tf.clip_by_global_norm(gradients, config.clip, use_norm=norm)
    optimizer.apply(gradients)
    if average is not None:
        average.update(optimizer.iterations)
    return loss, norm, new_mems


def make_host_loop(strategy, model, optimizer, config, average=None):
    """A function that takes n steps in one call, with mems as per-replica values.

    Args:
        strategy, model, optimizer: of the run.
        config: a TrainConfig.
        average: a WeightAverage, or None.

    Returns:
        loop(iterator, mems, sums, n) -> (mems, sums), where `sums` is float64 [2], the running sums of loss and
        gradient norm, and n an int tensor, so that other counts do not retrace.
    """
    seed = tf.constant([config.seed, 0])

    def replica_step(inputs, targets, mems):
        return train_step(model, optimizer, config, seed, inputs, targets, mems, average)

    # TPUStrategy compiles by itself, and MirroredStrategy's all-reduce cannot stand inside a compiled function.
    if config.jit_compile and isinstance(strategy, tf.distribute.OneDeviceStrategy):
        replica_step = tf.function(replica_step, jit_compile=True)

    @tf.function
    def host_loop(iterator, mems, sums, n):
        for _ in tf.range(n):
            inputs, targets = next(iterator)
            loss, norm, mems = strategy.run(replica_step, args=(inputs, targets, mems))
            # Every replica has the same sums: take the first.
            first = [strategy.experimental_local_results(value)[0] for value in (loss, norm)]
            sums += tf.cast(tf.stack(first), sums.dtype)
        return mems, sums

    return host_loop
