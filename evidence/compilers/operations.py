"""Shows where the time of a step on a CPU goes: the operations of the program that XLA compiled, by kind.

    python evidence/compilers/operations.py train_xlnet.py --work=ours_bfloat16
    python evidence/compilers/operations.py inference.py --size=narrow

TensorFlow's profiler tells when each operation begins and ends. The times are those of threads: operations that do not
use all cores run beside one another, so the sum is often more than the time of a step. The profiler itself costs some
percent. The JSON line has the milliseconds of a step, of each kind, and of the longest operations with the shapes of
their results.
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import pathlib
import re
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "bench"))

from beside import training

KINDS = {
    "products": r"dot|ynn",
    "conversions": r"(wrapped_)?convert",
    "copies": r"(wrapped_)?(copy|transpose|concatenate|pad|slice|broadcast)",
    "gathers": r".*(gather|scatter|dynamic)",
    "sums": r".*reduce",
    "conversions with arithmetic": r".*convert",
    "arithmetic": r"",
}
"""How the names of operations begin; the first that fits counts. XLA names a fusion after its last operations."""
LONGEST = 12  # operations that are shown one by one


def instructions(program):
    """{name: the dtype and shape of its result} of the operations in an optimized program of XLA, as text.

    Those that only run others are left out: they would count twice.
    """
    found = {}
    for line in program.splitlines():
        defined = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = \(?(\w+\[[\d,]*\]).*?[})\]] ([\w-]+)\(", line)
        if defined and defined[3] not in ("call", "while", "conditional"):
            found[defined[1]] = "product" if defined[3] == "dot" else defined[2]
    return found


def kind_of(name, shape):
    """The kind of an operation, by its name and `instructions`."""
    if shape == "product":
        return "products"
    return next(kind for kind, pattern in KINDS.items() if re.match(pattern, name))


@contextlib.contextmanager
def profiled(events):
    """Adds to `events`, a Counter, the milliseconds of everything that the profiler sees in the block, by name."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=3))
        yield
        tf.profiler.experimental.stop()
        (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            for event in (event for line in plane.lines for event in line.events):
                events[plane.event_metadata[event.metadata_id].name] += event.duration_ps / 1e9


def main():
    """Prints the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=("train.py", "train_xlnet.py", "inference.py"))
    parser.add_argument("--work", default="ours", choices=("ours", "ours_bfloat16"))
    parser.add_argument("--size", default="base", help="as for the benchmark")
    args = parser.parse_args()
    sys.argv[1:] = [f"--size={args.size}"]  # which the benchmark reads
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder} --xla_dump_hlo_as_text"
        os.environ["XLA_FLAGS"] = flags.strip()  # before TensorFlow is loaded
        made = importlib.import_module(args.benchmark.removesuffix(".py")).ours(
            "mixed_bfloat16" if args.work == "ours_bfloat16" else "float32"
        )
        run = made["evaluate"] if isinstance(made, dict) else lambda: made(training.STEPS_PER_ROUND)
        run()
        run()
        events, start = collections.Counter(), time.perf_counter()
        with profiled(events):
            run()
            seconds = time.perf_counter() - start
        programs = pathlib.Path(folder).glob("*cpu_after_optimizations.txt")
        named = instructions(max((program.read_text() for program in programs), key=len))
    _, steps = training.steps_of(args.benchmark)
    own = {name: milliseconds / steps for name, milliseconds in events.items() if name in named}
    kinds = collections.Counter(dict.fromkeys(KINDS, 0.0))
    for name, milliseconds in own.items():
        kinds[kind_of(name, named[name])] += milliseconds
    longest = sorted(own, key=own.get, reverse=True)[:LONGEST]
    result = {
        "benchmark": args.benchmark,
        "size": args.size,
        "work": args.work,
        "milliseconds": round(1000 * seconds / steps, 1),
        "kinds": {kind: round(milliseconds, 1) for kind, milliseconds in kinds.items()},
        "longest": [f"{name} {named[name]}: {own[name]:.1f}" for name in longest],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
