"""The kernels of a program that was compiled for a GPU, and the bytes that they read and write."""

from typing import NamedTuple

from aot.program import Program, sizes_of

KERNELS = {"fusion", "custom-call", "copy", "sort", "scatter", "reduce", "transpose", "concatenate", "dot"}
"""Opcodes whose instructions are kernels, or calls of a library that start one or a few."""
SMALL = 2_000_000
"""Bytes below which a kernel costs its launch rather than its memory traffic on today's cards."""


class Kernel(NamedTuple):
    """One kernel.

    Attributes:
        scope: its TensorFlow name.
        opcode: HLO's.
        bytes: of its operands and results, each counted whole, once for each run.
        runs: how often a step runs it.
    """

    scope: str
    opcode: str
    bytes: int
    runs: int


def kernels_of(program: Program, unknown_trips: int = 0) -> list[Kernel]:
    """The kernels of a step.

    Args:
        program: as the compiler wrote it.
        unknown_trips: iterations to assume for loops whose number of iterations depends on the data.
    """
    shapes = {one.name: one.shape for computation in program.computations.values() for one in computation.values()}
    found = []
    for one, runs in program.executed(unknown_trips):
        if one.opcode not in KERNELS or not runs:
            continue
        arrays = [one.shape, *(shapes.get(name, "") for name in set(one.operands))]
        size = sum(sum(sizes_of(shape)) for shape in arrays)
        found.append(Kernel(program.scope_of(one), one.opcode, size, runs))
    return found
