"""The costs of a compiled program by kind of layer, read from the HLO that the compiler wrote."""

import collections
import re

from txl_tf.ops.gradients import ADAM, ATTENTION

KINDS = {
    "optimizer": rf"Adam|^{ADAM}(_\d+)?/|^Assign",
    "clipping": r"global_norm|multiply_no_nan",
    "random numbers and dropout": r"random|dropout",
    "layer norm": r"_norm(_\d+)?/",
    "feed-forward": r"feed_forward",
    "attention: relative shift": r"layer_\d+.*/(relative_shift|strided_slice|Pad|pad|Roll|Slice)",
    "attention: softmax": r"layer_\d+.*/(Softmax|softmax)|layer_\d+.*/(mul|sub|Sum)(_\d+)?$",
    "attention: the rest": rf"layer_\d+|^{ATTENTION}(_\d+)?/",
    "embedding": r"embedding",
    "adaptive softmax": r"while|Softmax|argsort|MatMul|ReduceLogSumExp|Scatter|Gather",
}
"""Kinds of instructions, each with a pattern for TensorFlow names, which hold scopes; the first match counts.

A fusion has the name of only one of its operations, so the sums are approximate.
"""
ARGUMENTS = {
    "weight averages": r"^average/",
    "optimizer's slots": r"^adam/",
    "mems or cache": r"^state/",
    "weights": r"/",
}


def kind_of(name, opcode):
    """The key of KINDS for a TensorFlow name; without a name, as in the compiler's copies, the opcode."""
    if not name:
        return f"the compiler's own: {opcode}"
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "the rest")


def tables(program, parameters, loop_trips=0):
    """Two tables as lines of text: cycles, then bytes of HBM.

    Args:
        program: a Program.
        parameters: its parameters' names, in order.
        loop_trips: as for `Program.costs`.
    """
    cycles = collections.Counter()
    for cost in program.costs(loop_trips):
        cycles[kind_of(cost.name, cost.opcode)] += cost.amount
    yield from _table("million cycles", cycles, 1e6)
    yield ""
    yield from _table("GB of HBM", _memory(program, parameters), 1e9)


def gpu_tables(program, parameters, kernels):
    """Three tables as lines of text: bytes read and written, then bytes of memory, then the largest arrays.

    Args:
        program, parameters: as for `tables`.
        kernels: the list of `kernels_of`.
    """
    traffic = collections.Counter()
    for kernel in kernels:
        traffic[kind_of(kernel.scope, kernel.opcode)] += kernel.bytes * kernel.runs
    yield from _table("GB a step", traffic, 1e9)
    yield ""
    yield from _table("GB of memory", _memory(program, parameters), 1e9)
    yield ""
    yield "            MB of the largest arrays at the peak"
    for cost in sorted(program.live_at_peak(), key=lambda cost: cost.amount, reverse=True)[:10]:
        yield f"{cost.amount / 1e6:14.1f}  {cost.name[-70:] or cost.opcode}"


def _memory(program, parameters):
    """Bytes of memory by kind: of the parameters, and of buffers that are live at the peak."""
    memory = collections.Counter()
    for name, size in zip(parameters, program.parameter_bytes(), strict=True):
        kind = next((kind for kind, pattern in ARGUMENTS.items() if re.search(pattern, name)), "batch and constants")
        memory[kind] += size
    for cost in program.live_at_peak():
        memory["at the peak: " + kind_of(cost.name, cost.opcode)] += cost.amount
    return memory


def _table(unit, amounts, scale):
    total = sum(amounts.values()) or 1
    yield f"{unit:>14}"
    for kind, amount in amounts.most_common(20):
        yield f"{amount / scale:14.3f} {amount / total:6.1%}  {kind}"
    yield f"{sum(amounts.values()) / scale:14.3f}         in all"
