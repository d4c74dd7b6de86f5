"""Checkpoints that continue a run exactly: weights and their average, Adam's moments, mems, sums of the log line.

The data position and the dropout seeds need no state of their own: both follow from the step.
"""

import tensorflow as tf

from txl_tf.distribute import gather_mems, scatter_mems
from txl_tf.model_dir import CHECKPOINT_NAME, variables_by_path


class Checkpoints:
    """Saves and restores a run in its model_dir.

    Args:
        model_dir: where; local or gs://.
        strategy, model, optimizer, average: of the run.
        mems: per-replica Mems, for their shapes.
        sums: the host loop's, as it carries them.
        keep: how many of the newest checkpoints stay.
    """

    def __init__(self, model_dir, strategy, model, optimizer, average, mems, sums, keep):
        self.strategy = strategy
        self.structure = gather_mems(strategy, mems)
        with tf.device("CPU"):  # the copies to save live on the host
            self.mems = [tf.Variable(tensor, trainable=False) for tensor in tf.nest.flatten(self.structure)]
            self.sums = tf.Variable(sums, trainable=False)
        checkpoint = tf.train.Checkpoint(
            model=variables_by_path(model),
            optimizer=optimizer.by_path(),
            average=average.by_path(),
            mems=self.mems,
            sums=self.sums,
        )
        self.manager = tf.train.CheckpointManager(
            checkpoint, model_dir, max_to_keep=keep, checkpoint_name=CHECKPOINT_NAME
        )

    def save(self, step, mems, sums):
        """Writes ckpt-{step} and drops the oldest beyond `keep`."""
        for variable, tensor in zip(self.mems, tf.nest.flatten(gather_mems(self.strategy, mems)), strict=True):
            variable.assign(tensor)
        self.sums.assign(sums)
        self.manager.save(checkpoint_number=step)

    def restore(self):
        """Takes up the newest checkpoint: (per-replica mems, sums), or None where there is none."""
        if self.manager.latest_checkpoint is None:
            return None
        self.manager.checkpoint.restore(self.manager.latest_checkpoint).assert_consumed()
        mems = tf.nest.pack_sequence_as(self.structure, [tf.identity(variable) for variable in self.mems])
        return scatter_mems(self.strategy, mems), tf.identity(self.sums)
