"""Measures the worth of pretraining: the same fine-tuning from pretrained and from new weights, and a bag of words.

    python evidence/bench/transfer.py --init=runs/xlnet --task=classification --out=runs/sst2 --text_column=sentence \\
        --train=sst2.train.tsv.gz --dev=sst2.dev.tsv.gz --test=sst2.test.tsv.gz --finetune_flags="--tgt_len=48"

Each kind of weights is trained with each of --rates and the first seed; then the best rate on dev is trained with the
other seeds. Existing runs are continued, so an interrupted comparison goes on where it was. The bag of words, only for
classification, is scikit-learn's logistic regression on words and pairs of neighbouring words of each text, with the
best penalty on dev; it has no seeds.
Prints a line of JSON for each kind of weights: the rate, and the metrics on test with mean and standard deviation.
"""

import json
import pathlib
import shlex
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "scripts"))

from absl import flags
from command_line import integers, run

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
CRITERIA = {"classification": "accuracy", "answering": "best_f1"}
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The inverse weights of the penalty, from which the bag of words chooses."""

FLAGS = flags.FLAGS
flags.DEFINE_string("init", None, "a model_dir with the pretrained model", required=True)
flags.DEFINE_enum("task", None, list(CRITERIA), "what to learn", required=True)
flags.DEFINE_string("train", None, "the examples to learn from", required=True)
flags.DEFINE_string("dev", None, "the examples for choosing rates and checkpoints", required=True)
flags.DEFINE_string("test", None, "the examples for the reported metrics", required=True)
flags.DEFINE_string("out", None, "where the runs are written", required=True)
flags.DEFINE_string("text_column", "text", "as in scripts/finetune.py")
flags.DEFINE_list("seeds", ["1", "2", "3"], "seeds")
flags.DEFINE_list("rates", ["3e-4", "1e-3"], "learning rates")
flags.DEFINE_string("finetune_flags", "", "further flags for scripts/finetune.py, separated by spaces")


def main(argv):
    del argv
    for kind in ("pretrained", "untrained"):
        print(json.dumps({"weights": kind} | compared(kind)), flush=True)
    if FLAGS.task == "classification":
        print(json.dumps({"weights": "bag of words"} | bag_of_words()), flush=True)
    return 0


def compared(kind):
    """The results of one kind of weights."""
    first, *others = integers("seeds")
    dev = {rate: tuned(kind, rate, first) for rate in FLAGS.rates}
    best = max(dev, key=dev.get)
    for seed in others:
        tuned(kind, best, seed)
    found = [tested(run_dir(kind, best, seed)) for seed in (first, *others)]
    result = {"rate": best, "dev_by_rate": dev}
    for name in found[0]:
        values = [one[name] for one in found]
        result[name] = [statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0]
    return result


def run_dir(kind, rate, seed):
    return pathlib.Path(FLAGS.out) / f"{kind}-{rate}-{seed}"


def tuned(kind, rate, seed):
    """Fine-tunes; the criterion on dev."""
    line = script(
        "finetune",
        *(f"--init={FLAGS.init}", f"--task={FLAGS.task}", f"--train={FLAGS.train}", f"--dev={FLAGS.dev}"),
        *(f"--model_dir={run_dir(kind, rate, seed)}", f"--learning_rate={rate}", f"--seeds={seed}"),
        f"--examples_dir={FLAGS.out}/examples",
        *(["--untrained"] if kind == "untrained" else []),
        *columns(),
        *shlex.split(FLAGS.finetune_flags),
    )
    return json.loads(line)[CRITERIA[FLAGS.task]]


def tested(model_dir):
    """The metrics on test of the checkpoint that is best on dev."""
    about = model_dir / "test.json"
    if not about.exists():
        (model_dir / "test.jsonl").unlink(missing_ok=True)  # of a comparison that was killed before test.json
        files = (f"--model_dir={model_dir}", f"--input={FLAGS.test}", f"--output={model_dir}/test.jsonl")
        line = script("predict", *files, *columns(), "--metrics", "--checkpoint=best", stream="stderr")
        about.write_text(line)
    return {name: value for name, value in json.loads(about.read_text()).items() if isinstance(value, float)}


def columns():
    """The flag for a table's column."""
    return (f"--text_column={FLAGS.text_column}",) if FLAGS.task == "classification" else ()


def script(name, *arguments, stream="stdout"):
    """Runs a script; returns the last line of its output."""
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments]
    print("$", *command[1:], file=sys.stderr, flush=True)
    done = subprocess.run(command, text=True, **{"stderr": sys.stderr, stream: subprocess.PIPE})
    if done.returncode:
        sys.exit(f"error: {name}.py ended with status {done.returncode}: {getattr(done, stream)}")
    return getattr(done, stream).splitlines()[-1]


def bag_of_words():
    """The accuracy on test of a linear model of word counts."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    from txl_tf.data.tables.columns import Columns
    from txl_tf.tasks.texts import read_table

    names = Columns(text_column=FLAGS.text_column)
    rows = {name: read_table(getattr(FLAGS, name), names) for name in ("train", "dev", "test")}
    sides = [side for side in ("text", "text_b") if any(getattr(row, side) for row in rows["train"])]
    counts, labels = {}, {name: [row.label for row in some] for name, some in rows.items()}
    words = {side: CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]") for side in sides}
    for side in sides:
        words[side].fit([getattr(row, side) for row in rows["train"]])
    for name, some in rows.items():
        counts[name] = hstack([words[side].transform([getattr(row, side) for row in some]) for side in sides]).tocsr()
    fits = [LogisticRegression(C=c, max_iter=2_000).fit(counts["train"], labels["train"]) for c in PENALTIES]
    best = max(fits, key=lambda fit: fit.score(counts["dev"], labels["dev"]))
    return {"C": best.C, "accuracy": [best.score(counts["test"], labels["test"]), 0.0]}


if __name__ == "__main__":
    run(main)
