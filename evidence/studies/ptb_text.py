"""Writes the first lines of each file of the Penn Treebank.

    python evidence/studies/ptb_text.py --source=FOLDER --out=text --part=10

FOLDER has ptb.train.txt, ptb.valid.txt and ptb.test.txt, perhaps with .gz.
"""

import gzip
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import run

from txl_tf.errors import InputError

FLAGS = flags.FLAGS
flags.DEFINE_string("source", None, "the folder", required=True)
flags.DEFINE_string("out", None, "the folder to write", required=True)
flags.DEFINE_integer("part", 10, "write the first 1 / part of the lines", lower_bound=1)


def main(argv):
    del argv
    out = pathlib.Path(FLAGS.out)
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        lines = read(pathlib.Path(FLAGS.source), f"ptb.{split}.txt").splitlines(keepends=True)
        (out / f"ptb.{split}.txt").write_bytes(b"".join(lines[: len(lines) // FLAGS.part]))


def read(folder: pathlib.Path, name: str) -> bytes:
    """The content of a file, or of the file with .gz."""
    for path, unpack in ((folder / name, bytes), (folder / f"{name}.gz", gzip.decompress)):
        if path.exists():
            return unpack(path.read_bytes())
    raise InputError(f"--source={folder} has neither {name} nor {name}.gz")


if __name__ == "__main__":
    run(main)
