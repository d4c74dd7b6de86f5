"""Prepares a corpus once: TFRecord shards, vocabulary and manifest.json, for any batch size and segment length.

python scripts/prepare_data.py --dataset=python_stdlib --data_dir=/tmp/stdlib
python scripts/prepare_data.py --dataset=text --source='books/*.txt' --data_dir=/tmp/books
"""

from absl import flags
from command_line import run

DATASET = flags.DEFINE_enum("dataset", None, ["python_stdlib", "text"], "which corpus", required=True)
DATA_DIR = flags.DEFINE_string("data_dir", None, "where to write; local or gs://", required=True)
SOURCE = flags.DEFINE_string("source", None, "file, directory or glob to read")
OVERWRITE = flags.DEFINE_bool("overwrite", False, "replace the corpus that is there")


def main(argv):
    del argv
    from txl_tf.data.prepare import prepare

    corpus = prepare(DATASET.value, DATA_DIR.value, SOURCE.value, overwrite=OVERWRITE.value)
    for name, split in corpus.splits.items():
        print(f"{name}: {split.tokens:,} tokens")


if __name__ == "__main__":
    run(main)
