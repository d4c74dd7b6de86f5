"""Packed weights, in programs and in SavedModels."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.inference.generation.packed import Packed, stored
from txl_tf.storage.literal_paths import load_saved_model


class Weights(tf.Module):
    """A matrix that two layers share, packed."""

    def __init__(self, int8):
        super().__init__()
        self.matrix = tf.Variable(np.random.default_rng(0).normal(size=[64, 96]).astype(np.float32))
        self.packed = Packed(lambda: stored([tf.convert_to_tensor(self.matrix)] * 2, int8))

    @tf.function(input_signature=[], autograph=False)
    def numbers(self):
        return {str(i): tf.identity(part) for i, part in enumerate(self.packed.tensors()) if part is not None}


@pytest.mark.parametrize("int8", [False, True])
def test_a_saved_model_packs_when_it_is_loaded_and_does_not_hold_what_is_packed(tmp_path, int8):
    weights = Weights(int8)
    weights.resources = weights.packed.resources()
    tf.saved_model.save(weights, str(tmp_path), signatures=weights.numbers)
    size = sum(path.stat().st_size for path in tmp_path.glob("variables/*"))
    assert weights.matrix.shape.num_elements() * 4 < size < weights.matrix.shape.num_elements() * 4 + 2000
    signature = load_saved_model(str(tmp_path)).signatures["serving_default"]
    gc.collect()  # what was loaded, but for the signature
    for found in signature(), weights.numbers():
        for i, part in enumerate(weights.packed.tensors()):
            assert part is None or np.array_equal(found[str(i)], part)


def test_refresh_reaches_graphs_that_were_traced_before():
    weights = Weights(False)
    before = weights.numbers()["0"]
    weights.matrix.assign(weights.matrix * 2)
    np.testing.assert_array_equal(weights.numbers()["0"], before)
    weights.packed.refresh()
    np.testing.assert_array_equal(weights.numbers()["0"], 2 * before)
    np.testing.assert_array_equal(weights.packed.tensors().numbers, 2 * before)
