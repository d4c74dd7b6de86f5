"""TensorBoard's event files: curves, histograms, pictures and texts of a run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.hparams import api as hparams

from txl_tf.settings.run import Config
from txl_tf.training.board.charts import Charts, layout_summary
from txl_tf.training.board.pictures import pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "tensorboard"
_LARGEST = float(np.finfo(np.float32).max)


class Board:
    """Writes into tensorboard/ of a model_dir, local or gs://: one entry among TensorBoard's runs.

    `step` updates were made already. TensorBoard then drops points of later steps, which a run that was killed after
    its last save may have left.
    """

    def __init__(self, model_dir: str, step: int):
        self.folder = tf.io.gfile.join(model_dir, FOLDER)
        _mark_start(self.folder, step)
        self.writer = tf.summary.create_file_writer(self.folder)

    def scalars(self, step: int, values: Mapping[str, float | None]) -> None:
        """Writes one point per curve, {"group/name": value}.

        Skips None, NaN, and numbers that are infinite in float32, the type of curves.
        """
        with self.writer.as_default(step=step):
            for name, value in values.items():
                if value is not None and abs(value) <= _LARGEST:
                    tf.summary.scalar(name, value)
        self.writer.flush()

    def text(self, step: int, name: str, markdown: str) -> None:
        """Writes a text in Markdown."""
        with self.writer.as_default(step=step):
            tf.summary.text(name, markdown)
        self.writer.flush()

    def picture(self, step: int, name: str, figure: Figure) -> None:
        """Writes a figure of matplotlib as a picture."""
        with self.writer.as_default(step=step):
            tf.summary.image(name, pixels(figure)[None])
        self.writer.flush()

    def histograms(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """Writes the distributions of arrays, by name."""
        with self.writer.as_default(step=step):
            for name, array in values.items():
                tf.summary.histogram(name, array)
        self.writer.flush()

    def layout(self, step: int, charts: Charts) -> None:
        """Writes the layout of the tab CUSTOM SCALARS: which curves are in which chart."""
        with self.writer.as_default(step=step):
            tf.summary.experimental.write_raw_pb(layout_summary(charts))
        self.writer.flush()

    def hyperparameters(self, trial: str, values: Mapping[str, Any]) -> None:
        """Writes a row of the HPARAMS table, where runs are compared; `trial`, the run's name, must be unique.

        The table's columns are not declared: TensorBoard then finds them in all runs, and begins with the settings in
        which the runs differ. A value is a bool, a number or a text.
        """
        with self.writer.as_default(step=0):
            hparams.hparams(values, trial_id=trial)
        self.writer.flush()


def setting_values(config: Config, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """The settings of a Config in TensorBoard's types: {name: bool, number or str}."""
    return {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for group in ("model", "data", "train")
        for name, value in dataclasses.asdict(getattr(config, group)).items()
        if name not in leave_out
    }


def _mark_start(folder: str, step: int) -> None:
    """Tells TensorBoard that a run starts or continues after `step`: it then drops later steps of older files."""
    # TensorBoard reads files in the order of their names: time in seconds, then the host's name. Without a host's name
    # this file comes before the file that the run will write.
    tf.io.gfile.makedirs(folder)
    path = tf.io.gfile.join(folder, f"events.out.tfevents.{int(time.time()):010d}..start")
    start = Event(wall_time=time.time(), step=step + 1, session_log=SessionLog(status=SessionLog.START))
    with tf.io.TFRecordWriter(path) as file:
        for event in (Event(wall_time=time.time(), file_version="brain.Event:2"), start):
            file.write(event.SerializeToString())
