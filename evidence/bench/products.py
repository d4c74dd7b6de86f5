r"""Measures how fast the matrix products of a step can be on a CPU, each by itself, beside the whole step.

    python evidence/bench/products.py train.py --size=narrow
    python evidence/bench/products.py train_xlnet.py --work=ours_bfloat16
    python evidence/bench/products.py inference.py --size=narrow

A step is one of training or, with inference.py, of evaluation.

It compiles the benchmark's step with XLA, finds the products in the optimized program, and times each of them alone,
with its shapes and layouts. Rounds of the step and of the products alternate. The JSON line has the milliseconds of a
step, of its products alone, and of the same number of multiplications at the machine's peak. A step takes at least as
long as its products, so `share_of_peak_within_reach` is the most that its share of the peak can be.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from beside import side_by_side, training

HERE = pathlib.Path(__file__).parent
SIDE = 2048  # of the square matrices whose product gives the peak


class Operand(NamedTuple):
    """A tensor of the program: its dtype, its shape, and its axes from the slowest to the fastest in memory."""

    dtype: str
    shape: tuple
    order: tuple


class Product(NamedTuple):
    """A product: its operands, the axes of each that are batched and that are summed, and the result's dtype."""

    x: Operand
    y: Operand
    batch: tuple
    summed: tuple
    dtype: str

    def flops(self):
        """Multiplications and additions."""
        rest = 1
        for axis, length in enumerate(self.y.shape):
            rest *= 1 if axis in (*self.batch[1], *self.summed[1]) else length
        for length in self.x.shape:
            rest *= length
        return 2 * rest


def products(program):
    """The Products of an optimized program of XLA for a CPU, as text, with the number of times that each occurs."""
    types, found = {}, collections.Counter()
    for line in program.splitlines():
        if line.endswith("{"):
            types = {}
        defined = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = (\w+)\[([\d,]*)\](?:\{([\d,]*))?", line)
        if not defined:
            continue
        name, dtype, shape, layout = defined.groups()
        fastest_first = ints(layout or "")
        types[name] = Operand(dtype, ints(shape), fastest_first[::-1])
        if dot := re.search(r" dot\(%?([\w.-]+), %?([\w.-]+)\)", line):
            axes = {key: ints(value) for key, value in re.findall(r"(\w+)_dims=\{([\d,]*)\}", line)}
            batch = axes.get("lhs_batch", ()), axes.get("rhs_batch", ())
            summed = axes["lhs_contracting"], axes["rhs_contracting"]
            found[Product(types[dot[1]], types[dot[2]], batch, summed, dtype)] += 1
    return found


def ints(text):
    """The numbers of a list with commas."""
    return tuple(map(int, filter(None, text.split(","))))


def square(product):
    """The product of two square matrices with a Product's dtypes."""
    x, y = (Operand(operand.dtype, (SIDE, SIDE), (0, 1)) for operand in (product.x, product.y))
    return Product(x, y, ((), ()), ((1,), (0,)), product.dtype)


def runner(product):
    """A function without arguments that computes a Product once, compiled by XLA."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    from tensorflow.compiler.xla import xla_data_pb2

    dtypes = {"f32": tf.float32, "bf16": tf.bfloat16}
    axes = xla_data_pb2.DotDimensionNumbers(
        lhs_contracting_dimensions=product.summed[0],
        rhs_contracting_dimensions=product.summed[1],
        lhs_batch_dimensions=product.batch[0],
        rhs_batch_dimensions=product.batch[1],
    ).SerializeToString()

    def stored(operand):
        in_memory = [operand.shape[axis] for axis in operand.order]
        return tf.Variable(tf.cast(tf.random.normal(in_memory), dtypes[operand.dtype]))

    @tf.function(jit_compile=True)
    def run():
        x, y = (
            tf.transpose(value, [operand.order.index(axis) for axis in range(len(operand.shape))])
            for value, operand in zip(values, (product.x, product.y), strict=True)
        )
        return gen_xla_ops.xla_dot_v2(x, y, axes, "", preferred_element_type=dtypes[product.dtype])

    values = stored(product.x), stored(product.y)
    return run


def timed(run, repeats):
    """The seconds of a call, of several that follow a first one."""
    run()
    start = time.perf_counter()
    for _ in range(repeats):
        result = run()
    result.numpy()
    return (time.perf_counter() - start) / repeats


def main():
    """Prints the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=("train.py", "train_xlnet.py", "inference.py"))
    parser.add_argument("--work", default="ours", choices=("ours", "ours_bfloat16"))
    parser.add_argument("--size", default="base", help="as for the benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    task, steps = training.steps_of(args.benchmark)
    command = [sys.executable, HERE / args.benchmark, f"--work={args.work}", f"--task={task}", f"--size={args.size}"]
    taken = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder} --xla_dump_hlo_as_text".strip()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=os.environ | {"XLA_FLAGS": flags}, **pipes) as step:
            side_by_side.ask(step, f"{args.benchmark} failed")
            programs = pathlib.Path(folder).glob("*cpu_after_optimizations.txt")
            found = products(max((program.read_text() for program in programs), key=len))
            runners = {product: runner(product) for product in found}
            peak = runner(square(max(found, key=lambda product: found[product] * product.flops())))
            flops = sum(count * product.flops() for product, count in found.items())
            for _ in range(args.rounds):
                print(file=step.stdin, flush=True)
                taken["step"].append(side_by_side.ask(step, "the step failed")["seconds"] / steps)
                alone = [count * timed(runners[product], max(3, count)) for product, count in found.items()]
                taken["products"].append(sum(alone))
                taken["peak"].append(timed(peak, 10) * flops / (2 * SIDE**3))
            step.stdin.close()
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    result = {
        "benchmark": args.benchmark,
        "size": args.size,
        "work": args.work,
        "products": sum(found.values()),
        "gflop": round(flops / 1e9, 1),
        "milliseconds": {name: round(1000 * seconds, 1) for name, seconds in medians.items()},
        "share_of_time_in_products": round(medians["products"] / medians["step"], 3),
        "share_of_peak_within_reach": round(medians["peak"] / medians["products"], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
