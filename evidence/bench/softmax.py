"""Times AdaptiveSoftmax against a lower bound: its head, and tails with exactly the tokens that they need.

    python evidence/bench/softmax.py --counts=counts.txt

Both compute the loss of the same tokens and its gradients with respect to the hidden states and all weights. The lower
bound is plain TensorFlow with shapes for each cluster's number of tokens: fast, but it would have to be compiled for
every batch. Runs alternate, and their medians are compared. The last line is JSON.
"""

import json
import pathlib
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

import numpy as np
from absl import flags
from command_line import run

FLAGS = flags.FLAGS
flags.DEFINE_string("counts", None, "file of 'word count' lines, most frequent first; none: Zipf's law")
flags.DEFINE_integer("vocab_size", 267735, "V", lower_bound=1)
flags.DEFINE_list("cutoffs", ["20000", "40000", "200000"], "ids at which the clusters end")
flags.DEFINE_integer("div_val", 4, "divides the embedding width from cluster to cluster", lower_bound=1)
flags.DEFINE_integer("d_model", 1024, "D", lower_bound=1)
flags.DEFINE_integer("tokens", 3072, "tokens in a batch", lower_bound=1)
flags.DEFINE_string("dtype", "float32", "Keras dtype policy")
flags.DEFINE_bool("jit_compile", False, "compile both sides with XLA")
flags.DEFINE_integer("repeats", 7, "timed runs of each side", lower_bound=1)
flags.DEFINE_integer("seed", 0, "of the tokens drawn")


def token_frequencies(path, vocab_size):
    """Relative frequencies of ids 0..V-1."""
    if path is None:
        counts = 1 / np.arange(1, vocab_size + 1)
    else:
        with open(path, encoding="utf-8") as lines:
            counts = np.array([int(line.rsplit(maxsplit=1)[1]) for line in lines][:vocab_size], "float64")
        counts = np.pad(counts, (0, vocab_size - len(counts)))
    return counts / counts.sum()


def exactly_filled(softmax, embedding, targets):
    """A loss function for these targets only: the cluster of each token is known in advance."""
    import tensorflow as tf

    from txl_tf.ops import cluster_logits

    cluster = np.searchsorted(softmax.cutoffs, targets, side="right")
    head_labels = np.where(cluster == 0, targets, softmax.sizes[0] + cluster - 1)
    own = [np.flatnonzero(cluster == i) for i in range(len(softmax.sizes))]

    def loss(hidden, _):
        hidden = tf.cast(hidden, softmax.compute_dtype)
        head, *tails = softmax.clusters(embedding)
        total = tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(head_labels, softmax.head_logits(hidden, head))
        )
        for i, tail in enumerate(tails, start=1):
            labels, logits = targets[own[i]] - softmax.starts[i], cluster_logits(tf.gather(hidden, own[i]), tail)
            total += tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return total

    return loss


def step(loss, layers):
    """A compiled function (hidden, targets) -> (loss, gradients)."""
    import tensorflow as tf

    variables = [weight.value for layer in layers for weight in layer.weights]

    @tf.function(jit_compile=FLAGS.jit_compile)
    def loss_and_gradients(hidden, targets):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            value = loss(hidden, targets)
        return value, tape.gradient(value, [hidden, *variables], unconnected_gradients="zero")

    return loss_and_gradients


def timed(side, *args):
    """The seconds of one call, and its loss."""
    start = time.perf_counter()
    value = float(side(*args)[0])
    return time.perf_counter() - start, value


def main(_):
    import tensorflow as tf  # after the flags are parsed: TensorFlow takes seconds to load

    from txl_tf.layers.embedding import AdaptiveEmbedding
    from txl_tf.layers.softmax import AdaptiveSoftmax

    cutoffs = [int(cutoff) for cutoff in FLAGS.cutoffs]
    shared = {"cutoffs": cutoffs, "div_val": FLAGS.div_val, "dtype": FLAGS.dtype}
    embedding = AdaptiveEmbedding(FLAGS.vocab_size, FLAGS.d_model, **shared)
    softmax = AdaptiveSoftmax(FLAGS.vocab_size, FLAGS.d_model, proj_share_all_but_first=True, **shared)
    embedding.build()
    softmax.build()

    rng = np.random.default_rng(FLAGS.seed)
    targets = rng.choice(FLAGS.vocab_size, FLAGS.tokens, p=token_frequencies(FLAGS.counts, FLAGS.vocab_size))
    targets = targets.astype("int32")
    hidden = tf.constant(rng.normal(size=[FLAGS.tokens, FLAGS.d_model]), tf.float32)
    layers = (embedding, softmax)
    sides = {
        "layer": step(lambda hidden, targets: tf.reduce_sum(softmax.nll(hidden, targets, embedding)), layers),
        "exactly_filled": step(exactly_filled(softmax, embedding, targets), layers),
    }
    times = {name: [] for name in sides}
    args = (hidden, tf.constant(targets))
    values = {name: timed(side, *args)[1] for name, side in sides.items()}  # also compiles
    for _ in range(FLAGS.repeats):
        for name, side in sides.items():
            times[name].append(timed(side, *args)[0])
    median = {name: statistics.median(runs) for name, runs in times.items()}
    result = {
        "tokens_per_cluster": np.bincount(np.searchsorted(cutoffs, targets, side="right")).tolist(),
        "dtype": FLAGS.dtype,
        "jit_compile": FLAGS.jit_compile,
        "layer_seconds": round(median["layer"], 4),
        "exactly_filled_seconds": round(median["exactly_filled"], 4),
        "ratio": round(median["layer"] / median["exactly_filled"], 3),
        "loss_difference": abs(values["layer"] - values["exactly_filled"]) / FLAGS.tokens,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    run(main)
