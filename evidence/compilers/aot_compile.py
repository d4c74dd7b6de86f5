"""Compiles a step of training, evaluation, generation, fine-tuning or prediction for a TPU or a GPU, without one.

    pip install -r evidence/compilers/requirements-aot.txt
    python evidence/compilers/aot_compile.py --preset=enwik8_large --topology=v5e:1x1 --batch_size_per_core=4

    pip install -r evidence/compilers/requirements-aot-gpu.txt
    python evidence/compilers/aot_compile.py --preset=enwik8_base --target=h100 --dtype=mixed_bfloat16

Any setting of the preset can be overridden by its flag; with --mode=eval and --mode=generate, --tgt_len, --mem_len,
--clamp_len and --same_length set evaluation's values. A step of --mode=generate is a call for 64 tokens of each text:
give --loop_trips=64. --mode=finetune and --mode=predict are steps of a classifier with two classes and the preset's
model. Prints the step's costs, a sentence on whether it fits, and one JSON line with the costs of one core. The work
takes a minute or two, on a busy machine ten; standard error says that it goes on. The cycles are estimates of the
compiler, not timings, but the same on every machine, so that two formulations can be compared exactly. They do not
include the operations that the line lists under without_estimate.

With --target=h100, a100, l4 or t4 the step is compiled for one such card. The compiler gives no cycles for GPUs. The
line has the number of kernels, the bytes that they read and write, and the FLOPs of matrix products. It also has a
lower bound of the step's time: that of the bytes or of the FLOPs at the card's full rate, the longer of the two. With
--target=gpu the step is traced for a GPU, and only --stablehlo_out is written, for evidence/bench/gpu.py.
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from aot import cards
from aot.going_on import going_on
from command_line import given_flags, run
from flag_help import require_flags
from run_flags import define_preset_flags, given_settings

from txl_tf import families
from txl_tf.errors import InputError

FLAGS = flags.FLAGS
flags.DEFINE_string("topology", "v5e:1x1", "generation and arrangement of the chips: v5e:1x1 one core, v5e:2x2 four")
flags.DEFINE_enum(
    "mode",
    "train",
    ["train", "eval", "generate", "finetune", "predict"],
    "the step of scripts/train.py, evaluate.py, generate.py, or of a classifier in finetune.py or predict.py",
)
flags.DEFINE_integer(
    "batch_size_per_core", None, "lanes of one core or card [the batch size over the number of cores]", lower_bound=1
)
flags.DEFINE_bool(
    "fit", False, "search the largest batch per core or card that fits, starting with --batch_size_per_core"
)
flags.DEFINE_integer(
    "loop_trips", 0, "iterations to assume for loops whose trip count depends on the data", lower_bound=0
)
flags.DEFINE_string("hlo_out", None, "a file for the optimized HLO text")
flags.DEFINE_string("stablehlo_out", None, "a file for the step's StableHLO, as MLIR bytecode; parameters in FILE.json")
flags.DEFINE_enum(
    "target",
    "tpu",
    ["tpu", *cards.CARDS, "gpu"],
    "the device: a TPU of --topology, one of these cards, or gpu, which only writes --stablehlo_out",
)
flags.DEFINE_integer("vocab_size", None, "number of tokens in the vocabulary, V [the preset's]", lower_bound=1)
define_preset_flags()
require_flags("preset")


REACH = ("tgt_len", "mem_len", "clamp_len", "same_length")
"""The settings of evaluation that flags without eval_ also set in --mode=eval and --mode=generate."""


def main(argv):
    del argv
    if FLAGS.target == "gpu" and (not FLAGS.stablehlo_out or FLAGS.hlo_out or FLAGS.fit):
        raise InputError("--target=gpu needs --stablehlo_out, without --hlo_out and --fit: it compiles nothing")
    if FLAGS.target != "tpu" and FLAGS["topology"].present:
        raise InputError(f"--topology is for TPUs, and --target={FLAGS.target} is not one: omit one of the two")
    config = configure()
    lanes = config.data.batch_size if FLAGS.mode in ("train", "finetune") else config.eval.batch_size
    if FLAGS.target == "gpu":
        write_stablehlo(lower(config, FLAGS.batch_size_per_core or lanes, 1))
        return
    device = Tpu() if FLAGS.target == "tpu" else Gpu()
    batch_size = FLAGS.batch_size_per_core or max(lanes // device.count, 1)
    if not FLAGS.fit:
        result = device.compile(config, batch_size)
    else:
        from aot import search

        results = {}

        def attempt(size):
            results[size] = device.compile(config, size)
            wanted, available = needs(results[size])
            print(f"{size} lanes per {device.part} need {wanted / 1e9:.2f} of {available / 1e9:.2f} GB\n", flush=True)
            return results[size]["fits"], wanted, available

        result = results[search.largest(attempt, batch_size)]
    print(sentence(result))
    print(json.dumps({"preset": FLAGS.preset, "mode": FLAGS.mode} | result))


def needs(result):
    """The bytes of memory that a compiled step needs, and those that there are."""
    outputs = 0 if FLAGS.target == "tpu" else result["hbm_outputs"]  # the TPU's compiler counts them
    return result["hbm_bytes"] + outputs, result["hbm_available"]


def sentence(result):
    """Whether a compiled step fits, such as "fits: 9.2 of 83 GB"."""
    wanted, available = (round(size / 1e9, 1) for size in needs(result))
    return f"{'fits' if result['fits'] else 'does not fit'}: {wanted:g} of {available:g} GB"


def configure():
    """The preset's Config with every flag that was given; with --mode=eval REACH sets evaluation's values."""
    config = families.presets()[FLAGS.preset].config
    given = given_settings(config)
    if FLAGS.vocab_size:
        given["model"]["vocab_size"] = FLAGS.vocab_size
    config = config.replace(**given)
    if FLAGS.mode in ("eval", "generate"):
        return config.replace(eval=given_flags(config.groups()["eval"], only=REACH))
    return config if FLAGS.mode == "train" else classifier(config)


def classifier(config):
    """The Config of fine-tuning the model of a pretraining run as a classifier, with sequences of the same length."""
    tuned = families.tuned_configs()["classification"]
    if tuned.family != config.family:
        raise InputError(f"--mode={FLAGS.mode} needs a model that is fine-tuned: --preset={FLAGS.preset} is not")
    data = {"tgt_len": config.data.tgt_len, "batch_size": config.data.batch_size}
    return tuned().replace(model=vars(config.model), data=data, eval={"batch_size": config.eval.batch_size})


def lower(config, batch_size, replicas):
    """The Step that the flags select."""
    from aot import steps

    modes = {"train": steps.train, "eval": steps.evaluate, "generate": steps.generate}
    modes |= {"finetune": steps.train, "predict": steps.predict}  # of a classifier
    with going_on(f"tracing the step with {batch_size} lanes"):
        return modes[FLAGS.mode](config, batch_size, replicas, platform())


def platform():
    """The platform that the step is traced for."""
    return "tpu" if FLAGS.target == "tpu" else "gpu"


def write_stablehlo(step):
    """Writes --stablehlo_out, if it is given, and returns the same bytes."""
    from aot import compiler

    module = compiler.to_stablehlo(step.hlo, platform())
    if FLAGS.stablehlo_out:
        pathlib.Path(FLAGS.stablehlo_out).write_bytes(module)
        pathlib.Path(FLAGS.stablehlo_out + ".json").write_text(json.dumps(step.parameters))
    return module


class Tpu:
    """The cores of --topology."""

    part = "core"

    def __init__(self):
        from aot import compiler

        self.devices = compiler.devices_of(FLAGS.topology)
        self.count = len(self.devices)

    def compile(self, config, batch_size):
        """Compiles the step that the flags select, prints the tables of costs, and returns the JSON line's fields."""
        from aot import compiler, report
        from aot.program import Program

        step = lower(config, batch_size, self.count)
        module = write_stablehlo(step)
        about = {"topology": FLAGS.topology, "cores": self.count, "batch_size_per_core": batch_size}
        try:
            with going_on(f"compiling it for {FLAGS.topology}"):
                compiled = compiler.compile_for(self.devices, module)
        except compiler.DoesNotFitError as refusal:
            return about | {"hbm_bytes": refusal.wanted, "hbm_available": refusal.available, "fits": False}
        write_hlo(compiled)
        program = Program(compiled.hlo)
        print("\n".join(report.tables(program, step.parameters, FLAGS.loop_trips)), flush=True)
        return about | {
            "estimated_cycles": sum(cost.amount for cost in program.costs(FLAGS.loop_trips)),
            "loops_of_unknown_length": program.unknown_loops(),
            "loop_trips": FLAGS.loop_trips,
            "without_estimate": program.without_estimate(FLAGS.loop_trips),
            "flops": compiled.flops,
            "bytes_accessed": compiled.bytes_accessed,
            **memory_of(compiled, compiler.hbm_of(self.devices[0])),
            "fits": True,
            "compile_seconds": round(compiled.seconds, 1),
        }


