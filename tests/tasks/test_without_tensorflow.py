"""Files of every task, and its settings, are read before TensorFlow is loaded."""

import json
import subprocess
import sys

import pytest
import squad_files
import tagged_files

CODE = """
import sys
from txl_tf import families
from txl_tf.data.tables.columns import Columns
from txl_tf.tasks.base import parted
config = families.tuned_configs()[sys.argv[1]].from_groups({"train": {"train_steps": 5}}, "a test")
task = families.task_of(config, families.FineTuning)
rows = task.read(sys.argv[2], Columns())
left, part = parted(rows, task.parts(rows, 2, 1)[0])
assert rows.understood and left and part
assert families.config_from_json(config.to_json()) == config
sys.exit("tensorflow" in sys.modules or "keras" in sys.modules)
"""
TABLES = {"classification": ("no", "yes"), "multi_label": ("a|b", ""), "regression": ("0.5", "1")}
TASKS = (*TABLES, "multiple_choice", "answering", "tagging")


@pytest.mark.parametrize("task", TASKS)
def test_a_file_is_read(task, tmp_path):
    if task in TABLES:
        path = tmp_path / "t.tsv"
        rows = [f"text {i}\t{TABLES[task][i % 2]}\n" for i in range(8)]
        path.write_text("text\tlabel\n" + "".join(rows))
    elif task == "multiple_choice":
        path = tmp_path / "t.jsonl"
        lines = [{"article": f"a {i}", "question": "q", "options": ["x", "y"], "answer": i % 2} for i in range(8)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif task == "answering":
        path = squad_files.write(tmp_path / "t.json", 8)
    else:
        path = tagged_files.write(tmp_path / "t.conll", tagged_files.sentences(8))
    done = subprocess.run([sys.executable, "-c", CODE, task, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
