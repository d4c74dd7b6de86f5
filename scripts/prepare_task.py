"""Makes a labelled data set from Python's standard library, to try fine-tuning without a download.

    python scripts/prepare_task.py --task=match --out_dir=data/match
    python scripts/prepare_task.py --task=answers --out_dir=data/answers
    python scripts/prepare_task.py --task=statements --out_dir=data/statements
    python scripts/prepare_task.py --task=names --out_dir=data/names
    python scripts/prepare_task.py --task=order --out_dir=data/order

match: pairs of a docstring and a function's body, labelled "own" or "other" (JSONL, for --task=classification).
answers: questions about code, answered by a line of a docstring or not at all (SQuAD 2.0's JSON, for
--task=answering).
statements: docstrings, labelled with the kinds of statements of their functions (JSONL, for --task=multi_label).
names: lines of code, each word with a tag that says what a name stands for (JSONL, for --task=tagging).
order: lines of code as they were written, or with two neighbouring words exchanged (JSONL, for --task=classification).
The splits are those of the corpus python_stdlib.
"""

from absl import flags
from command_line import run
from flag_help import require_flags

TASK = flags.DEFINE_enum("task", None, ("match", "answers", "statements", "names", "order"), "which data set")
OUT_DIR = flags.DEFINE_string("out_dir", None, "where to write train, valid and test; local or gs://")
require_flags("task", "out_dir")


def main(_):
    from txl_tf.counted import counted
    from txl_tf.tasks.from_python import write_task  # here: TensorFlow takes seconds to load

    for split, count in write_task(TASK.value, OUT_DIR.value).items():
        print(f"{OUT_DIR.value}: {split} {counted(count, 'example')}")


if __name__ == "__main__":
    run(main)