class Gpu:
    """One card, --target."""

    part, count = "card", 1

    def __init__(self):
        self.card = cards.CARDS[FLAGS.target]

    def compile(self, config, batch_size):
        """As `Tpu.compile`."""
        from aot import gpu, kernels, report
        from aot.program import Program

        step = lower(config, batch_size, 1)
        module = write_stablehlo(step)
        with going_on(f"compiling it for {self.card.name}"):
            compiled = gpu.compile_for(self.card, module)
        write_hlo(compiled)
        program = Program(compiled.hlo)
        found = kernels.kernels_of(program, FLAGS.loop_trips)
        print("\n".join(report.gpu_tables(program, step.parameters, found)), flush=True)
        memory = memory_of(compiled, self.card.memory - cards.RESERVED)
        moved = sum(kernel.bytes * kernel.runs for kernel in found)
        memory_ms = 1e3 * moved / self.card.bandwidth
        product_ms = 1e3 * (compiled.half_flops / self.card.half + compiled.single_flops / self.card.single)
        return {
            "card": self.card.name,
            "batch_size_per_core": batch_size,
            "kernels": sum(kernel.runs for kernel in found),
            "small_kernels": sum(kernel.runs for kernel in found if kernel.bytes < kernels.SMALL),
            "loops_of_unknown_length": program.unknown_loops(),
            "loop_trips": FLAGS.loop_trips,
            "flops": compiled.half_flops + compiled.single_flops,
            "bytes_accessed": moved,
            "memory_milliseconds": round(memory_ms, 3),
            "product_milliseconds": round(product_ms, 3),
            "floor_milliseconds": round(max(memory_ms, product_ms), 3),
            **memory,
            "fits": memory["hbm_bytes"] + memory["hbm_outputs"] <= memory["hbm_available"],
            "compile_seconds": round(compiled.seconds, 1),
        }


def memory_of(compiled, available):
    """The JSON line's numbers about memory, in bytes."""
    return {
        "hbm_bytes": compiled.argument_bytes + compiled.temp_bytes,
        "hbm_arguments": compiled.argument_bytes,
        "hbm_temporaries": compiled.temp_bytes,
        "hbm_outputs": compiled.output_bytes,
        "hbm_available": available,
    }


def write_hlo(compiled):
    """Writes --hlo_out, if it is given."""
    if FLAGS.hlo_out:
        pathlib.Path(FLAGS.hlo_out).write_text(compiled.hlo)


if __name__ == "__main__":
    run(main)
