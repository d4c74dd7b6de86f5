"""The bytes and kernels of programs for a GPU, counted by hand."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from aot.kernels import Kernel, kernels_of
from aot.program import Program
from aot.report import gpu_tables
from evidence.test_aot_compile import ROOT, SMALL, compiled

HLO = """\
HloModule step, is_scheduled=true

%fused (p: f32[8,100], q: bf16[100]) -> f32[8,100] {
  %p = f32[8,100]{1,0} parameter(0)
  %q = bf16[100]{0} parameter(1)
  ROOT %inside = f32[8,100]{1,0} negate(%p)
}

%body (b: (s32[], f32[8,100])) -> (s32[], f32[8,100]) {
  %b = (s32[], f32[8,100]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[8,100]{1,0} get-tuple-element(%b), index=1
  %c = f32[8,100]{0,1} copy(%x), metadata={op_name="layer_0/feed_forward/add"}
  ROOT %t = (s32[], f32[8,100]{1,0}) tuple(%i, %c)
}

%condition (c: (s32[], f32[8,100])) -> pred[] {
  %c = (s32[], f32[8,100]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %end = s32[] constant(3)
  ROOT %less = pred[] compare(%n, %end), direction=LT
}

ENTRY %main (a: f32[8,100], s: bf16[100], w: bf16[100,50]) -> f32[8,50] {
  %a = f32[8,100]{1,0} parameter(0)
  %s = bf16[100]{0} parameter(1)
  %w = bf16[100,50]{1,0} parameter(2)
  %scaled = f32[8,100]{1,0} fusion(%a, %s), kind=kLoop, calls=%fused, metadata={op_name="embedding/mul"}
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,100]{1,0}) tuple(%zero, %scaled)
  %loop = (s32[], f32[8,100]{1,0}) while(%start), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"3"}}
  %last = f32[8,100]{1,0} get-tuple-element(%loop), index=1
  %twice = (f32[8,50]{1,0}, s8[64]{0}) custom-call(%last, %w, %last), custom_call_target="__cublas$gemm"
  ROOT %out = f32[8,50]{1,0} get-tuple-element(%twice), index=0
}
"""


def test_operands_and_results_of_each_kernel_count_once():
    hidden, vector, matrix, result, workspace = 8 * 100 * 4, 100 * 2, 100 * 50 * 2, 8 * 50 * 4, 64
    assert kernels_of(Program(HLO)) == [
        Kernel("embedding/mul", "fusion", hidden + vector + hidden, 1),
        Kernel("layer_0/feed_forward/add", "copy", hidden + hidden, 3),  # in each turn of the loop
        Kernel("", "custom-call", hidden + matrix + result + workspace, 1),
    ]


def test_the_tables_add_up():
    program = Program(HLO)
    found = kernels_of(program)
    lines = list(gpu_tables(program, ["batch/0", "embedding/scale", "softmax/table_0"], found))
    total = sum(kernel.bytes * kernel.runs for kernel in found)
    assert f"{total / 1e9:14.3f}         in all" in lines
    assert any("feed-forward" in line for line in lines) and any("weights" in line for line in lines)


@pytest.mark.parametrize("card", ["h100", "t4"])
def test_a_topology_is_no_card(card):
    done = compiled(*SMALL, f"--target={card}", "--topology=v5e:1x1")
    assert done.returncode == 1 and done.stderr == (
        f"error: --topology is for TPUs, and --target={card} is not one: omit one of the two\n"
    )


PRODUCTS = """
from aot import gpu
from aot.gpu import ir, mlir

with mlir.make_ir_context():
    module = ir.Module.parse('''
    func.func public @main(%a: tensor<4x8xbf16>, %b: tensor<8x3xbf16>, %c: tensor<5xf32>, %d: tensor<7xf32>)
        -> (tensor<4x3xbf16>, tensor<5x7xf32>) {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<4x8xbf16>, tensor<8x3xbf16>) -> tensor<4x3xbf16>
      %1 = stablehlo.dot_general %c, %d, contracting_dims = [] x [] : (tensor<5xf32>, tensor<7xf32>) -> tensor<5x7xf32>
      return %0, %1 : tensor<4x3xbf16>, tensor<5x7xf32>
    }''')
    print(gpu._product_flops(module.operation))
"""


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")
def test_flops_of_products_with_and_without_a_sum():
    command = [sys.executable, "-c", PRODUCTS]
    path = os.pathsep.join([str(ROOT), str(ROOT / "evidence" / "compilers")])
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONPATH": path})
    assert done.stdout.strip() == str((2 * 4 * 3 * 8, 2 * 5 * 7)), done.stderr


has_compiler = importlib.util.find_spec("jax_plugins.xla_cuda13") if importlib.util.find_spec("jax_plugins") else None


@pytest.mark.skipif(not has_compiler, reason="evidence/compilers/requirements-aot-gpu.txt is not installed")
@pytest.mark.parametrize("card", ["h100", "a100", "l4", "t4"])
@pytest.mark.slow
def test_a_step_is_compiled_for_each_card(card):
    done = compiled(*SMALL, "--mode=eval", "--batch_size_per_core=2", f"--target={card}")
    assert done.returncode == 0, done.stderr
    *tables, line = done.stdout.splitlines()
    line = json.loads(line)
    assert line["fits"] and line["kernels"] >= line["small_kernels"] > 10 and line["flops"] > 1e6
    # The cache of keys and values of two texts is read at least once: 16 more slots than memory, 2 heads of 64.
    assert line["bytes_accessed"] > 2 * 2 * 2 * (128 + 16) * 64 * 4
    assert line["floor_milliseconds"] == max(line["memory_milliseconds"], line["product_milliseconds"])
    assert any("feed-forward" in row for row in tables)


@pytest.mark.skipif(bool(has_compiler), reason="the compiler is installed")
def test_without_the_compiler_one_line_says_what_to_install():
    if not importlib.util.find_spec("jax"):
        pytest.skip("JAX is not installed")
    done = compiled(*SMALL, "--mode=eval", "--batch_size_per_core=1", "--target=h100")
    *progress, error = done.stderr.splitlines()
    assert done.returncode == 1 and all(line.endswith((" ..", " s so far")) for line in progress), done.stderr
    assert error.startswith("error: XLA's compiler for GPUs is not installed")
    assert "pip install -r evidence/compilers/requirements-aot-gpu.txt" in error
