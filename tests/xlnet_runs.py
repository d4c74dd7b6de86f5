"""Lets config.json name an XLNet's run where no task of the family is registered; loads no TensorFlow."""

import dataclasses

from txl_tf import families
from txl_tf.models.xlnet.config import XLNetRunConfig


def read_runs():
    """Registers a task that only has settings, if there is none."""
    if not families.XLNET.tasks:
        nothing = dict.fromkeys(field.name for field in dataclasses.fields(families.Task))
        task = families.Task(**nothing | {"config": XLNetRunConfig})
        families.register(dataclasses.replace(families.XLNET, tasks={XLNetRunConfig.task: task}))
