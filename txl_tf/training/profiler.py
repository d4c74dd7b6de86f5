"""A TensorBoard profile of some training steps."""

import tensorflow as tf


class Profiler:
    """Profiles a run between two steps; its host loop must stop at both.

    Args:
        folder: of TensorBoard; the profile goes to plugins/profile/ in it.
        steps: (a, b): from a updates made to b; or () for no profile.
    """

    def __init__(self, folder, steps):
        self.folder = folder
        self.first, self.last = steps or (0, 0)
        self.running = False

    def at(self, step):
        """Starts or stops what is due when `step` updates are made."""
        wanted = self.first <= step < self.last
        if wanted and not self.running:
            tf.profiler.experimental.start(self.folder)
        elif self.running and not wanted:
            tf.profiler.experimental.stop()
            print(f"step {step:>7,} | profile of {self.first:,} to {self.last:,} in {self.folder}", flush=True)
        self.running = wanted
