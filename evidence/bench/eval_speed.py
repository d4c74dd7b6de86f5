"""Measures how much slower evaluation is without recurrence: table 9 of the paper, on this machine.

    python evidence/bench/eval_speed.py --attn_lens=800,1800,2800,3800 --plot=docs/eval_speed.svg

At each attention length a Transformer-XL reads segments with a memory of that length; the same layers without memory
read a new window of that length for every token. Weights are random, since they do not change the time. Prints one
JSON line per length and a table. Measurements of one length alternate, and the fastest counts. --plot draws the ratios
beside the paper's.
"""

import dataclasses
import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import define_config_flags, given_flags, integers, run

from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import EvalConfig, Reach, TransformerXLConfig
from txl_tf.settings.groups import update

PUBLISHED = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}
SIZES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size")

FLAGS = flags.FLAGS
flags.DEFINE_list("attn_lens", [str(length) for length in PUBLISHED], "attention lengths in tokens")
flags.DEFINE_integer("tgt_len", 128, "segment length of the Transformer-XL", lower_bound=1)
flags.DEFINE_string("plot", None, "an SVG file for the ratios, drawn beside the paper's")
flags.DEFINE_bool("jit_compile", True, "compile both with XLA, as evaluation does")
flags.DEFINE_integer("repeats", 5, "measurements of each; the fastest counts", lower_bound=1)
define_config_flags(TransformerXLConfig, only=SIZES)


def main(argv):
    del argv
    lengths = integers("attn_lens")
    if min(lengths, default=0) < 1:
        raise InputError("--attn_lens must name lengths of at least 1")
    from txl_tf.models.transformer_xl.model import TransformerXL  # after the flags: TensorFlow takes seconds to load

    config = update(TransformerXLConfig(n_layer=6, vocab_size=204), given_flags(TransformerXLConfig, only=SIZES))
    config = dataclasses.replace(config, d_embed=config.d_model, dropout=0.0)
    model = TransformerXL(config)
    title = (
        f"{config.n_layer} layers of width {config.d_model}, {model.count_params() / 1e6:.1f} M parameters, {device()}"
    )
    rows = []
    for length in lengths:
        recurrent, windows = seconds_per_token(model, length)
        rows.append((length, recurrent, windows, windows / recurrent, PUBLISHED.get(length)))
        names = ("attn_len", "recurrent_sec_per_token", "sliding_window_sec_per_token", "times_slower", "paper")
        print(json.dumps(dict(zip(names, rows[-1], strict=True))), flush=True)
    print(f"\n{title}\n")
    print("| attention length | Transformer-XL, ms/token | sliding window, ms/token | times slower | paper |")
    print("|---|---|---|---|---|")
    for length, recurrent, windows, ratio, paper in rows:
        print(f"| {length:,} | {recurrent * 1e3:.3f} | {windows * 1e3:,.1f} | {ratio:,.0f} | {paper or ''} |")

    if FLAGS.plot:
        import tensorflow as tf

        from txl_tf.storage.files import write_atomically

        tf.io.gfile.makedirs(os.path.dirname(FLAGS.plot) or ".")
        write_atomically(FLAGS.plot, drawing(title, rows))


def device():
    """The name of the device."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else f"{os.cpu_count()} CPU cores"


def seconds_per_token(model, length):
    """(seconds of the Transformer-XL with `length` memory slots, seconds of sliding windows of `length` tokens)."""
    import tensorflow as tf

    from txl_tf.objectives.causal_lm import CausalScorer

    def timed(tgt_len, sliding_window):
        scorer = CausalScorer(model, EvalConfig(tgt_len=tgt_len), Reach(length), sliding_window)
        tokens = tf.zeros([1, tgt_len], tf.int32)

        @tf.function(jit_compile=FLAGS.jit_compile)
        def score(state):
            scores = scorer((tokens, tokens), state)
            return tf.reduce_sum(scores.nll), scores.state

        state = scorer.initial_state(1)
        if sliding_window:
            state = (state[0], tf.constant(length))  # a full window

        def once():
            nonlocal state
            start = time.perf_counter()
            nll, state = score(state)
            float(nll)
            return (time.perf_counter() - start) / tgt_len

        return once

    measurements = timed(FLAGS.tgt_len, 0), timed(1, length)
    for once in measurements:
        once()  # traces
    times = [[once() for once in measurements] for _ in range(FLAGS.repeats)]
    return [min(column) for column in zip(*times, strict=True)]


def drawing(title, rows):
    """An SVG text: our ratios and the paper's against the attention length; `rows` as in `main`."""
    sys.path.append(str(pathlib.Path(__file__).parents[2] / "docs" / "figures"))
    from drawing import OTHER, STRONG, draw_curves, new_figure, svg_of

    figure, axes = new_figure(3.4)
    draw_curves(axes, f"Evaluation without recurrence\n{title}", "attention length, tokens", "times slower")
    for name, column, colour in (("txl_tf", 3, STRONG), ("the paper, on a GPU", 4, OTHER)):
        points = [(row[0], row[column]) for row in rows if row[column]]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", label=name)
    axes.set_xticks([row[0] for row in rows], [f"{row[0]:,}" for row in rows])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0)
    axes.legend()
    return svg_of(figure)


if __name__ == "__main__":
    run(main)
