r"""Prepares a corpus once: TFRecord shards, vocabulary and manifest.json, for any batch size and segment length.

python scripts/prepare_data.py --dataset=python_stdlib --data_dir=/tmp/stdlib
python scripts/prepare_data.py --dataset=wt103 --data_dir=gs://bucket/wt103
python scripts/prepare_data.py --dataset=wt103 --source=wikitext-103-v1.zip --data_dir=/tmp/wt103
python scripts/prepare_data.py --dataset=text --source='books/*.txt' --vocab=sentencepiece --vocab_size=8000 \
    --data_dir=/tmp/books
"""

import dataclasses
import shlex

from absl import flags
from command_line import run
from flag_help import require_flags

from txl_tf.errors import InputError
from txl_tf.settings import choices

FLAGS = flags.FLAGS
flags.DEFINE_enum("dataset", None, choices.DATASETS, "which corpus; text: your own files")
flags.DEFINE_string("data_dir", None, "where to write; local or gs://")
flags.DEFINE_string(
    "source", None, "the corpus on disk, as published or unpacked; for text a file, directory or quoted glob"
)
flags.DEFINE_enum("vocab", None, choices.VOCABULARIES, "kind of token, if not the corpus's own (text: bytes)")
flags.DEFINE_integer("vocab_size", None, "size of the SentencePiece model to train", lower_bound=266)
flags.DEFINE_string(
    "vocab_file",
    None,
    "vocabulary to use: a list of words, a SentencePiece model (xlnet: the published spiece.model), or the vocab.txt "
    "of a model_dir",
)
flags.DEFINE_bool("keep_accents", False, "for --vocab=xlnet: keep accents, which Japanese and other texts need")
flags.DEFINE_integer("min_count", None, "rarer words become <unk>", lower_bound=1)
flags.DEFINE_enum("documents", "file", choices.DOCUMENTS, "for --dataset=text: what separates documents")
flags.DEFINE_enum(
    "splits",
    None,
    choices.SPLIT_RULES,
    "for --dataset=text. names: files or folders named train, valid (val, validation, dev, eval) and test. shares: the "
    "last 5 % of every file are test, the 5 % before them valid; with 40 files or more, whole files are drawn "
    "[names, if files or folders have such names]",
)
flags.DEFINE_string("encoding", None, "for --dataset=text that is not UTF-8, such as cp1252 or utf-16")
flags.DEFINE_bool("binary", False, "for --dataset=text: also read files that are not text")
flags.DEFINE_string(
    "text_column",
    None,
    "the column of the texts in Parquet, Arrow, JSON lines, CSV or TSV [text, sentence, or the only one]",
)
flags.DEFINE_bool("as_is", False, "read the letters of JSON lines, CSV and TSV, not the texts in their rows")
flags.DEFINE_integer(
    "passes", None, "copies of the training text, each with its lines shuffled [4 for lm1b, else 1]", lower_bound=1
)
flags.DEFINE_integer("seed", 0, "of the shuffling")
flags.DEFINE_bool("overwrite", False, "replace a corpus in data_dir")
flags.DEFINE_enum(
    "runner", "local", choices.RUNNERS, "local: this process; beam: Apache Beam, which needs the extra `beam`"
)
flags.DEFINE_string(
    "beam_args",
    "",
    "flags of Apache Beam in one string, such as '--runner=DataflowRunner --project=P' or "
    "'--direct_running_mode=multi_processing --direct_num_workers=4'",
)
flags.DEFINE_string("download_dir", None, "where archives are kept [data_dir/downloads]")
require_flags("dataset", "data_dir")


def main(_):
    if FLAGS.beam_args and FLAGS.runner != "beam":
        raise InputError("--beam_args is for --runner=beam")
    from txl_tf.data.prepare import prepare  # here, so that --help and wrong flags are answered at once
    from txl_tf.data.request import Settings
    from txl_tf.data.text.splits import RULES
    from txl_tf.data.vocabularies.base import unknown_note

    corpus = prepare(
        data_dir=FLAGS.data_dir,
        overwrite=FLAGS.overwrite,
        download_dir=FLAGS.download_dir,
        beam_args=shlex.split(FLAGS.beam_args) if FLAGS.runner == "beam" else None,
        **{field.name: FLAGS[field.name].value for field in dataclasses.fields(Settings)},
    )
    print(f"{corpus.data_dir}: {corpus.dataset}, {corpus.vocab_size:,} {corpus.unit}s")
    for name, split in corpus.splits.items():
        passes = f", {len(split.passes)} passes" if len(split.passes) > 1 else ""
        print(f"{name:>6} {split.tokens:15,} tokens{passes}{read_from(corpus.texts.get(name))}")
    for note in filter(None, (RULES.get(corpus.split_rule), corpus.vocabulary_note)):
        print(note)
    for name, split in corpus.splits.items():
        if note := unknown_note(corpus.unit, split.unknown_share, f"the {name} text"):
            print(note)


def read_from(text):
    """The source of a split's text, as the end of its line. text: from `Corpus.texts`, or None."""
    if not text:
        return ""
    more = ", .." if text["files"] > len(text["first"]) else ""
    files = f"{text['files']:,} files: " if text["files"] > 1 else ""
    return f" {text['bytes']:15,} bytes of {files}{', '.join(text['first'])}{more}"


if __name__ == "__main__":
    run(main)
