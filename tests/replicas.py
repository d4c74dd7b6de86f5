"""The strategies of the tests, each made once: a second MirroredStrategy would reuse the first's collective keys."""

import functools

from txl_tf.distribute import make_strategy


@functools.cache
def one_device():
    return make_strategy("one_device")


@functools.cache
def two_replicas():
    """Two logical CPUs."""
    strategy = make_strategy("mirrored")
    assert strategy.num_replicas_in_sync == 2
    return strategy
