"""Predicts with a fine-tuned model: a line of JSON for each input, in the order of the file.

    python scripts/predict.py --model_dir=runs/sentiment --input=reviews.tsv > predictions.jsonl
    python scripts/predict.py --model_dir=runs/sentiment --input=reviews.csv --output=answers.csv
    python scripts/predict.py --model_dir=runs/race --input=RACE/test --output=predictions.jsonl --metrics

The input has the form that the task is trained on; labels may be missing. The columns of a table have the names that
they had in training, or those that the flags give. If --output ends in .csv, .tsv, .jsonl, .xlsx or .parquet, it is the
input's table, rows and columns in their order, with the new columns prediction and probability (several labels and
scores have none). --unsure_below=0.8 adds unsure, --all_probabilities adds "probability CLASS" for each class. For
tagging, prediction has all names that were found, and probability that of the least sure one. For questions, prediction
is the answer or the option, if each has a row of its own. For these three a .jsonl has lines of JSON, not the table.
Such lines, also without --output,
have by task

    classification    label, probability, and probabilities of all labels
    multi_label       labels, those that fit, and probabilities of all labels
    regression        score
    multiple_choice   choice (the option's number, from 0 on), option, probability, and probabilities of all options
    answering         id, answer ("": there is none), probability, begin and end in characters of the context (null if
                      there is none), no_answer_probability, candidates (likely answers with the same fields)
    tagging           text, tokens (its words), tags, probabilities (of the tags), places (begin and end of each word in
                      characters), entities (what the tags name, each with label, text, begin, end and the probability
                      of its least sure word)

and step, the number of the checkpoint: the best on dev, or the newest if none was evaluated.
For tagging, an --output that ends in .conll has lines of a word, a tab and its tag, and an empty line after each text.
For answering, --squad_dir also writes the files that SQuAD's official evaluation reads. A question has no answer if the
score for that is above the threshold of the best F1 on dev, or above even odds if this checkpoint was not evaluated.
If all predictions are alike, or no better than the most frequent class, a line on stderr says so, and what to try.
With --metrics the inputs must have labels; the last line on stderr is then JSON with the task's standard metrics.
"""

import os
import sys

from absl import flags
from command_line import (
    define_example_flags,
    define_model_flags,
    define_strategy_flags,
    given_flags,
    given_model,
    run,
    understood,
)
from flag_help import require_flags

from txl_tf import families
from txl_tf.data.tables.columns import Columns, table_columns
from txl_tf.data.tables.forms import kind_of
from txl_tf.data.tables.results import is_table, require_room, write_results
from txl_tf.errors import InputError
from txl_tf.settings.choices import ONE_PROCESS_STRATEGIES
from txl_tf.storage.local_files import read_local
from txl_tf.storage.strict_json import json_line, parse_json
from txl_tf.tasks.answering import Answering, no_answer_threshold
from txl_tf.tasks.tagging import CONLL

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "a directory that scripts/finetune.py wrote")
flags.DEFINE_string(
    "input",
    None,
    "a table (.xlsx, .tsv, .csv, .jsonl, .parquet, also with .gz), RACE's folder or .jsonl, SQuAD's .json, or CoNLL",
)
flags.DEFINE_string(
    "output",
    None,
    "the new file to write, local or gs://. A name in .csv, .tsv, .jsonl, .xlsx or .parquet: the input's table with "
    "further columns. In .conll: tagged words. Any other: JSON lines [JSON lines on stdout]",
)
flags.DEFINE_bool("all_probabilities", False, "with a table as --output: also a column for each class")
flags.DEFINE_string(
    "squad_dir", None, "for answering: a directory for predictions.json, nbest_predictions.json and null_odds.json"
)
flags.DEFINE_float(
    "threshold", None, "for several labels: the least probability of a label that is given [the best on dev]"
)
flags.DEFINE_float(
    "unsure_below", None, "add unsure: whether the probability of a prediction is below this, such as 0.8"
)
flags.DEFINE_bool("metrics", False, "compare with the labels of the input")
flags.DEFINE_integer("batch_size", None, "inputs at once [as in the run's evaluation]", lower_bound=1)
flags.DEFINE_bool("jit_compile", False, "compile the model with XLA: pays off with many inputs")
require_flags("model_dir", "input")
define_strategy_flags(ONE_PROCESS_STRATEGIES)
define_example_flags()
define_model_flags("checkpoint", "weights")


read = {}
"""The rows of the input, by its path, if they were read before TensorFlow was loaded."""


