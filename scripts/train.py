"""Trains a Transformer-XL on a prepared corpus; started again with the same --model_dir, it continues.

    python scripts/prepare_data.py --dataset=python_stdlib --data_dir=data/python_stdlib
    python scripts/train.py --preset=demo --data_dir=data/python_stdlib --model_dir=runs/demo

A preset sets every default, and any flag overrides it. The vocabulary size and the cutoffs come from the data.
At SIGTERM and Ctrl-C it finishes the current host loop (--steps_per_loop), saves a checkpoint and ends with exit status
143 or 130.
"""

import dataclasses

from absl import flags
from command_line import define_all_config_flags, define_strategy_flags, override, run

from txl_tf.errors import InputError
from txl_tf.presets import PRESETS

FLAGS = flags.FLAGS
flags.DEFINE_enum("preset", None, sorted(PRESETS), "the configuration to start from")
flags.DEFINE_string("data_dir", None, "a corpus that scripts/prepare_data.py wrote; local or gs://")
flags.DEFINE_string("model_dir", None, "where config, checkpoints, metrics and TensorBoard events go; local or gs://")
flags.mark_flags_as_required(["preset", "data_dir", "model_dir"])
define_strategy_flags()
define_all_config_flags()


def main(argv):
    del argv
    from txl_tf.data.manifest import load_corpus  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.distribute import make_strategy
    from txl_tf.inference.evaluate import Evaluator
    from txl_tf.inference.sample import Sampler
    from txl_tf.training.interruption import TrainingStoppedError
    from txl_tf.training.loop import train

    strategy = make_strategy(
        FLAGS.strategy, FLAGS.tpu
    )  # first: several workers, and a TPU, allow no TensorFlow operation before it
    corpus = load_corpus(FLAGS.data_dir)
    config = configure(corpus)
    evaluation, reach = config.for_evaluation()

    def evaluator(model):
        return Evaluator(model, corpus, "valid", evaluation, reach, strategy)

    def sampler(model):
        if config.model.attn_type != "transformer_xl":
            return None  # only transformer_xl has a cache
        return Sampler(model, corpus, reach, jit_compile=config.train.jit_compile)

    try:
        train(config, corpus, FLAGS.model_dir, strategy, evaluator if "valid" in corpus.splits else None, sampler)
    except TrainingStoppedError as stopped:
        print(stopped)
        return stopped.exit_status


def configure(corpus):
    """The preset's Config with the corpus's vocabulary size and cutoffs, then the flags."""
    config = PRESETS[FLAGS.preset].config
    if config.model.cutoffs and not corpus.cutoffs and FLAGS.cutoffs is None:
        raise InputError(
            f"--preset={FLAGS.preset} has an adaptive softmax, and {FLAGS.data_dir} has no cutoffs: give --cutoffs"
        )
    cutoffs = corpus.cutoffs if config.model.cutoffs else ()
    model = dataclasses.replace(config.model, vocab_size=corpus.vocab_size, cutoffs=cutoffs)
    return override(dataclasses.replace(config, model=model))


if __name__ == "__main__":
    run(main)
