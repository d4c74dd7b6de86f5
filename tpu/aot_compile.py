"""Compiles a training or evaluation step with the TPU compiler, with no TPU, and says what it costs.

    pip install -r tpu/requirements-aot.txt
    python tpu/aot_compile.py --preset=enwik8_large --topology=v5e:1x1 --batch_size_per_core=4

Any setting of the preset can be overridden by its flag. Ends with one JSON line. The cycles are the compiler's own
estimates: no timings, but the same on every machine, so that two formulations can be compared exactly.
"""

import collections
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "scripts"))

from absl import flags
from command_line import define_all_config_flags, override, run

from txl_tf.presets import PRESETS

FLAGS = flags.FLAGS
flags.DEFINE_enum("preset", None, sorted(PRESETS), "the configuration to start from")
flags.DEFINE_string("topology", "v5e:1x1", "generation and arrangement of the chips, such as v5e:1x1")
flags.DEFINE_enum("mode", "train", ["train", "eval"], "which step")
flags.DEFINE_integer("batch_size_per_core", None, "lanes of one core", lower_bound=1)
flags.DEFINE_integer("loop_trips", 1, "how often a loop runs whose trip count depends on the data", lower_bound=1)
flags.DEFINE_string("hlo_out", None, "a file for the optimized HLO text")
flags.DEFINE_string("stablehlo_out", None, "a file for the step's StableHLO, as MLIR bytecode")
flags.mark_flags_as_required(["preset"])
define_all_config_flags()


def main(argv):
    del argv
    from aot import compiler, report, steps  # after the flags are parsed: TensorFlow takes seconds to load

    config = override(PRESETS[FLAGS.preset].config)
    device = compiler.device_of(FLAGS.topology)
    batch_size = FLAGS.batch_size_per_core or config.data.batch_size
    lowered = {"train": steps.train, "eval": steps.evaluate}[FLAGS.mode](config, batch_size)
    module = compiler.to_stablehlo(lowered.hlo)
    if FLAGS.stablehlo_out:
        pathlib.Path(FLAGS.stablehlo_out).write_bytes(module)
    compiled = compiler.compile_for(device, module)
    if FLAGS.hlo_out:
        pathlib.Path(FLAGS.hlo_out).write_text(compiled.hlo)
    costs = report.costs(compiled.hlo, FLAGS.loop_trips)
    available = compiler.hbm_of(device)
    by_name = collections.Counter()
    for cost in costs:
        by_name[f"{cost.opcode:15} {cost.name}"] += cost.cycles
    for name, cycles in by_name.most_common(40):
        print(f"{cycles:13,} {name}")
    needed = compiled.argument_bytes + compiled.temp_bytes
    print(
        json.dumps(
            {
                "preset": FLAGS.preset,
                "mode": FLAGS.mode,
                "topology": FLAGS.topology,
                "batch_size_per_core": batch_size,
                "estimated_cycles": sum(cost.cycles for cost in costs),
                "unknown_loops": report.unknown_loops(compiled.hlo),
                "flops": compiled.cost["flops"],
                "bytes_accessed": compiled.cost["bytes accessed"],
                "hbm_bytes": needed,
                "hbm_arguments": compiled.argument_bytes,
                "hbm_temporaries": compiled.temp_bytes,
                "hbm_available": available,
                "fits": True,
                "compile_seconds": round(compiled.seconds, 1),
            }
        )
    )


if __name__ == "__main__":
    run(main)
