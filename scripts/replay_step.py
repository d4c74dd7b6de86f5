"""Runs one training step again, from the checkpoint before it, and finds the first operation that was not finite.

    python scripts/replay_step.py --model_dir=runs/demo --step=1234

Training records the steps that it skips in bad_steps.jsonl. A step is the same on one device as on many cores. If its
batch does not fit into memory, --accumulate_steps reads it in groups of lanes. No file in model_dir changes. The last
line is JSON.
"""

import math

from absl import flags
from command_line import run
from flag_help import require_flags
from run_flags import corpus_of_run

from txl_tf.errors import InputError
from txl_tf.storage.strict_json import json_line

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/train.py wrote")
flags.DEFINE_string("data_dir", None, "the corpus it was trained on [where training found it]")
flags.DEFINE_integer("step", None, "the number of the step, as training prints it, from 1")
flags.DEFINE_integer("accumulate_steps", None, "process the lanes in this many groups [as in the run]", lower_bound=1)
require_flags("model_dir", "step")


def main(_):
    from txl_tf.progress import reported  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.runs.model_dir import read_config
    from txl_tf.training.replay import replay

    config = read_config(FLAGS.model_dir)
    if config is None:
        raise InputError(f"{FLAGS.model_dir} has no config.json: give a directory that scripts/train.py wrote")
    if FLAGS.accumulate_steps:
        config = config.replace(train={"accumulate_steps": FLAGS.accumulate_steps})
    corpus = corpus_of_run(FLAGS.model_dir, FLAGS.data_dir)
    with reported("replaying the steps before it", " steps") as report:
        found = replay(config, corpus, FLAGS.model_dir, FLAGS.step, report)
    if not found.variables and math.isfinite(found.loss) and math.isfinite(found.grad_norm):
        print(f"step {found.step:,}: everything is finite")
    else:
        print(f"step {found.step:,}: first operation whose result is not finite: {found.operation or 'none'}")
        print(f"variables whose gradients are not finite: {', '.join(found.variables) or 'none'}")
    print(json_line(found._asdict()), end="")


if __name__ == "__main__":
    run(main)
