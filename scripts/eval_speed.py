"""How many times slower evaluation is without recurrence: table 9 of the paper, measured on this machine.

    python scripts/eval_speed.py --attn_lens=800,1800,2800,3800

At each attention length a Transformer-XL reads segments with that much memory, while the same layers without memory
read a fresh window of that length for every token. Weights are random: they do not change the time. Prints one
JSON line per length and a table; all times of one length are taken in turns, and the least of them counts.
"""

import dataclasses
import json
import time

from absl import flags
from command_line import define_config_flags, given_flags, run

from txl_tf.config import ModelConfig, Reach, update
from txl_tf.errors import InputError

PUBLISHED = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}
SIZES = ("n_layer", "d_model", "n_head", "d_head", "d_inner", "vocab_size")

FLAGS = flags.FLAGS
flags.DEFINE_list("attn_lens", [str(length) for length in PUBLISHED], "attention lengths in tokens")
flags.DEFINE_integer("tgt_len", 128, "tokens the Transformer-XL reads at once", lower_bound=1)
flags.DEFINE_integer("repeats", 5, "measurements of each, of which the fastest counts", lower_bound=1)
define_config_flags(ModelConfig, only=SIZES)


def main(argv):
    del argv
    try:
        lengths = [int(length) for length in FLAGS.attn_lens]
    except ValueError:
        raise InputError(f"--attn_lens={','.join(FLAGS.attn_lens)} must be integers separated by commas") from None
    if min(lengths, default=0) < 1:
        raise InputError("--attn_lens must name lengths of at least 1")
    from txl_tf.models.transformer_xl import TransformerXL  # after the flags: TensorFlow takes seconds to load

    config = update(ModelConfig(n_layer=6, vocab_size=204), given_flags(ModelConfig, only=SIZES))
    config = dataclasses.replace(config, d_embed=config.d_model, dropout=0.0)
    model = TransformerXL(config)
    rows = []
    for length in lengths:
        recurrent, windows = seconds_per_token(model, length)
        rows.append((length, recurrent, windows, windows / recurrent, PUBLISHED.get(length)))
        names = ("attn_len", "recurrent_sec_per_token", "sliding_window_sec_per_token", "times_slower", "paper")
        print(json.dumps(dict(zip(names, rows[-1], strict=True))), flush=True)
    print("\n| attention length | Transformer-XL, ms/token | sliding window, ms/token | times slower | paper |")
    print("|---|---|---|---|---|")
    for length, recurrent, windows, ratio, paper in rows:
        print(f"| {length:,} | {recurrent * 1e3:.3f} | {windows * 1e3:,.1f} | {ratio:,.0f} | {paper or ''} |")


def seconds_per_token(model, length):
    """Of the Transformer-XL with `length` memory slots, and of sliding windows of `length` tokens."""
    import tensorflow as tf

    from txl_tf.inference.evaluate import make_reader

    def timed(tgt_len, sliding_window):
        initial_state, read = make_reader(model, Reach(length), tgt_len, sliding_window)
        tokens = tf.zeros([1, tgt_len], tf.int32)

        @tf.function
        def score(state):
            hidden, state = read(tokens, state)
            return tf.reduce_sum(model.nll(hidden, tokens)), state

        state = initial_state(1)
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


if __name__ == "__main__":
    run(main)
