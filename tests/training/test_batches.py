"""Reading batches leaves malloc as it is."""

import sys

import processes
import pytest

PROGRAM = """
import ctypes, resource
import tensorflow as tf
from txl_tf.devices import distribute

dataset = tf.data.Dataset.from_tensors([1, 2]).repeat()
next(iter(distribute.distribute_batches(distribute.make_strategy("one_device"), lambda **hosts: dataset)))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    memory = libc.malloc(16 << 20)
    ctypes.memset(memory, 1, 16 << 20)
    libc.free(memory)
print("faults", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about the C library of Linux")
def test_on_a_cpu_reading_batches_leaves_freed_memory_to_the_process():
    done = processes.run(["-c", PROGRAM])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split("faults")[1]) < 100  # of 4,096 pages
