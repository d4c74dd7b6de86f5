"""Writes the text of the study recall: train.txt, valid.txt and test.txt, see key_values.py.

python evidence/studies/recall_text.py --out=text --longest=256
python scripts/prepare_data.py --dataset=text --source=text --vocab=words --data_dir=corpus
"""

import os
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import integers, run
from key_values import key_values

FLAGS = flags.FLAGS
flags.DEFINE_string("out", None, "folder for the three files", required=True)
flags.DEFINE_integer("keys", 16, "number of keys", lower_bound=1, upper_bound=26)
flags.DEFINE_integer("values", 8, "number of values", lower_bound=2, upper_bound=10)
flags.DEFINE_integer("longest", 256, "largest distance in words", lower_bound=1)
flags.DEFINE_list("words", ["1000000", "8000", "40000"], "words of train, valid and test")
flags.DEFINE_integer("seed", 0, "of the random text", lower_bound=0)


def main(argv):
    del argv
    os.makedirs(FLAGS.out, exist_ok=True)
    for split, length in zip(("train", "valid", "test"), integers("words"), strict=True):
        words = key_values(length, FLAGS.keys, FLAGS.values, FLAGS.longest, random.Random(f"{FLAGS.seed} {split}"))
        pathlib.Path(FLAGS.out, f"{split}.txt").write_text(" ".join(words) + "\n")


if __name__ == "__main__":
    run(main)
