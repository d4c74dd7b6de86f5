"""Scores the lines of a file: the log-probability of each line as a separate text.

    python scripts/score.py --model_dir=runs/demo --input=sentences.txt --output=scores.jsonl
    python scripts/score.py --model_dir=runs/demo --input=reviews.csv --text_column=review --output=scored.csv

Writes one JSON line per line of the input, in the same order: text, tokens, total (log-probability in nats), ppl; with
--per_token also ids and log_probs. ppl is null for no token, or if it is above 1e308.
An --input that ends in .csv, .tsv, .jsonl or .xlsx is a table: each text in --text_column is scored. An --output with
such an end is then this table with the new columns tokens, total and ppl.
The text does not include the end of its line or a byte order mark. The first token is predicted from the vocabulary's
start token. If more than 1 % of all tokens are unknown words or pieces, a line on standard error says so.
With --nosame_length a line is read in segments of 64 tokens, from the start token on, as in training: each token sees
the memory before its segment, and its segment up to itself.
"""

import contextlib
import math
import sys

from absl import flags
from command_line import (
    define_config_flags,
    define_model_flags,
    define_reach_flags,
    given_flags,
    given_model,
    given_precision,
    given_reach,
    run,
)
from flag_help import require_flags

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.dataset_folders import local, part_files
from txl_tf.data.tables.forms import ENDS, kind_of
from txl_tf.data.tables.json_records import is_json
from txl_tf.data.tables.results import is_table, require_room, write_results
from txl_tf.data.tables.table import line_of
from txl_tf.errors import InputError
from txl_tf.storage.strict_json import json_line
from txl_tf.tasks.texts import read_table

TABLE = ("text_column", "sheet", "no_header", "delimiter", "encoding", "skip_empty")
"""The flags for a table's form."""

SCORES = ("tokens", "total", "ppl")
"""The new columns of a table."""

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/train.py wrote")
flags.DEFINE_string(
    "input", None, "a UTF-8 text file, one text per line, or a table (.csv, .tsv, .jsonl, .xlsx, .parquet)"
)
flags.DEFINE_string(
    "output", None, "a new file for the JSON lines, or for the input's table with scores [standard output]"
)
flags.DEFINE_integer("batch_size", 16, "lines scored at once; changes no result", lower_bound=1)
flags.DEFINE_bool("per_token", False, "also list ids and log_probs")
require_flags("model_dir", "input")
define_config_flags(Columns, only=TABLE, default=Columns())
define_model_flags("checkpoint", "dtype", "quantize")
define_reach_flags()


def is_of_rows(path):
    """Whether a file or folder holds a table, by its name."""
    return kind_of(path) in ENDS or bool(part_files(local(path)))


def check():
    """Checks the flags before TensorFlow is loaded."""
    given = given_flags(Columns, only=TABLE)
    if is_of_rows(FLAGS.input):
        if FLAGS.per_token and FLAGS.output and is_table(FLAGS.output):
            raise InputError(f"--per_token is for JSON lines, and --output={FLAGS.output} is a table: omit it")
        if "://" not in FLAGS.input:
            read_table(FLAGS.input, Columns(**given), labelled=False)
    elif given:
        raise InputError(
            f"--{next(iter(given))} is for tables, and --input={FLAGS.input} has a text in each line: omit it"
        )
    elif FLAGS.output and kind_of(FLAGS.output) in ("csv", "tsv", "xlsx"):
        raise InputError(f"--output={FLAGS.output} would hold JSON lines: give a name that ends in .jsonl")


def main(_):
    import tensorflow as tf  # after the flags are parsed: it takes seconds to load

    from txl_tf.data.vocabularies.base import unknown_note, unknown_share
    from txl_tf.inference.causal.language_model import LanguageModel
    from txl_tf.progress import progress_bar
    from txl_tf.storage.files import make_folder_of, read_texts, require_new

    if FLAGS.output:
        require_new(FLAGS.output, "output")
    columns = Columns(**given_flags(Columns, only=TABLE))
    rows = read_table(FLAGS.input, columns, labelled=False) if is_of_rows(FLAGS.input) else None
    lines = read_texts(FLAGS.input) if rows is None else [row.text for row in rows]
    into_table = rows is not None and FLAGS.output and is_table(FLAGS.output)
    if into_table:
        require_room(FLAGS.output, rows.table, columns, len(SCORES))
    for remark in () if rows is None else rows.remarks:
        print(f"{FLAGS.input}: {remark}", file=sys.stderr)
    if rows is None and lines and is_json(lines[0]):
        print(f"{FLAGS.input}: JSON is scored with its marks; give its texts in a file named .jsonl", file=sys.stderr)
    model = LanguageModel.load(given_model(), FLAGS.checkpoint, **given_precision(), **given_reach())
    if FLAGS.output:
        make_folder_of(FLAGS.output)
    output = tf.io.gfile.GFile(FLAGS.output, "w") if FLAGS.output and not into_table else sys.stdout
    scored_ids, results = [], {}
    with progress_bar("scoring", len(lines), " lines", shown=bool(FLAGS.output) or not sys.stdout.isatty()) as bar:
        for start in range(0, len(lines), FLAGS.batch_size):
            batch = lines[start : start + FLAGS.batch_size]
            for text, score in zip(batch, model.score(batch), strict=True):
                if into_table:
                    found = scored(text, score)
                    results[line_of(rows[len(results)].where)] = {name: found[name] for name in SCORES}
                else:
                    output.write(json_line(scored(text, score)))
                scored_ids.append(score.ids)
            bar.update(len(batch))
    if into_table:
        write_results(FLAGS.output, rows.table, columns, results)
    output.flush()
    share = unknown_share(model.vocabulary, scored_ids)
    if note := unknown_note(model.vocabulary.unit, share, FLAGS.input):
        print(note, file=sys.stderr)


def scored(text, score):
    """The content of the line of a text."""
    n, ppl = len(score.ids), None
    with contextlib.suppress(OverflowError):
        ppl = math.exp(-score.total / n) if n else None
    result = {"text": text, "tokens": n, "total": score.total, "ppl": ppl}
    if FLAGS.per_token:
        result |= {"ids": score.ids.tolist(), "log_probs": score.log_probs.tolist()}
    return result


if __name__ == "__main__":
    run(main, check)
