"""Trains a model on a prepared corpus; started again with the same --model_dir, it continues.

    python scripts/prepare_data.py --dataset=python_stdlib --data_dir=data/python_stdlib
    python scripts/train.py --preset=demo --data_dir=data/python_stdlib --model_dir=runs/demo
    python scripts/train.py --model_dir=runs/demo  # continues, with the same settings and data

A preset sets every default, and any flag overrides it; `--preset=demo --help` shows the preset's values. The vocabulary
size and the cutoffs come from the data.
At SIGTERM or Ctrl-C it finishes the current host loop (--steps_per_loop), saves a checkpoint and exits with status 143
or 130.
"""

import os

from absl import flags
from command_line import define_strategy_flags, run
from flag_help import place, require_flags
from run_flags import corpus_of_run, define_preset_flags, given_settings, settings_of

from txl_tf import families
from txl_tf.errors import InputError

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "data_dir",
    None,
    "the corpus, as scripts/prepare_data.py wrote it; local or gs:// [if a run continues: the same as before]",
)
flags.DEFINE_string(
    "model_dir", None, "directory for config, checkpoints, metrics and TensorBoard events; local or gs://"
)
flags.DEFINE_bool("extend", False, "continue the run in model_dir to a larger --train_steps; see docs/runs.md")
flags.DEFINE_string(
    "settings_from", None, "in place of --preset: take the settings of the run in this model_dir; local or gs://"
)
define_strategy_flags()
define_preset_flags()
place("extend", heading="schedule", usual=False)
place("settings_from", heading="", usual=False)
place("data_dir", heading="data")
place("model_dir", heading="saving")
require_flags("model_dir")


def check():
    """Checks the flags before TensorFlow is loaded: a run begins with a preset and a corpus, or continues."""
    if FLAGS.preset and FLAGS.settings_from:
        raise InputError("give --preset or --settings_from, not both")
    begins = FLAGS.preset or FLAGS.settings_from
    if begins and not FLAGS.data_dir:
        raise InputError("give --data_dir: the corpus, as scripts/prepare_data.py wrote it")
    path = os.path.join(FLAGS.model_dir, "config.json")
    if not begins and "://" not in path and not os.path.exists(path):
        raise no_run()


def no_run():
    return InputError(f"{FLAGS.model_dir} has no config.json, so there is no run to continue: give --preset")


def main(_):
    from txl_tf.devices.distribute import make_strategy  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.trainer import run as run_training
    from txl_tf.training.interruption import TrainingStoppedError
    from txl_tf.training.same_run import extended

    # First: with several workers or a TPU no TensorFlow operation may run before it.
    strategy = make_strategy(FLAGS.strategy, FLAGS.tpu)
    config, corpus = begin() if FLAGS.preset or FLAGS.settings_from else begun()
    if FLAGS.extend:
        config = extended(config, FLAGS.model_dir)
        end, steps = config.train.extended_at[-1], config.train.train_steps
        print(f"extended: from step {end:,} on the learning rate is that of a run of {steps:,} steps", flush=True)

    try:
        run_training(config, corpus, FLAGS.model_dir, strategy)
    except TrainingStoppedError as stopped:
        print(stopped)
        return stopped.exit_status


def begin():
    """The preset's or another run's Config with the flags that were given, adapted to the corpus; and the Corpus."""
    from txl_tf.data.manifest import load_corpus

    corpus = load_corpus(FLAGS.data_dir)
    config = families.presets()[FLAGS.preset].config if FLAGS.preset else settings_of(FLAGS.settings_from)
    return families.task_of(config, families.Pretraining).fit_to_corpus(config, corpus, given_settings(config)), corpus


def begun():
    """The Config of the run in model_dir with the flags that were given, and the Corpus that it was trained on."""
    from txl_tf.runs.model_dir import read_config

    config = read_config(FLAGS.model_dir)
    if config is None:
        raise no_run()
    families.task_of(config, families.Pretraining)
    return config.replace(**given_settings(config)), corpus_of_run(FLAGS.model_dir, FLAGS.data_dir)


if __name__ == "__main__":
    run(main, check)
