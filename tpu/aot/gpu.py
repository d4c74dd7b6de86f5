"""Compiles StableHLO for a GPU without one, with XLA as JAX's CUDA plugin brings it."""

import os
import re
import time
from typing import NamedTuple

from txl_tf.errors import InputError

os.environ["JAX_PLATFORMS"] = "cpu"  # JAX itself runs nothing, and must not look for a GPU
try:
    import jax
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax
    from jaxlib.mlir import ir
except ImportError as error:
    raise InputError(f"compiling for a GPU needs JAX ({error}): pip install -r tpu/requirements-aot-gpu.txt") from error


class Card(NamedTuple):
    """A GPU as its data sheet and CUDA's deviceQuery describe it.

    Attributes:
        name: as CUDA reports it.
        capability: CUDA's compute capability.
        cores: streaming multiprocessors.
        lanes: float32 units of a core.
        threads: the most threads that a core holds.
        gigahertz: the highest clock.
        memory: bytes.
        bandwidth: bytes of memory that are read or written in a second.
        cache: bytes of the L2 cache.
        shared: bytes of shared memory of a core; a block can have 1 KiB less.
        half, single: FLOP/s of dense matrix products in bfloat16 and in float32, as TF32 where the card has it.
    """

    name: str
    capability: tuple[int, int]
    cores: int
    lanes: int
    threads: int
    gigahertz: float
    memory: int
    bandwidth: float
    cache: int
    shared: int
    half: float
    single: float


CARDS = {
    # https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (SXM)
    "h100": Card(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 2048, 1.98, 84_978_434_048, 3.35e12, 50 << 20, 228 << 10,
        half=989e12, single=494e12,
    ),
    # https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet.pdf (SXM, 80 GB)
    "a100": Card(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 2048, 1.41, 85_100_068_864, 2.039e12, 40 << 20, 164 << 10,
        half=312e12, single=156e12,
    ),
    # https://www.nvidia.com/en-us/data-center/l4/; the site gives rates with sparsity, twice the dense ones
    "l4": Card(
        "NVIDIA L4", (8, 9), 58, 128, 1536, 2.04, 22_574 << 20, 0.3e12, 48 << 20, 100 << 10, half=121e12, single=60e12
    ),
    # https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf
    # Its tensor cores know float16 alone: bfloat16 is computed at float32's rate.
    "t4": Card(
        "Tesla T4", (7, 5), 40, 64, 1024, 1.59, 15_095 << 20, 0.32e12, 4 << 20, 64 << 10, half=8.1e12, single=8.1e12
    ),
}  # fmt: skip
"""By the name that --target takes."""
RESERVED = 1_800 << 20
"""Bytes of a card's memory that a program cannot have: CUDA's context, and libraries with their workspaces."""
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
            "pip install -r tpu/requirements-aot-gpu.txt"
        ) from error
    with mlir.make_ir_context():
        module = ir.Module.parse(stablehlo_module)
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
    contracted = [int(axis) for axis in re.search(r"lhs_contracting_dimensions = \[([\d, ]*)\]", numbers)[1].split(",")]
    flops = 2
    for size in [*result.shape, *(left.shape[axis] for axis in contracted)]:
        flops *= size
    return flops, str(left.element_type) in ("bf16", "f16")
