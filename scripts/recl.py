"""Relative effective context length of a group of models (paper, section 4.3 and appendix C).

    python scripts/recl.py --model_dirs=runs/a,runs/b --data_dir=data/wt103 --context_lengths=50,100,150,200

Prints one JSON line per model. It has the relative effective context length: the longest context up to which more
context still lowers the loss, relative to the best model of the group, at the positions with the highest loss. It also
has the relative gain of each longer context, and the mean loss at all positions for each context length. All models
must have the vocabulary of the corpus.
"""

import json
import os

from absl import flags
from command_line import integers, run
from flag_help import require_flags

from txl_tf import families
from txl_tf.errors import InputError

FLAGS = flags.FLAGS
flags.DEFINE_multi_string(
    "model_dirs", None, "directories that scripts/train.py wrote, separated by commas; may be given several times"
)
flags.DEFINE_string("data_dir", None, "the corpus, as scripts/prepare_data.py wrote it")
flags.DEFINE_string("split", "test", "which split: train, valid or test")
flags.DEFINE_list(
    "context_lengths", ["50", "100", "150", "200", "250", "300"], "lengths of context to compare, in rising order"
)
flags.DEFINE_integer("positions", 1000, "how many tokens to predict, drawn at random from the split", lower_bound=1)
flags.DEFINE_list(
    "top_r", ["0.1"], "fractions of the positions, those with the highest loss; a line is printed for each fraction"
)
flags.DEFINE_float("threshold", 0.01, "the smallest relative gain that counts", lower_bound=0)
flags.DEFINE_integer("seed", 0, "seed for drawing the positions", lower_bound=0)
require_flags("model_dirs", "data_dir")


def main(_):
    lengths = integers("context_lengths")
    if len(lengths) < 2 or lengths[0] < 1 or sorted(set(lengths)) != lengths:
        raise InputError("--context_lengths must be at least two rising integers, separated by commas")
    fractions = top_fractions()
    import numpy as np  # after the flags are parsed: TensorFlow takes seconds to load

    from txl_tf.data.manifest import load_corpus
    from txl_tf.inference.causal.recl import context_losses, draw_positions, effective_context_lengths, relative_gains
    from txl_tf.runs.model_dir import load_trained

    corpus = load_corpus(FLAGS.data_dir)
    tokens, positions = draw_positions(corpus, FLAGS.split, FLAGS.positions, lengths[-1], FLAGS.seed)
    losses = []
    directories = model_dirs()
    for model_dir in directories:
        trained = load_trained(model_dir)
        trained.require_vocabulary_of(corpus)
        families.require_generation(trained.config, model_dir)
        losses.append(context_losses(trained.model, tokens, positions, lengths, trained.config.eval.clamp_len))
    for top_r in fractions:
        gains = relative_gains(np.stack(losses), top_r)
        found = effective_context_lengths(np.stack(losses), lengths, top_r, FLAGS.threshold)
        for model_dir, length, steps, by_length in zip(directories, found, gains, losses, strict=True):
            rounded = {
                "gains": [round(float(gain), 5) for gain in steps],
                "losses": [round(float(loss), 5) for loss in by_length.mean(axis=1)],
            }
            print(json.dumps({"model_dir": model_dir, "top_r": top_r, "recl": length, **rounded}))


def model_dirs():
    """The directories of --model_dirs; a value that is the path of one is not divided at its commas."""
    return [
        path for value in FLAGS.model_dirs for path in ([value] if os.path.isdir(value) else value.split(",")) if path
    ]


def top_fractions():
    """The value of --top_r as numbers, or InputError."""
    try:
        fractions = [float(text) for text in FLAGS.top_r]
    except ValueError:
        fractions = []
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise InputError(f"--top_r={','.join(FLAGS.top_r)} must be numbers above 0 and at most 1, separated by commas")
    return fractions


if __name__ == "__main__":
    run(main)
