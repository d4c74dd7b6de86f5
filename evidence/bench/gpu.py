r"""Measures steps of training, evaluation and generation on a GPU, through JAX: that machine needs no TensorFlow.

    python evidence/compilers/aot_compile.py --preset=enwik8_base --target=gpu --dtype=mixed_bfloat16 \
        --stablehlo_out=train.mlir
    python evidence/bench/gpu.py train.mlir                       (in a Python with JAX for GPUs; 0.10 and 0.11 work)
    python evidence/bench/gpu.py --huggingface                    (in a Python with torch and transformers 4.35.2)

The programs alternate, each with its own weights, moments and memory. XLA compiles them as it does for TensorFlow, from
the same StableHLO, but in JAX's version. Prints one JSON line per program.

With --check three steps are compared with those on the CPU. Choose a small model. To get exact products instead of
TF32, set NVIDIA_TF32_OVERRIDE=0 and XLA_FLAGS=--xla_gpu_enable_triton_gemm=false in the environment.

With --profile=FILE the time of each kernel, with its TensorFlow name, is written to FILE.
XLA_FLAGS=--xla_gpu_enable_command_buffer= keeps kernels apart.

--huggingface trains TransfoXL with the sizes of enwik8_base in float32; under autocast its code fails.
"""

import argparse
import collections
import functools
import glob
import json
import os
import re
import statistics
import sys
import tempfile
import time

STEPS_PER_ROUND = 8
SIZES = {"n_layer": 12, "d_model": 512, "d_embed": 512, "n_head": 8, "d_head": 64, "d_inner": 2048}
V, B, T, M = 204, 24, 512, 512  # enwik8_base
DROPOUT, CLIP = 0.1, 0.25
MATMUL = 8192


class Steps:
    """A program of one step: StableHLO in FILE, its inputs in FILE.json.

    Args:
        path: FILE.
        device: one of JAX's devices.
    """

    def __init__(self, path, device):
        import jax
        from jaxlib import _jax

        with open(path + ".json") as file:
            self.inputs = json.load(file)
        with open(path, "rb") as file:
            module = file.read()
        print(f"compiling {path} for {device.device_kind}", file=sys.stderr, flush=True)
        start = time.perf_counter()
        self.program = device.client.compile_and_load(module, _jax.DeviceList((device,)), _jax.CompileOptions())
        self.compile_seconds = time.perf_counter() - start
        self.values = {name: jax.device_put(value, device) for name, value in first_values(self.inputs).items()}
        self.state = [name for name in self.inputs if name.startswith("state/")]
        self.trains = "adam/iterations" in self.inputs
        self.weights = [name for name in self.inputs if not name.startswith(("state/", "batch/", "constant/"))]

    def run(self, steps):
        """Runs steps one after the other; returns the last one's outputs before the state (loss and norm, say)."""
        import jax

        for _ in range(steps):
            outputs = self.program.execute(list(self.values.values()))
            leading = 2 if self.trains else len(outputs) - len(self.state)
            self.values |= zip(self.state, outputs[leading : leading + len(self.state)], strict=True)
            if self.trains:
                self.values |= zip(self.weights, outputs[-len(self.weights) :], strict=True)
        return jax.block_until_ready(outputs[:leading])


def first_values(inputs):
    """{name: array}: tokens like words of a text, weights as before training, empty moments and memory.

    Other features of tokens get such numbers, too; features of a lane (a label, its weight) are 1.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    tables = [name for name in inputs if "embedding/table" in name and not name.startswith("adam/")]
    vocab_size = sum(inputs[name][0][0] for name in tables)
    frequencies = 1 / (np.arange(vocab_size) + 3)
    values = {}
    for name, (shape, dtype) in inputs.items():
        if name.startswith("batch/") and len(shape) > 1:
            values[name] = generator.choice(vocab_size, shape, p=frequencies / frequencies.sum()).astype(dtype)
        elif name.startswith(("state/", "adam/")):
            values[name] = np.zeros(shape, dtype)
        elif name.startswith("batch/") or name.endswith("/gamma"):
            values[name] = np.ones(shape, dtype)
        elif len(shape) < 2:
            values[name] = np.zeros(shape, dtype)
        else:
            values[name] = (0.02 * generator.standard_normal(shape, "float32")).astype(dtype)
    return values


def measure(paths, rounds):
    """Prints one JSON line for each program and for large matrix products, from alternating rounds."""
    import jax

    device = jax.devices()[0]
    programs = {path: Steps(path, device) for path in paths}
    runs = {path: functools.partial(steps.run, STEPS_PER_ROUND) for path, steps in programs.items()}
    runs |= {dtype: matmuls(dtype) for dtype in ("float32", "bfloat16")}
    milliseconds = in_turn(runs, rounds)
    for path, steps in programs.items():
        taken = milliseconds[path]
        shape, _ = steps.inputs["batch/0"]
        line = {
            "program": path,
            "ms": [round(one, 2) for one in taken],
            "tokens_per_sec": round(1e3 * shape[0] * shape[1] / statistics.median(taken)),
            "compile_seconds": round(steps.compile_seconds, 1),
            "temporary_gb": round(steps.program.get_compiled_memory_stats().temp_size_in_bytes / 1e9, 2),
        }
        print(json.dumps(line), flush=True)
    for dtype in ("float32", "bfloat16"):
        rate = 2 * MATMUL**3 / statistics.median(milliseconds[dtype]) / 1e9
        print(json.dumps({"matmul": dtype, "tflops": round(rate), "device": device.device_kind}), flush=True)


def in_turn(runs, rounds):
    """{name: the milliseconds of a step in each round} of functions that run STEPS_PER_ROUND steps."""
    milliseconds = {name: [] for name in runs}
    for i in range(rounds + 1):  # the first round warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if i:
                milliseconds[name].append(1e3 * (time.perf_counter() - start) / STEPS_PER_ROUND)
        latest = {name: round(taken[-1], 2) for name, taken in milliseconds.items() if taken}
        print(f"round {i}/{rounds}: {latest}", file=sys.stderr, flush=True)
    return milliseconds


def matmuls(dtype):
    """A function that multiplies large matrices; in float32 with JAX's default precision, TF32."""
    import jax

    a, b = (jax.random.normal(jax.random.key(seed), (MATMUL, MATMUL), dtype) for seed in (0, 1))
    product = jax.jit(lambda a, b: a @ b)

    def run():
        jax.block_until_ready([product(a, b) for _ in range(STEPS_PER_ROUND)])

    return run


