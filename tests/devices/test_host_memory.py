"""Variables for values that are assigned later."""

import ctypes
import os
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.devices import host_memory


def resident():
    """Bytes of memory that this process has taken."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_variables_without_initial_values_take_no_memory_and_can_be_assigned():
    before = resident()
    with host_memory.without_initial_values():
        large = keras.layers.Dense(2**15)
        large.build([None, 2**15])  # 4 GiB
        small = keras.layers.Dense(3)
        small.build([None, 2])
    assert large.kernel.shape == (2**15, 2**15) and resident() - before < 2**30
    small.kernel.assign([[1, 2, 3], [4, 5, 6]])
    small.bias.assign([0, 0, 1])
    assert small(tf.constant([[1.0, 1.0]])).numpy().tolist() == [[5, 7, 10]]


def test_variables_get_their_values_at_the_end():
    def make(size):
        return keras.layers.Dense(size, kernel_initializer=keras.initializers.RandomNormal(seed=3))

    plain, later = make(3), make(3)
    plain.build([None, 2])
    with host_memory.values_at_the_end():
        later.build([None, 2])
        assert later.kernel.shape == (2, 3)
    np.testing.assert_array_equal(later.kernel, plain.kernel)
    assert later(tf.constant([[1.0, 1.0]])).shape == (1, 3)


def test_variables_of_a_refused_model_never_take_memory():
    before = resident()
    with pytest.raises(ValueError, match="too large"), host_memory.values_at_the_end():
        keras.layers.Dense(2**15).build([None, 2**15])  # 4 GiB
        raise ValueError("too large")
    with host_memory.values_at_the_end():  # at its end Keras makes all that it has not made yet
        keras.layers.Dense(2).build([None, 2])
    assert resident() - before < 2**30


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="malloc gives nothing back here")
def test_free_memory_goes_back_during_the_first_call():
    def free_pieces():
        """Frees 300 MB in pieces, of which a few stay in use; returns what of them is resident a second later."""
        before = resident()
        pieces = [b"1" * (100_000 + i) for i in range(3000)]
        kept = pieces[::100]
        assert resident() - before > 250e6
        del pieces
        time.sleep(1)
        taken = resident() - before
        return taken, len(kept)

    ctypes.CDLL(None).malloc_trim(0)  # what other tests left
    call = host_memory.without_leftovers(free_pieces)
    first, _ = call()
    second, _ = call()
    assert first < 50e6
    assert second > 200e6  # later calls are as they were
