"""A TensorBoard profile of some training steps."""

from __future__ import annotations

import tensorflow as tf


class Profiler:
    """Profiles training between two steps, (a, b) or (), from after update a to after update b.

    The host loop must return at both. The profile is written to plugins/profile/ below TensorBoard's folder.
    """

    def __init__(self, folder: str, steps: tuple[int, ...]):
        self.folder = folder
        self.first, self.last = steps or (0, 0)
        self.running = False

    def at(self, step: int) -> None:
        """Starts or stops the profile, if that is due after `step` updates."""
        wanted = self.first <= step < self.last
        if wanted and not self.running:
            tf.profiler.experimental.start(self.folder)
        elif self.running and not wanted:
            tf.profiler.experimental.stop()
            print(f"step {step:>7,} | profile of {self.first:,} to {self.last:,} in {self.folder}", flush=True)
        self.running = wanted
