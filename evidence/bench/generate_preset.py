"""Measures the speed of generation by a published model's sizes, with their large vocabularies, in alternating rounds.

    python evidence/bench/generate_preset.py --rounds=5
    PRESET=wt103_large MEM_LEN=1600 TEXTS=4 python evidence/bench/generate_preset.py

The weights are random. The environment variables PRESET and MEM_LEN choose the model and its memory [wt103_base and
640]; clamp_len is the preset's. TEXTS texts [1] are continued at once, always from the same place: `greedy` takes the
most likely token, `top_p` samples with top_p = 0.9. Formats are those of evidence/bench/generate.py.

One JSON line has for each task the milliseconds in which each text gets a token (medians), and each format's speed
relative to float32.
"""

import dataclasses
import functools
import os
import statistics
import sys

from beside import side_by_side
from beside.inference_model import FORMATS

PRESET, MEM_LEN = os.environ.get("PRESET", "wt103_base"), int(os.environ.get("MEM_LEN", "640"))
TEXTS = int(os.environ.get("TEXTS", "1"))
TOKENS = 32
"""Per round."""
SAMPLINGS = {"greedy": {"temperature": 0.0}, "top_p": {"top_p": 0.9}}


def format_named(name):
    """The tasks of one format of `FORMATS`."""
    import tensorflow as tf

    from txl_tf.families.presets.transformer_xl import PRESETS
    from txl_tf.inference.causal.draw_token import Choice
    from txl_tf.inference.generation.generator import CHUNK, Generator
    from txl_tf.models.transformer_xl.config import Reach
    from txl_tf.models.transformer_xl.model import TransformerXL

    dtype, int8 = FORMATS[name]
    config = PRESETS[PRESET].config
    model = TransformerXL(dataclasses.replace(config.model, dtype=dtype))
    if int8:
        model.round_to_int8()
    generator = Generator(model, Reach(MEM_LEN, clamp_len=config.eval.clamp_len), int8=int8)
    draft, given = generator.begin(TEXTS), tf.fill([TEXTS, CHUNK], -1)

    def task(settings):
        choice = Choice.of([0] * TEXTS, **settings)
        return lambda: generator.decode(draft, given, tf.constant(TOKENS), choice)[0].numpy().tolist()

    return {name: task(settings) for name, settings in SAMPLINGS.items()}


def report(measured):
    """The JSON line of the results of `side_by_side.measure`."""
    line = {"preset": PRESET, "mem_len": MEM_LEN, "texts": TEXTS}
    for task, formats in measured.items():
        seconds = {name: statistics.median(one["seconds"] for one in rounds) for name, rounds in formats.items()}
        line[task] = {
            "ms_per_token": {name: round(median / TOKENS * 1e3, 2) for name, median in seconds.items()},
            "over_float32": {name: round(seconds["float32"] / median, 2) for name, median in seconds.items()},
        }
    return line


if __name__ == "__main__":
    own = {name: functools.partial(format_named, name) for name in FORMATS}
    sys.exit(side_by_side.run(__doc__, own, {}, report))
