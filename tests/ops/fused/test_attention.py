"""The kernels of attention for a GPU, which JAX runs here on the CPU, against the formulas."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.ops.fused import attention
from txl_tf.ops.plain import Plain
from txl_tf.ops.scores import Drop, Scores

kernels = pytest.importorskip("txl_tf.ops.fused.kernels", reason="JAX is not installed")
ROOT = pathlib.Path(__file__).parents[3]
B, H = 2, 2
KERNELS = "output", "of_queries", "of_keys", "of_positions"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Kernels run by JAX's interpreter."""

    def call(kernel, sizes, inputs):
        program = kernels.program(kernel, sizes, interpret=True)
        return [tf.constant(np.asarray(x)) for x in program(*(x.numpy() for x in inputs))]

    monkeypatch.setattr(attention, "call", call)


def arguments(t_len, k_len, width, causal, dtype="float32", lanes=()):
    """Query, position query, key, position and value, and a mask that hides some of the visible keys.

    lanes: [B, 1] for a mask of every lane.
    """
    generator = np.random.default_rng(t_len)
    rows = k_len if causal else k_len + t_len - 1
    shapes = [(B, H, t_len, width)] * 2 + [(B, H, k_len, width), (H, rows, width), (B, H, k_len, width)]
    i, j = np.arange(t_len)[:, None], np.arange(k_len)
    age = i + k_len - t_len - j
    mask = (age >= 0) & (age < 90) if causal else generator.random((*lanes, t_len, k_len)) < 0.8
    return [tf.constant(generator.normal(size=shape), dtype) for shape in shapes], tf.constant(mask)


def value_and_gradients(attend, inputs, mask, causal, drop):
    """The weighted values, and the gradients of a loss whose gradient differs in each of them."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        query, position_query, key, position, value = inputs
        scores = Scores(query, key, position_query, position, causal=causal)
        assert attention.suits(scores, mask, drop) or attend is not attention.attend
        output = attend(scores, value, mask, drop)
        wide = tf.cast(output, tf.float64)
        loss = tf.reduce_sum(tf.sin(wide + tf.reshape(tf.range(tf.size(wide), dtype=tf.float64), wide.shape)))
    return [output, *tape.gradient(loss, inputs)]


@pytest.mark.parametrize(
    ("t_len", "k_len", "width", "causal", "rate", "lanes"),
    [
        pytest.param(64, 128, 32, True, 0.0, (), id="whole_tiles", marks=pytest.mark.slow),
        pytest.param(70, 140, 38, True, 0.0, (), id="parts_of_tiles", marks=pytest.mark.slow),
        pytest.param(150, 170, 16, True, 0.25, (), id="dropout_in_two_masks"),
        pytest.param(70, 100, 16, False, 0.1, (B, 1), id="both_directions_a_mask_for_each_lane"),
    ],
)
def test_values_and_gradients_are_those_of_the_formulas(t_len, k_len, width, causal, rate, lanes):
    inputs, mask = arguments(t_len, k_len, width, causal, lanes=lanes)
    drop = Drop(rate, tf.constant([[3, 5], [-7, 11]]) if rate else None)
    actual = value_and_gradients(attention.attend, inputs, mask, causal, drop)

    expected = value_and_gradients(Plain().attend, [tf.cast(x, tf.float64) for x in inputs], mask, causal, drop)
    for kernel, formula in zip(actual, expected, strict=True):
        np.testing.assert_allclose(kernel, formula, rtol=0, atol=2e-5 * np.abs(formula).max())


@pytest.mark.slow
def test_bfloat16_is_rounded_but_not_wrong():
    inputs, mask = arguments(64, 128, 64, True, "bfloat16")
    actual = value_and_gradients(attention.attend, inputs, mask, True, Drop())
    wide = [tf.cast(x, tf.float64) for x in inputs]
    expected = value_and_gradients(Plain().attend, wide, mask, True, Drop())
    for kernel, formula in zip(actual, expected, strict=True):
        assert kernel.dtype == tf.bfloat16
        np.testing.assert_allclose(tf.cast(kernel, tf.float64), formula, rtol=0, atol=0.02 * np.abs(formula).max())


@pytest.mark.slow
def test_lanes_that_share_a_gradient_of_the_positions_are_added():
    inputs, mask = arguments(16, 32, 16, True)
    inputs = [tf.tile(x, [3, 1, 1, 1]) if x.shape.rank == 4 else x for x in inputs]  # 6 lanes, 2 and 2 of them alike
    once = value_and_gradients(attention.attend, inputs, mask, True, Drop())
    formula = value_and_gradients(Plain().attend, inputs, mask, True, Drop())
    np.testing.assert_allclose(once[4], formula[4], atol=2e-5 * np.abs(formula[4]).max())


def test_without_jax_they_are_an_error(monkeypatch):
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^--ops=fused needs JAX: run python -m pip install 'txl_tf\[gpu\]'$"):
        attention.Fused(only_compiled=True)


@pytest.mark.slow
def test_a_training_step_for_a_gpu_calls_the_kernels_of_attention(tmp_path):
    sizes = "--n_layer=2 --d_model=32 --d_embed=32 --n_head=2 --d_head=16 --d_inner=32 --tgt_len=16 --mem_len=16"
    command = [
        sys.executable,
        ROOT / "evidence/compilers/aot_compile.py",
        "--preset=enwik8_base",
        "--target=gpu",
        *sizes.split(),
    ]
    command += ["--ops=fused", "--dropatt=0.1", "--batch_size_per_core=2", f"--stablehlo_out={tmp_path}/step"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    step = (tmp_path / "step").read_bytes()
    assert all(f'name = "{name}"'.encode() in step for name in KERNELS)