def check():
    """Checks the flags before TensorFlow is loaded."""
    columns = given_flags(Columns)
    try:
        text = read_local(os.path.join(FLAGS.model_dir, "config.json")).decode()
        task = families.task_of(families.config_from_json(text))
    except (OSError, ValueError):
        return  # remote, or wrong in a way that is reported when the model is loaded
    if not isinstance(task, families.FineTuning):
        return
    kind = table_kind()
    if FLAGS.all_probabilities and kind not in task.table_kinds:
        raise InputError("--all_probabilities needs a table as --output: the lines of JSON have them")
    if FLAGS.all_probabilities and not task.tables:
        raise InputError("--all_probabilities is for classes and labels: the lines of JSON have those of all words")
    columns = table_columns(FLAGS.model_dir, columns, FLAGS.metrics)
    read.update(
        understood(task.name, (FLAGS.input,), columns, FLAGS.metrics, sys.stderr, known_labels(FLAGS.model_dir))
    )


def table_kind():
    """The end of --output if it is the name of a table; "" if it is not. InputError as `is_table`."""
    return kind_of(FLAGS.output) if FLAGS.output and is_table(FLAGS.output) else ""


def known_labels(model_dir):
    """The labels of a local model_dir, read without TensorFlow; () if it has none."""
    path = os.path.join(model_dir, "labels.json")
    found = parse_json(read_local(path), path) if os.path.isfile(path) else ()
    return tuple(found) if isinstance(found, list) else ()


def main(_):
    from txl_tf.devices.distribute import make_strategy  # after the flags are parsed: TensorFlow takes seconds to load
    from txl_tf.inference.tasks.predictor import Predictor
    from txl_tf.progress import reported
    from txl_tf.storage.files import require_new, write_result
    from txl_tf.tasks.answering.answers import require_no_answers, write_answers

    if FLAGS.output:
        require_new(FLAGS.output, "output")
    if FLAGS.squad_dir:
        require_no_answers(FLAGS.squad_dir)
    predictor = Predictor.load(
        given_model(),
        FLAGS.checkpoint,
        FLAGS.weights,
        make_strategy(FLAGS.strategy, FLAGS.tpu),
        batch_size=FLAGS.batch_size,
        jit_compile=FLAGS.jit_compile,
    )
    task, end = predictor.task, os.path.splitext(FLAGS.output or "")[1]
    if end == CONLL and end not in task.written:
        raise InputError(
            f"--output={FLAGS.output} is a name for tagged words, and --model_dir={FLAGS.model_dir} is for "
            f"{task.name}: give a name that ends in .jsonl"
        )
    if FLAGS.squad_dir and not isinstance(task, Answering):
        raise InputError(f"--squad_dir is for answering, and --model_dir={FLAGS.model_dir} is for {task.name}")
    columns = table_columns(predictor.trained.model_dir, given_flags(Columns), FLAGS.metrics)
    if FLAGS.dry_run:
        understood(task.name, (FLAGS.input,), columns, FLAGS.metrics, sys.stderr, predictor.trained.class_names())
    rows, classes = read.get(FLAGS.input), predictor.trained.class_names()
    into_table = table_kind() in task.table_kinds
    if into_table:
        rows = rows or task.read(FLAGS.input, columns, FLAGS.metrics, classes)
        if rows.table is None:
            raise InputError(
                f"--output={FLAGS.output} would be a table, and {FLAGS.input} has no row for each prediction: give a "
                "name that ends in .jsonl"
            )
        new = 2 + (FLAGS.unsure_below is not None) + FLAGS.all_probabilities * len(classes)
        require_room(FLAGS.output, rows.table, columns, new)
    with reported("predicting", " batches") as report:
        found = predictor.predict_file(
            FLAGS.input,
            columns,
            labelled=FLAGS.metrics,
            rows=rows,
            threshold=FLAGS.threshold,
            unsure_below=FLAGS.unsure_below,
            progress=report,
        )
    for remark in found.examples.remarks:
        print(f"{FLAGS.input}: {remark}", file=sys.stderr)
    if found.doubt:
        print(found.doubt, file=sys.stderr)
    if predictor.dev_missing:
        print(predictor.dev_missing, file=sys.stderr)
    if result := found.metrics:
        split = os.path.basename(FLAGS.input.rstrip("/")).partition(".")[0]  # "test" of RACE/test or test.csv
        about = {"task": task.name, "split": split}
        about |= {"step": predictor.trained.step, "weights": predictor.trained.weights}
        numbers = {"examples": result["examples"], "loss": result["loss"], **result["metrics"]}
        print(json_line(about | numbers), end="", file=sys.stderr)
    else:
        print(f"predicted with step {predictor.trained.step:,} of {FLAGS.model_dir}", file=sys.stderr)
    lines = map(task.written.get(end, json_line), found.predictions)
    if into_table:
        results = found.columns_by_line(task, FLAGS.all_probabilities)
        write_results(FLAGS.output, found.rows.table, found.columns, results)
    elif FLAGS.output:
        write_result(FLAGS.output, "".join(lines))
    else:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
    if FLAGS.squad_dir:
        answered = found.examples.answered(found.outputs)
        write_answers(answered, FLAGS.squad_dir, no_answer_threshold(predictor.dev))


if __name__ == "__main__":
    run(main, check)