def check(path):
    """Prints how much a step's outputs differ from those on the CPU, relative to their largest number."""
    import jax
    import numpy as np

    found = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        steps = Steps(path, device)
        outputs = [(f"output {n} of step {i}", value) for i in range(3) for n, value in enumerate(steps.run(1))]
        outputs += [(name, steps.values[name]) for name in (*steps.state, *steps.weights)]
        found.append({name: np.array(value, np.float64) for name, value in outputs})
    gpu, cpu = found
    differences = {name: np.max(abs(gpu[name] - cpu[name])) / max(np.max(abs(cpu[name])), 1e-12) for name in cpu}
    largest = sorted(((float(f"{value:.1e}"), name) for name, value in differences.items()), reverse=True)[:8]
    means = {name: [float(each[name].mean()) for each in found] for name in cpu if name.endswith("of step 2")}
    print(json.dumps({"check": path, "largest": largest, "means": means}))


def profile(path, file):
    """Writes the time of each kernel of a step, most first: milliseconds, share, kernel, TensorFlow's name."""
    import jax

    steps = Steps(path, jax.devices()[0])
    steps.run(2)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            steps.run(STEPS_PER_ROUND)
        (trace,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        planes = [plane for plane in jax.profiler.ProfileData.from_file(trace).planes if "GPU" in plane.name]
        milliseconds = collections.Counter()
        for event in (event for plane in planes for line in plane.lines for event in line.events):
            operation = dict(event.stats).get("hlo_op", "")
            milliseconds[f"{operation} {event.name[:60]}"] += event.duration_ns / 1e6 / STEPS_PER_ROUND
    hlo = steps.program.hlo_modules()[0].to_string()
    names = dict(re.findall(r"%?([\w.\-]+) = .*op_name=\"([^\"]*)\"", hlo))
    total = sum(milliseconds.values())
    with open(file, "w") as out:
        print(f"{total:.3f} ms", file=out)
        for kernel, taken in milliseconds.most_common():
            print(f"{taken:8.3f} {taken / total:6.1%} {kernel}  {names.get(kernel.split()[0], '')}", file=out)


def huggingface(rounds):
    """Prints the JSON line of Hugging Face's TransfoXL, with TF32 for the products of float32."""
    os.environ["USE_FLAX"] = "0"  # or transformers would load JAX, which is too new for it
    import torch
    from beside import training

    if not torch.cuda.is_available():
        sys.exit("error: torch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = True
    config = {"vocab_size": V, "mem_len": M, "dropout": DROPOUT, **SIZES}
    train = training.huggingface_steps(config, B, T, CLIP, device="cuda")

    def run():
        train(STEPS_PER_ROUND)
        torch.cuda.synchronize()

    taken = in_turn({"huggingface": run}, rounds)["huggingface"]
    rate = 1e3 * B * T / statistics.median(taken)
    line = {"program": "huggingface", "ms": [round(one, 2) for one in taken], "tokens_per_sec": round(rate)}
    print(json.dumps(line | {"device": torch.cuda.get_device_name()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="FILE", help="written by aot_compile.py --stablehlo_out")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of each program")
    parser.add_argument("--check", action="store_true", help="compare with the CPU instead of measuring")
    parser.add_argument("--profile", metavar="FILE", help="write the kernels of the only program instead of measuring")
    parser.add_argument("--huggingface", action="store_true", help="measure Hugging Face's TransfoXL instead")
    args = parser.parse_args()
    if args.huggingface:
        huggingface(args.rounds)
        return
    import jax

    jax.config.update("jax_enable_x64", True)  # Adam's count has 64 bits
    if not args.programs or (args.profile and len(args.programs) > 1):
        parser.error("name a program, or several to measure in alternating rounds")
    for path in args.programs:
        if not (os.path.isfile(path) and os.path.isfile(path + ".json")):
            parser.error(f"{path} and {path}.json are not both there: aot_compile.py --stablehlo_out writes them")
    if not args.check and jax.devices()[0].platform != "gpu":
        parser.error("JAX finds no GPU: install it for GPUs, or give --check, which works without")
    if args.profile:
        profile(*args.programs, args.profile)
    elif args.check:
        for path in args.programs:
            check(path)
    else:
        measure(args.programs, args.rounds)


if __name__ == "__main__":
    main()
