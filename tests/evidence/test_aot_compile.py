"""aot_compile.py with the real TPU compiler: in processes of their own, which load JAX and libtpu."""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SIZES = (
    "--vocab_size=600 --cutoffs=100,200 --n_layer=1 --d_model=128 --d_embed=128 --n_head=2 --d_head=64 --d_inner=128"
)
SMALL = ["--preset=wt103_large", *SIZES.split(), "--tgt_len=16", "--mem_len=128"]

has_compiler = all(importlib.util.find_spec(name) for name in ("jax", "libtpu"))
needs_compiler = pytest.mark.skipif(not has_compiler, reason="JAX and libtpu are not installed")


def run(script, *flags):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, ROOT / script, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


def compiled(*flags):
    return run("evidence/compilers/aot_compile.py", *flags)


@needs_compiler
@pytest.mark.slow
def test_an_evaluation_step_is_compiled_and_costed(tmp_path):
    done = compiled(
        *SMALL,
        "--mode=eval",
        "--batch_size_per_core=2",
        f"--hlo_out={tmp_path}/hlo",
    )
    assert done.returncode == 0, done.stderr
    *table, sentence, line = done.stdout.splitlines()
    line = json.loads(line)
    assert sentence == f"fits: {round(line['hbm_bytes'] / 1e9, 1):g} of 16.9 GB"
    begun = [line for line in done.stderr.splitlines() if not line.endswith(" s so far")]  # on a slow machine
    assert begun == ["tracing the step with 2 lanes ..", "compiling it for v5e:1x1 .."]
    assert (line["topology"], line["mode"], line["cores"], line["batch_size_per_core"]) == ("v5e:1x1", "eval", 1, 2)
    assert line["estimated_cycles"] > 10_000 and line["flops"] > 1e6 and line["bytes_accessed"] > 1e5
    assert line["fits"] and line["hbm_available"] == int(15.75 * 2**30) and line["compile_seconds"] > 0
    # The weights and the cache of one layer of two texts, in float32: 16 more slots than memory, 2 heads of 64.
    cache = 2 * 2 * 2 * (128 + 16) * 64 * 4
    assert cache < line["hbm_arguments"] < line["hbm_bytes"] < 4e6
    assert any("feed-forward" in row for row in table) and any("mems or cache" in row for row in table)
    assert (tmp_path / "hlo").read_text().startswith("HloModule")


@needs_compiler
@pytest.mark.slow
def test_a_training_step_computes_what_tensorflow_does_and_replicas_reduce_together():
    done = run("tests/evidence/stablehlo_on_cpu.py")
    assert done.returncode == 0, done.stderr
    *alone, several = (json.loads(line) for line in done.stdout.splitlines())
    for one in alone:  # for a TPU and for a GPU
        assert one["loss"] > 3.5 and max(one["differences"]) < 1e-5  # loss, norm, mems, weights and moments
    assert len(alone) == 2
    reduced = [line for line in several["hlo"].splitlines() if " all-reduce(" in line or " all-reduce-start(" in line]
    assert reduced and all("replica_groups={{0,1}}" in line or "[1,2]" in line for line in reduced)


@needs_compiler
@pytest.mark.parametrize(
    "topology", ["v5e:0x0", *(pytest.param(name, marks=pytest.mark.slow) for name in ("v5e:3x7", "nope"))]
)
def test_an_unknown_topology_is_one_line(topology):
    done = compiled(*SMALL, f"--topology={topology}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: --topology={topology} is not one the TPU compiler knows")
    assert done.stderr.count("\n") == 1


@needs_compiler
@pytest.mark.slow
def test_a_gpus_programs_run_step_after_step(tmp_path):
    """Without a GPU the benchmark compares the CPU with itself, over three steps."""
    modes = ("train", "eval", "generate")
    for mode in modes:
        done = compiled(
            *SMALL,
            f"--mode={mode}",
            "--target=gpu",
            f"--stablehlo_out={tmp_path}/{mode}",
        )
        assert done.returncode == 0 and not done.stdout, done.stderr
    done = run("evidence/bench/gpu.py", "--check", *(tmp_path / mode for mode in modes))
    assert done.returncode == 0, done.stderr
    train, evaluation, generation = (json.loads(line) for line in done.stdout.splitlines())
    assert train["largest"][0][0] == evaluation["largest"][0][0] == generation["largest"][0][0] == 0
    loss, _ = train["means"]["output 0 of step 2"]
    assert 6 < loss < math.log(600), "the loss falls below that of 600 equal tokens"
    losses, _ = evaluation["means"]["output 1 of step 2"]
    assert 6 < losses < 7


@needs_compiler
@pytest.mark.parametrize("flags", [[], ["--stablehlo_out=FILE", "--hlo_out=FILE"]])
def test_nothing_is_compiled_for_a_gpu(flags):
    done = compiled(*SMALL, "--target=gpu", *flags)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: --target=gpu needs --stablehlo_out, without --hlo_out and --fit")


@pytest.mark.skipif(has_compiler, reason="JAX and libtpu are installed")
def test_without_the_compiler_one_line_says_how_to_get_it():
    done = compiled(*SMALL)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "pip install -r evidence/compilers/requirements-aot.txt" in done.stderr
