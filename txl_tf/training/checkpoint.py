"""Checkpoints that continue a run exactly: weights and their average, moments, state, and the log line's sums.

The data position and the dropout seeds are not saved: both follow from the step. The best score and early stopping
follow from evaluations.jsonl.

A checkpoint is written in saving/ and then renamed, its index last. So a checkpoint with an index is complete, even if
the process was killed. Its tensors have checksums, so that later damage on the disk is detected when it is read.
"""

from __future__ import annotations

import concurrent.futures
from typing import Any

import keras
import tensorflow as tf

from txl_tf.devices.distribute import gather_state, is_chief, scatter_state
from txl_tf.errors import InputError, one_line
from txl_tf.objectives.base import State
from txl_tf.runs import checkpoints
from txl_tf.runs import model_dir as model_dirs
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.sharding import PartVariable

SAVING = "saving"


class Checkpoints:
    """Saves and restores a run in its model_dir, local or gs://.

    `save` copies the values into the host's memory and returns; a thread writes them while training continues. It
    writes one checkpoint at a time, so they are finished in order. Use this object as a context: its end waits for the
    last write. With several workers only the chief writes, but all must call `save`, since each has its lanes' state.

    Args:
        state: the per-replica state, for its shapes.
        sums: the host loop's stacked Sums.
        keep: how many of the newest checkpoints stay. The best one (`model_dir.best_step`) and the last one before the
            last bad step (`model_dir.last_bad_step`) always stay.
    """

    def __init__(
        self,
        model_dir: str,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        optimizer: Adam,
        average: WeightAverage,
        state: State,
        sums: tf.Tensor,
        keep: int,
    ):
        self.model_dir = model_dir
        self.strategy = strategy
        self.writes = is_chief(strategy)
        self.variables = {
            "model": checkpoints.variables_by_path(model) | optimizer.sharding.by_path(),
            "optimizer": optimizer.by_path(),
            "average": average.by_path(),
        }
        self.structure = gather_state(strategy, state)
        self.sums = sums
        self.keep = keep
        self.writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.writing: concurrent.futures.Future[str | None] | None = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, error: Any, *_: Any) -> None:
        failed = self.wait()
        self.writer.shutdown()
        if failed and error is None:
            raise InputError(f"the last checkpoint could not be written ({failed}): run the same command again")
        if self.writes and error is None:
            self._drop_old()  # the evaluation after the last save may have found a new best one

    def save(self, step: int, state: State, sums: tf.Tensor) -> None:
        """Starts to write ckpt-{step}; then the oldest checkpoints beyond `keep` are deleted.

        First waits for the previous save. If that failed, for example because the disk is full, it printed a message
        and left the older checkpoints alone. The run continues, since its state exists only in memory, and this save is
        the next attempt. Only a failure of the last save is an error.

        Raises:
            InputError: a weight is not finite; nothing is written.
        """
        self.wait()
        parts = self.variables | {"loop": _loop_state(gather_state(self.strategy, state), sums)}
        with tf.device("CPU:0"):  # to the host; if the variable is there already, the copy shares its buffer
            parts = tf.nest.map_structure(_on_host, parts)
        checkpoints.refuse_not_finite(parts["model"], f"step {step:,} is not saved: it")
        if self.writes:
            self.writing = self.writer.submit(self._write, step, parts)

    def wait(self) -> str | None:
        """Waits until the last save is done; returns why it failed, or None."""
        failed = self.writing.result() if self.writing else None
        self.writing = None
        return failed

    def newest(self) -> str | None:
        """The path of the newest checkpoint, or None."""
        self.wait()
        steps = checkpoints.checkpoint_steps(self.model_dir)
        return checkpoints.checkpoint_path(self.model_dir, steps[-1]) if steps else None

    def _write(self, step: int, parts: dict[str, Any]) -> str | None:
        folder = tf.io.gfile.join(self.model_dir, SAVING)
        name = checkpoints.checkpoint_name(step)
        try:
            with tf.device("CPU:0"):
                tf.train.Checkpoint(**tf.nest.map_structure(tf.Variable, parts)).write(tf.io.gfile.join(folder, name))
            for file in sorted(tf.io.gfile.listdir(folder)):  # name.data-*, then name.index
                if file.startswith(f"{name}."):
                    tf.io.gfile.rename(
                        tf.io.gfile.join(folder, file), tf.io.gfile.join(self.model_dir, file), overwrite=True
                    )
            self._drop_old()
            return None
        except (OSError, tf.errors.OpError) as error:
            reason = one_line(error)
            print(f"step {step:,} could not be saved ({reason}); the next save will try again", flush=True)
            return reason
        finally:
            self._remove_saving()

    def _remove_saving(self) -> None:
        folder = tf.io.gfile.join(self.model_dir, SAVING)
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)

    def _drop_old(self) -> None:
        steps = checkpoints.checkpoint_steps(self.model_dir)
        bad = model_dirs.last_bad_step(self.model_dir)
        before_bad = [step for step in steps if bad is not None and step < bad]
        kept = {*steps[-self.keep :], *before_bad[-1:], model_dirs.best_step(self.model_dir)}
        for step, files in checkpoints.checkpoint_files(self.model_dir).items():
            if step not in kept:
                for file in sorted(files, reverse=True):  # the index first
                    tf.io.gfile.remove(tf.io.gfile.join(self.model_dir, file))

    def restore(self, before: int | None = None) -> tuple[State, tf.Tensor] | None:
        """Restores the newest checkpoint that is complete, and renames damaged ones to damaged-*.

        Also deletes the old checkpoints that the last `save` should have deleted, in case it was killed. With `before`
        it considers only checkpoints of earlier steps than this, and changes no file.

        Returns:
            (per-replica state, sums), or None if there is no checkpoint.

        Raises:
            InputError: all checkpoints are damaged; or the newest intact one cannot be read, is of another model
                or has weights that are not finite. Then no file is changed.
        """
        if before is not None:
            earlier = [step for step in checkpoints.checkpoint_steps(self.model_dir) if step < before]
            return self._read(earlier[-1]) if earlier else None
        if self.writes:
            self._remove_saving()  # of a run that was killed
        files = checkpoints.checkpoint_files(self.model_dir)
        finished = checkpoints.checkpoint_steps(self.model_dir)
        for step in sorted(files, reverse=True):
            try:
                restored = self._read(step)
            except checkpoints.DamagedCheckpointError as damage:
                if self.writes:
                    self._set_aside(files[step])
                    print(f"{damage}; set aside as damaged-{checkpoints.checkpoint_name(step)}", flush=True)
                continue
            if self.writes:
                self._drop_old()  # the run may have been killed while it did so at its last save
            return restored
        if finished:
            raise InputError(
                f"{self.model_dir} has no checkpoint that can be read; they are set aside as damaged-*: restore one "
                "under its old name, or run the same command again to start at step 0"
            )
        return None

    def warm_start(self, source: str, head: str, layers: int = 0) -> list[str]:
        """Gives the run the weights of another one; arguments, result and errors as for `model_dir.read_weights`."""
        with tf.device("CPU:0"):
            targets = {name: _whole_of(variable) for name, variable in self.variables["model"].items()}
        fresh = model_dirs.read_weights(source, targets, head, layers)
        for name, variable in self.variables["model"].items():
            if name not in fresh:
                _hand_out(variable, targets[name])
        return fresh

    def _set_aside(self, files: list[str]) -> None:
        for file in sorted(files, reverse=True):
            old, new = (tf.io.gfile.join(self.model_dir, prefix + file) for prefix in ("", "damaged-"))
            tf.io.gfile.rename(old, new, overwrite=True)

    def _read(self, step: int) -> tuple[State, tf.Tensor]:
        with tf.device("CPU:0"):
            loop = tf.nest.map_structure(tf.Variable, _loop_state(self.structure, self.sums))
            # Sharded weights are read whole: a checkpoint does not depend on the number of replicas.
            targets = tf.nest.map_structure(_whole_of, self.variables)
        path = checkpoints.checkpoint_path(self.model_dir, step)
        checkpoints.read_checkpoint(path, **targets, loop=loop)
        tf.nest.map_structure(_hand_out, self.variables, targets)
        checkpoints.refuse_not_finite(targets["model"], path)
        sums, *state = (tf.convert_to_tensor(variable) for variable in loop.values())
        return scatter_state(self.strategy, tf.nest.pack_sequence_as(self.structure, state)), sums


def _on_host(value: Any) -> tf.Tensor:
    return value.whole() if isinstance(value, PartVariable) else tf.identity(value)


def _whole_of(variable: Any) -> tf.Variable:
    """The variable that the value in a checkpoint is read into."""
    if isinstance(variable, PartVariable):
        return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)
    return variable


def _hand_out(variable: Any, whole: tf.Variable) -> None:
    if isinstance(variable, PartVariable):
        variable.assign(whole)


def _loop_state(state: State, sums: tf.Tensor) -> dict[str, Any]:
    """The values that the host loop passes from call to call, by name; in checkpoints every state is named "mems"."""
    return {"sums": sums} | {f"mems/{i}": tensor for i, tensor in enumerate(tf.nest.flatten(state))}
