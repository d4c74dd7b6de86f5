"""Trains a model on a prepared corpus; started again with the same --model_dir, it continues.

    python scripts/prepare_data.py --dataset=python_stdlib --data_dir=data/python_stdlib
    python scripts/train.py --preset=demo --data_dir=data/python_stdlib --model_dir=runs/demo

A preset sets every default, and any flag overrides it. The vocabulary size and the cutoffs come from the data.
At SIGTERM or Ctrl-C it finishes the current host loop (--steps_per_loop), saves a checkpoint and exits with status 143
or 130.
"""

from absl import flags
from command_line import define_preset_flags, define_strategy_flags, given_settings, override, run

from txl_tf import families
from txl_tf.errors import InputError

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "the corpus, as scripts/prepare_data.py wrote it; local or gs://")
flags.DEFINE_string(
    "model_dir", None, "directory for config, checkpoints, metrics and TensorBoard events; local or gs://"
)
define_strategy_flags()
define_preset_flags()
flags.mark_flags_as_required(["preset", "data_dir", "model_dir"])


def main(argv):
    del argv
    from txl_tf.data.manifest import load_corpus  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.distribute import make_strategy
    from txl_tf.inference.evaluate import Evaluator
    from txl_tf.inference.sample import Sampler
    from txl_tf.training.interruption import TrainingStoppedError
    from txl_tf.training.loop import train

    # First: with several workers or a TPU no TensorFlow operation may run before it.
    strategy = make_strategy(FLAGS.strategy, FLAGS.tpu)
    corpus = load_corpus(FLAGS.data_dir)
    config = configure(corpus)

    def evaluator(model):
        return Evaluator(config, model, corpus, "valid", strategy)

    def sampler(model):
        if not (families.family_of(config).generates and model.attention.cacheable):
            return None
        _, reach = config.for_evaluation()
        return Sampler(model, corpus, reach, jit_compile=config.train.jit_compile)

    try:
        train(config, corpus, FLAGS.model_dir, strategy, evaluator if "valid" in corpus.splits else None, sampler)
    except TrainingStoppedError as stopped:
        print(stopped)
        return stopped.exit_status


def configure(corpus):
    """The preset's Config, adapted to the corpus, then overridden by the flags."""
    config = families.presets()[FLAGS.preset].config
    given = frozenset(name for group in given_settings(config).values() for name in group)
    config = override(families.task_of(config).fit_to_corpus(config, corpus, given))
    if config.model.vocab_size != corpus.vocab_size:
        raise InputError(
            f"--vocab_size={config.model.vocab_size} is not the {corpus.vocab_size} of {corpus.data_dir}: leave it away"
        )
    return config


if __name__ == "__main__":
    run(main)
