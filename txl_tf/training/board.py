"""TensorBoard's event files: curves, pictures and texts of a run."""

import dataclasses
import math
import time

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams import api as hparams

FOLDER = "tensorboard"
SPLITS = ("train", "valid")
"""Folders of curves. Those of the same name are drawn into one chart: loss on train, and loss on valid."""


class Board:
    """Writes into tensorboard/ of a model_dir: curves by split into its folders, everything else into itself.

    Args:
        model_dir: of the run; local or gs://.
        step: updates already made. What the files have of later ones, from a run that was killed after its last
            save, TensorBoard then drops: curves never go back in time.
    """

    def __init__(self, model_dir, step):
        self.folder = tf.io.gfile.join(model_dir, FOLDER)
        self.writers = {}
        for name in ("", *SPLITS):
            path = tf.io.gfile.join(self.folder, name)
            _mark_start(path, step)
            self.writers[name] = tf.summary.create_file_writer(path)

    def scalars(self, split, step, values):
        """Points of curves, {"group/name": value}, None or NaN for none; `split` is one of `SPLITS`."""
        with self.writers[split].as_default(step=step):
            for name, value in values.items():
                if value is not None and math.isfinite(value):
                    tf.summary.scalar(name, value)
        self.writers[split].flush()

    def text(self, step, name, markdown):
        """A text, as Markdown."""
        with self.writers[""].as_default(step=step):
            tf.summary.text(name, markdown)
        self.writers[""].flush()

    def picture(self, step, name, pixels):
        """A picture, uint8 [height, width, 3]."""
        with self.writers[""].as_default(step=step):
            tf.summary.image(name, pixels[None])
        self.writers[""].flush()

    def hyperparameters(self, trial, values, metrics):
        """A row of the HPARAMS table, where runs are compared.

        Args:
            trial: the run's name; runs of the same name would be one.
            values: {name: bool, number or str}.
            metrics: [(split, name of a curve)], its columns for results.
        """
        with self.writers[""].as_default(step=0):
            hparams.hparams_config(
                hparams=[hparams.HParam(name) for name in values],
                metrics=[hparams.Metric(name, group=split, display_name=f"{split} {name}") for split, name in metrics],
            )
            hparams.hparams(values, trial_id=trial)
        self.writers[""].flush()


def setting_values(config, leave_out=()):
    """The settings of a Config as TensorBoard takes them: {name: bool, number or str}."""
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for group in ("model", "data", "train")
        for name, value in dataclasses.asdict(getattr(config, group)).items()
        if name not in leave_out
    }


def _mark_start(folder, step):
    """Tells TensorBoard that a run starts or goes on after `step`.

    From the second start on it drops what older files of the folder have of later steps.
    """
    # It reads files in the order of their names, which begin with the second they were made in. The host's name
    # would be next: with none this file comes before the new run's own.
    tf.io.gfile.makedirs(folder)
    path = tf.io.gfile.join(folder, f"events.out.tfevents.{int(time.time()):010d}..start")
    start = Event(wall_time=time.time(), step=step + 1, session_log=SessionLog(status=SessionLog.START))
    with tf.io.TFRecordWriter(path) as file:
        for event in (Event(wall_time=time.time(), file_version="brain.Event:2"), start):
            file.write(event.SerializeToString())
