"""Evaluates a trained model on a split, scores every token once, and prints one JSON line at the end.

    python scripts/evaluate.py --model_dir=runs/demo --data_dir=data/python_stdlib --split=test

Settings that are not given come from the model's config.json (its "eval" group). Memory can be longer than in training.
"""

import functools
import json
import sys

from absl import flags
from command_line import (
    define_checkpoint_flag,
    define_config_flags,
    define_precision_flags,
    define_strategy_flags,
    define_weights_flag,
    given_flags,
    given_precision,
    refuse_foreign_flags,
    run,
)
from flag_help import require_flags

from txl_tf import families
from txl_tf.settings.choices import ONE_PROCESS_STRATEGIES

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/train.py wrote")
flags.DEFINE_string("data_dir", None, "the corpus, as scripts/prepare_data.py wrote it")
flags.DEFINE_string("split", "test", "which split: train, valid or test")
flags.DEFINE_integer(
    "sliding_window",
    0,
    "length of a window that is computed again for each token, without memory, as the paper evaluates other "
    "Transformers; 0: evaluate with memory",
    lower_bound=0,
)
flags.DEFINE_string(
    "per_token_out",
    None,
    "a new file to write, one line per scored token: id, log-probability in nats and text, separated by tabs",
)
require_flags("model_dir", "data_dir")
define_strategy_flags(ONE_PROCESS_STRATEGIES)
define_checkpoint_flag()
define_precision_flags()
define_weights_flag()
OVERRIDES = {
    "eval": None,
    "model": ("conventions",),
    "objective": ("num_predict", "perm_size", "mask_alpha", "max_span"),
}
"""The settings of a run that can be changed for evaluation, by group; None: all settings of the group."""
for run_config in families.run_configs():
    for group, names in OVERRIDES.items():
        define_config_flags(run_config.groups()[group], only=names, default="as in the model_dir's config.json")


def main(argv):
    del argv
    from txl_tf.data.manifest import load_corpus  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.data.unknown import unknown_note
    from txl_tf.devices.distribute import make_strategy
    from txl_tf.inference.evaluate import Evaluator
    from txl_tf.progress import reported
    from txl_tf.runs.model_dir import load_trained
    from txl_tf.storage.files import require_new

    strategy = make_strategy(FLAGS.strategy, FLAGS.tpu)
    if FLAGS.per_token_out:
        require_new(FLAGS.per_token_out, "per_token_out")
    with strategy.scope():
        trained = load_trained(FLAGS.model_dir, FLAGS.weights, FLAGS.checkpoint, with_given_flags, **given_precision())
    corpus = load_corpus(FLAGS.data_dir)
    trained.require_vocabulary_of(corpus)
    options = {"sliding_window": FLAGS.sliding_window} if FLAGS.sliding_window else {}
    evaluator = Evaluator(trained.config, trained.model, corpus, FLAGS.split, strategy, choose=True, **options)
    record = functools.partial(write_tokens, trained.vocabulary) if FLAGS.per_token_out else None
    unknown = unknown_note(corpus.unit, corpus.split(FLAGS.split).unknown_share, f"the {FLAGS.split} text")
    for note in filter(None, (evaluator.note, unknown)):
        print(note, file=sys.stderr)
    with reported("evaluating", " segments") as report:
        result = evaluator(lambda done, steps, loss: report(done, steps, loss=loss), record)
    print(json.dumps(result | {"step": trained.step, "weights": trained.weights}))


def with_given_flags(config):
    """The settings of a run with those of OVERRIDES that were given as flags."""
    refuse_foreign_flags(config, OVERRIDES, prefixes={})
    groups = config.groups()
    return config.replace(**{group: given_flags(groups[group], only=only) for group, only in OVERRIDES.items()})


def write_tokens(vocabulary, ids, log_probs):
    """Writes --per_token_out: a line for each scored token, in the order of the text."""
    import tensorflow as tf

    with tf.io.gfile.GFile(FLAGS.per_token_out, "w") as file:
        file.write("id\tlog_prob\ttoken\n")
        for token, log_prob in zip(ids, log_probs, strict=True):
            file.write(f"{token}\t{log_prob:.6f}\t{vocabulary.describe(token)}\n")


if __name__ == "__main__":
    run(main)
