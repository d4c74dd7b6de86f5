"""Writes Python's standard library as text: all of train, and excerpts from valid and test.

    python evidence/studies/excerpts.py --out=text --bytes=32000

Small test splits keep those studies short that compute a window again for every token. The splits are those of
scripts/prepare_data.py --dataset=python_stdlib.
"""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import run

FLAGS = flags.FLAGS
flags.DEFINE_string("out", None, "folder for train.txt, valid.txt and test.txt", required=True)
flags.DEFINE_integer("bytes", 32_000, "of valid and of test, at most", lower_bound=1000)
flags.DEFINE_integer("parts", 4, "excerpts of each, equally long and equally far apart", lower_bound=1)


def main(argv):
    del argv
    from txl_tf.data.text.sources import SPLITS, standard_library  # after the flags: TensorFlow takes seconds to load

    os.makedirs(FLAGS.out, exist_ok=True)
    texts = dict.fromkeys(SPLITS, b"")
    for split, text in standard_library().blocks():
        texts[split] += text
    for split, text in texts.items():
        content = text if split == "train" else b"".join(excerpts(text, FLAGS.bytes // FLAGS.parts, FLAGS.parts))
        pathlib.Path(FLAGS.out, f"{split}.txt").write_bytes(content)


def excerpts(text: bytes, length: int, parts: int) -> list[bytes]:
    """Parts of a text, of whole lines, each at most `length` bytes."""
    starts = [text.find(b"\n", i * len(text) // parts) + 1 for i in range(parts)]
    return [text[start : text.rfind(b"\n", start, start + length) + 1] for start in starts]


if __name__ == "__main__":
    run(main)
