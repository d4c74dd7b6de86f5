"""Measures the speed of reading data, and the time to seek; can write a large text to measure preparing.

python evidence/bench/data.py --data_dir=/tmp/wt103              # reading: M tokens/s and seconds to seek
python evidence/bench/data.py --make_text=/tmp/big --gigabytes=2 # writes text to prepare: Zipf words, 25 per line
"""

import pathlib
import resource
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import run

from txl_tf.errors import InputError

DATA_DIR = flags.DEFINE_string("data_dir", None, "a prepared corpus to read")
SHAPES = flags.DEFINE_list("shapes", ["22x512", "64x128", "256x128"], "batch_size x tgt_len to read")
SECONDS = flags.DEFINE_float("seconds", 3.0, "how long to read each shape")
MAKE_TEXT = flags.DEFINE_string("make_text", None, "where to write text for prepare_data --dataset=text")
GIGABYTES = flags.DEFINE_float("gigabytes", 2.0, "size of that text")


def read(corpus, batch_size, tgt_len, seconds):
    """Prints the speed of reading and the time to the first batch of a step in mid-epoch."""
    from txl_tf.data.lanes import TrainingLanes
    from txl_tf.settings.run import DataConfig

    lanes = TrainingLanes(corpus, DataConfig(batch_size=batch_size, tgt_len=tgt_len))
    middle = lanes.epoch_steps // 2
    seeks = []
    for step in (middle, middle + 1, middle + 2):
        start = time.monotonic()
        iterator = iter(lanes.batches(step))
        next(iterator)
        seeks.append(time.monotonic() - start)
    steps, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        next(iterator)
        steps += 1
    speed = steps * batch_size * tgt_len / (time.monotonic() - start)
    print(f"{batch_size} x {tgt_len}: {speed / 1e6:.1f} M tokens/s, seek {sorted(seeks)[1]:.2f} s")


def make_text(directory, gigabytes):
    """Writes train.txt, valid.txt and test.txt with 2.4 million different words, distributed by Zipf's law."""
    import os

    import numpy as np

    rng, types = np.random.default_rng(0), 2_400_000
    cumulative = np.cumsum(1 / np.arange(1, types + 1) ** 1.05)
    words = np.array([f"{rank:x} ".encode() for rank in range(types)])
    os.makedirs(directory, exist_ok=True)
    for split, size in (("train", gigabytes * 1e9), ("valid", 1e6), ("test", 1e6)):
        with open(os.path.join(directory, f"{split}.txt"), "wb") as file:
            while file.tell() < size:
                block = words[np.searchsorted(cumulative, rng.random(1_000_000) * cumulative[-1])]
                lines = [b"".join(line) for line in block.reshape(-1, 25)]
                file.write(b"\n".join(lines)[: int(size - file.tell())] + b"\n")


def main(argv):
    del argv
    from txl_tf.data.manifest import load_corpus

    if MAKE_TEXT.value:
        make_text(MAKE_TEXT.value, GIGABYTES.value)
    elif DATA_DIR.value:
        corpus = load_corpus(DATA_DIR.value)
        for shape in SHAPES.value:
            read(corpus, *map(int, shape.split("x")), SECONDS.value)
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    else:
        raise InputError("give --data_dir to read a corpus, or --make_text to write a text")


if __name__ == "__main__":
    run(main)
