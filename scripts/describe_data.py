"""Describes a prepared corpus: counts, vocabulary, tokens per cluster, an example of each split.

python scripts/describe_data.py --data_dir=/tmp/wt103 [--verify]
"""

from absl import flags
from command_line import run
from flag_help import require_flags

DATA_DIR = flags.DEFINE_string("data_dir", None, "a directory that scripts/prepare_data.py wrote; local or gs://")
EXAMPLE_TOKENS = flags.DEFINE_integer("example_tokens", 64, "length of the examples", lower_bound=1)
VERIFY = flags.DEFINE_bool("verify", False, "read all shards and compare their sha256 with the manifest")
require_flags("data_dir")


def main(_):
    from txl_tf.data.describe import describe
    from txl_tf.data.manifest import load_corpus

    corpus = load_corpus(DATA_DIR.value)
    if VERIFY.value:
        corpus.check_content()
        print("all checksums are right")
    for line in describe(corpus, EXAMPLE_TOKENS.value):
        print(line)


if __name__ == "__main__":
    run(main)
