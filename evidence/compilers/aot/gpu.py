"""Compiles StableHLO for a GPU without one, with XLA from JAX's CUDA plugin."""

import math
import os
import re
import time
from typing import NamedTuple

from aot.cards import Card
from txl_tf.errors import InputError

os.environ["JAX_PLATFORMS"] = "cpu"  # JAX itself runs nothing, and need not look for a GPU
try:
    import jax
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager
except ImportError as error:
    raise InputError(
        f"compiling for a GPU needs JAX ({error}): pip install -r evidence/compilers/requirements-aot-gpu.txt"
    ) from error


_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin}
  threads_per_core_limit: {card.threads} core_count: {card.cores} fpus_per_core: {card.lanes}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth} l2_cache_size: {card.cache} clock_rate_ghz: {card.gigahertz}
  device_memory_size: {card.memory} cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
device_description_str: "{card.name}"
"""


class Compiled(NamedTuple):
    """A compiled program. Sizes in bytes; `hlo` is the text of the optimized program."""

    argument_bytes: int
    output_bytes: int  # of outputs that are not written over an argument
    temp_bytes: int
    half_flops: int  # of matrix products in bfloat16 or float16
    single_flops: int  # of all others
    hlo: str
    seconds: float


def compile_for(card: Card, stablehlo_module: bytes) -> Compiled:
    """Compiles a StableHLO module for one `card`.

    Nothing is measured without the card, so XLA chooses the tiles of products by its own model.

    Raises:
        InputError: the compiler is not installed.
    """
    start = time.perf_counter()
    major, minor = card.capability
    config = _CONFIG.format(
        card=card, major=major, minor=minor, shared=card.shared, optin=card.shared - 1024, bandwidth=int(card.bandwidth)
    )
    try:
        topology = topologies.get_topology_desc("", platform="cuda", target_config=config, topology="1 x 1 x 1")
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError, NotImplementedError) as error:
        raise InputError(
            f"XLA's compiler for GPUs is not installed ({str(error).splitlines()[0]}): "
            "pip install -r evidence/compilers/requirements-aot-gpu.txt"
        ) from error
    with mlir.make_ir_context():
        module = ir.Module.parse(stablehlo_module)
        # Products that nothing reads are removed, since they must not count.
        PassManager.parse("builtin.module(canonicalize)").run(module.operation)
        half, single = _product_flops(module.operation)
        devices = topology.devices
        executable = devices[0].client.compile(module, _jax.DeviceList(tuple(devices)), _jax.CompileOptions())
    memory = executable.get_compiled_memory_stats()
    return Compiled(
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        half_flops=half,
        single_flops=single,
        hlo=executable.hlo_modules()[0].to_string(),
        seconds=time.perf_counter() - start,
    )


def _product_flops(operation) -> tuple[int, int]:
    """FLOPs of the matrix products inside, (bfloat16 or float16, others); the body of a loop counts once."""
    half = single = 0
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                halves, singles = _product_flops(inner.operation)
                if inner.operation.name == "stablehlo.dot_general":
                    flops, short = _flops(inner.operation)
                    halves, singles = (halves + flops, singles) if short else (halves, singles + flops)
                half, single = half + halves, single + singles
    return half, single


def _flops(product) -> tuple[int, bool]:
    """(FLOPs, whether its numbers have 16 bits) of a stablehlo.dot_general."""
    left = ir.RankedTensorType(product.operands[0].type)
    result = ir.RankedTensorType(product.results[0].type)
    numbers = str(product.attributes["dot_dimension_numbers"])
    contracted = re.search(r"lhs_contracting_dimensions = \[([\d, ]*)\]", numbers)  # an outer product has none
    inner = [left.shape[int(axis)] for axis in contracted[1].split(",")] if contracted else []
    return 2 * math.prod([*result.shape, *inner]), str(left.element_type) in ("bf16", "f16")
