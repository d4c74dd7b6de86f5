"""Tokens are written into their slots of the rings, and nowhere else, by each platform's own method."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.ops import KeyValueRing, platform
from txl_tf.ops import write as write_ring
from txl_tf.ops.scores import TILE


@pytest.mark.xla
@pytest.mark.parametrize("batch", [2, None])
@pytest.mark.parametrize(
    ("target", "slots", "method"),
    [
        ("cpu", 2 * TILE, "TensorScatterUpdate"),
        ("tpu", 2 * TILE, "XlaDynamicUpdateSlice"),
        ("tpu", 2 * TILE + 1, "TensorScatterUpdate"),
        ("gpu", 2 * TILE + 1, "XlaDynamicUpdateSlice"),
    ],
)
def test_a_token_is_written_into_its_slot(target, slots, method, batch):
    rng = np.random.default_rng(0)
    keys, values = rng.normal(size=[2, 2, 3, slots, 4])
    key, value = rng.normal(size=[2, 2, 3, 1, 4])
    ring, token = tf.TensorSpec([batch, 3, slots, 4], tf.float64), tf.TensorSpec([batch, 3, 1, 4], tf.float64)

    @tf.function(jit_compile=True, input_signature=[ring, ring, tf.TensorSpec([], tf.int32), token, token])
    def write(keys, values, start, key, value):
        return write_ring(KeyValueRing(keys, values, start), key, value)

    with platform.traced_for(target):
        written = write.get_concrete_function()
    operations = {node.op for node in written.graph.as_graph_def().node}
    assert operations & {"TensorScatterUpdate", "XlaDynamicUpdateSlice"} == {method}
    for start in (0, 1, TILE - 1, TILE, TILE + 77, slots - 1):
        found = written(*map(tf.constant, (keys, values, np.int32(start), key, value)))
        for old, new, result in ((keys, key, found[0]), (values, value, found[1])):
            expected = old.copy()
            expected[:, :, start] = new[:, :, 0]
            np.testing.assert_array_equal(result, expected)
        assert int(found[2]) == (start + 1) % slots


@pytest.mark.xla
@pytest.mark.parametrize(("saved", "method"), [(False, "XlaDynamicUpdateSlice"), (True, "TensorScatterUpdate")])
def test_a_whole_segment_is_written_into_its_slots(saved, method):
    rng = np.random.default_rng(0)
    keys, values = (tf.cast(slots, tf.bfloat16) for slots in rng.normal(size=[2, 2, 3, 15, 4]))
    key, value = (tf.cast(new, tf.bfloat16) for new in rng.normal(size=[2, 2, 3, 5, 4]))

    @tf.function(jit_compile=True)
    def write(start):
        return write_ring(KeyValueRing(keys, values, start), key, value, block=5)

    with platform.traced_for("cpu"), platform.for_saved_model() if saved else contextlib.nullcontext():
        written = write.get_concrete_function(tf.TensorSpec([], tf.int32))
    operations = {node.op for node in written.graph.as_graph_def().node}
    assert operations & {"TensorScatterUpdate", "XlaDynamicUpdateSlice"} == {method}
    for start in (0, 5, 10):
        found = written(tf.constant(start))
        for old, new, result in ((keys, key, found[0]), (values, value, found[1])):
            np.testing.assert_array_equal(result, tf.concat([old[:, :, :start], new, old[:, :, start + 5 :]], 2))
        assert int(found[2]) == (start + 5) % 15


def test_without_xla_a_gpu_writes_by_a_scatter():
    ring, token = tf.TensorSpec([1, 2, 8, 4]), tf.TensorSpec([1, 2, 1, 4])
    write = tf.function(lambda keys, start, key: write_ring(KeyValueRing(keys, keys, start), key, key))
    with platform.traced_for("gpu"):
        graph = write.get_concrete_function(ring, tf.TensorSpec([], tf.int32), token).graph
    assert "XlaDynamicUpdateSlice" not in {node.op for node in graph.as_graph_def().node}
