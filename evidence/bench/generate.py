"""Measures the speed of generation by the numbers' format and by the batch, in alternating rounds.

    python evidence/bench/generate.py --rounds=7

The model is that of inference.py, in one of its sizes, with random weights. Formats: float32, mixed_bfloat16,
and both with the weights in int8 (--quantize=int8); more than four texts are generated from the same rounded
weights in the format of the dtype.

One JSON line has for each batch the tokens per second of all its texts (medians), and their ratio to float32's. For one
text it also has the bytes that a token reads, and the share of the memory bandwidth: that of matrix-vector products on
all cores, in the same rounds. `flat` is the time of a token after 10,000 tokens divided by that of one at the start.
"""

import functools
import statistics
import sys

from beside import inference_model, side_by_side
from beside.inference_model import FORMATS

BATCHES = {1: 10, 4: 3, 16: 1}
"""{texts: chunks of 64 tokens each, per round}."""
LATE = 10_000


def format_named(name):
    """The tasks of one format."""
    import numpy as np
    import tensorflow as tf

    from txl_tf.inference.causal.draw_token import Choice
    from txl_tf.inference.generation.generator import CHUNK, Generator
    from txl_tf.models.transformer_xl.config import Reach

    dtype, int8 = FORMATS[name]
    model = inference_model.our_model(dtype)
    if int8:
        model.round_to_int8()
    generator = Generator(model, Reach(inference_model.M), int8=int8)

    def write(draft, chunks):
        """Continues texts greedily."""
        batch_size = draft.last.shape[0]
        given, choice = tf.fill([batch_size, CHUNK], -1), Choice.of([0] * batch_size, temperature=0.0)
        for _ in range(chunks):
            ids, draft = generator.decode(draft, given, tf.constant(CHUNK), choice)
            ids.numpy()
        return draft

    def fresh(batch_size):
        draft = generator.begin(batch_size)
        return draft._replace(last=tf.constant(np.arange(batch_size), tf.int32))

    def task(size, first=fresh):
        """A task that continues texts, always from the same place."""
        begun = functools.cache(first)
        return lambda: bool(write(begun(size), BATCHES[size]))

    tasks = {f"batch {size}": task(size) for size in BATCHES}
    return {**tasks, "late": task(1, lambda size: write(fresh(size), LATE // CHUNK))}


def limit():
    """The machine's limit for one text in float32, as evidence/bench/inference.py measures it."""
    return {"batch 1": inference_model.limit()["generate"]}


def report(measured):
    """The JSON line of the results of `side_by_side.measure`."""
    line = {}
    for size, chunks in BATCHES.items():
        seconds = {
            name: statistics.median(one["seconds"] for one in rounds)
            for name, rounds in measured[f"batch {size}"].items()
            if name != "limit"
        }
        rates = {name: size * chunks * 64 / median for name, median in seconds.items()}
        line[f"batch {size}"] = {
            "tokens_per_sec": {name: round(rate, 1) for name, rate in rates.items()},
            "over_float32": {name: round(rate / rates["float32"], 2) for name, rate in rates.items()},
        }
    streamed = statistics.median(one["seconds"] for one in measured["batch 1"]["limit"])
    bandwidth = inference_model.token_bytes() * inference_model.STREAMED_TOKENS / streamed
    rates = line["batch 1"]["tokens_per_sec"]
    read = {}
    for name, (dtype, int8) in FORMATS.items():
        number = 4 if dtype == "float32" else 2
        read[name] = inference_model.token_bytes(1 if int8 else number, number)
    line["batch 1"] |= {
        "mbytes_per_token": {name: round(read[name] / 1e6, 1) for name in FORMATS},
        "share_of_bandwidth": {name: round(read[name] * rates[name] / bandwidth, 2) for name in FORMATS},
        "gbytes_per_sec": round(bandwidth / 1e9, 1),
    }
    early, late = (
        {name: statistics.median(one["seconds"] for one in rounds) for name, rounds in measured[task].items()}
        for task in ("batch 1", "late")
    )
    line["flat"] = {name: round(late[name] / early[name], 3) for name in FORMATS}
    return line


if __name__ == "__main__":
    own = {name: functools.partial(format_named, name) for name in FORMATS} | {"limit": limit}
    sys.exit(side_by_side.run(__doc__, own, {}, report, inference_model.NAMED))
