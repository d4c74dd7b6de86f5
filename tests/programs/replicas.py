"""The strategies of the tests, each made once: a second MirroredStrategy would reuse the first's collective keys."""

import functools

import tensorflow as tf

from txl_tf.devices.distribute import make_strategy


@functools.cache
def one_device():
    return make_strategy("one_device")


@functools.cache
def two_replicas():
    """Two logical CPUs."""
    strategy = make_strategy("mirrored")
    assert strategy.num_replicas_in_sync == 2
    return strategy


class _NoTpu(tf.distribute.cluster_resolver.TPUClusterResolver):
    """Says what a TPU host would say, so that the real TPUStrategy traces, in a v1 graph, without one."""

    def __init__(self, cores):
        self.cores = cores

    def get_tpu_system_metadata(self):
        devices = [("CPU", 0)] + [("TPU", i) for i in range(self.cores)]
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=self.cores,
            num_hosts=1,
            num_of_cores_per_host=self.cores,
            topology=None,
            devices=[
                tf.config.LogicalDevice(f"/job:worker/replica:0/task:0/device:{kind}:{i}", kind) for kind, i in devices
            ],
        )

    def cluster_spec(self):
        return tf.train.ClusterSpec({})

    def master(self, *args, **kwargs):
        return ""


def tpu_cores(cores):
    """TPUStrategy of that many cores; only in a tf.Graph, where it can trace and nothing runs."""
    return tf.distribute.TPUStrategy(_NoTpu(cores))
