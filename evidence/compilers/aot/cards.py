"""The GPUs that steps can be compiled for, from public data sheets."""

from typing import NamedTuple


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
        half, single: FLOP/s of dense matrix products in bfloat16 and in float32, as TF32 if the card has it.
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
    # Its tensor cores have only float16: bfloat16 is computed at float32's rate.
    "t4": Card(
        "Tesla T4", (7, 5), 40, 64, 1024, 1.59, 15_095 << 20, 0.32e12, 4 << 20, 64 << 10, half=8.1e12, single=8.1e12
    ),
}  # fmt: skip
"""The cards, by the names that --target takes."""
RESERVED = 1_800 << 20
"""Bytes of a card's memory that a program cannot use: CUDA's context, and libraries with their workspaces."""
