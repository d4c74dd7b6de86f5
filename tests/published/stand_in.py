"""Not a test: a checkpoint as the authors' TensorFlow code saves it, small and random, to try the import with.

    python tests/published/stand_in.py TEXT_FILE FOLDER

FOLDER gets model.ckpt-7, and cache.pkl with the words of the text as vocabulary.
"""

import collections
import pathlib
import sys

import numpy as np

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "small"), str(TESTS / "references"), str(TESTS.parent)]


def main(text_file, folder):
    from serving import terminal

    terminal.own_stderr()
    terminal.divert_libraries()
    import published_files as files  # TensorFlow takes seconds to load, and writes to the terminal
    from published_reference import Sizes, tf_others, tf_tensors

    words = pathlib.Path(text_file).read_text().split()
    symbols = ["<eos>", "<unk>", *(word for word, _ in collections.Counter(words).most_common())]
    widths = {"d_model": 16, "d_embed": 16, "d_head": 8, "d_inner": 32}
    sizes = Sizes(len(symbols), **widths, cutoffs=(20, 100), div_val=2, untie_r=True)
    out = pathlib.Path(folder)
    out.mkdir(parents=True)
    weights = tf_tensors(sizes, np.random.default_rng(0), scale=0.05)
    files.write_tf(str(out / "model.ckpt-7"), weights | tf_others(weights))
    (out / "cache.pkl").write_bytes(files.official_pickle(files.Corpus(symbols), protocol=2))
    print(f"{out}: {len(weights)} tensors, {len(symbols)} words")


if __name__ == "__main__":
    main(*sys.argv[1:])
