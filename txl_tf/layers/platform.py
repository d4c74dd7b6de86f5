"""What a program that is being traced will run on, where layers take another way for it."""

import tensorflow as tf


def on_tpu():
    """Whether it is a TPU."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
