"""Not a test: what today's code does with the model_dirs of tests/tuned_4e03670, and how those were made.

    PYTHONPATH=.:tests/small python tests/small/tuned_4e03670.py FOLDER

makes a model_dir of each task and expected.json, and writes them into FOLDER. The vocabulary, the same for all, is kept
once. The file works with other commits, too.
"""

import csv
import json
import os
import pathlib
import shutil
import sys
import tempfile

import squad_files
import tagged_files
import tensorflow as tf
import tuned_models

from txl_tf.devices.distribute import make_strategy
from txl_tf.finetuner import Finetuner
from txl_tf.inference.export import export_trained
from txl_tf.inference.tasks.predictor import Predictor

FOLDER, VOCABULARY = pathlib.Path(__file__).parents[1] / "tuned_4e03670", "spiece.model"
TEXTS = ["the River", ("so", "a dash"), "one so a dash " * 9, ("the so " * 9, "River " * 9), "\u2603 na\u00efve (one)"]
PAIRS = [(text, "") if isinstance(text, str) else text for text in TEXTS]
QUESTIONS = [{"article": "the River " * n, "question": "which _ is _", "options": ["so", "a \\1 dash"]} for n in (1, 9)]
ASKED = [
    {"question": "the River", "context": "so one"},
    {"question": "one so a dash " * 5, "context": "the na\u00efve  1,000, \n River " * 7},
    {"question": "a", "context": "\u2603"},
]
WORDS = ["the River", ("the", "na\u00efve", "(one)"), "one so a dash-ed River 1,000 \u2603 " * 9]
TASKS = {
    "classification": ("bad", "good", "mixed"),
    "multi_label": ("bad", "good", "mixed"),
    "regression": (),
    "multiple_choice": (),
    "answering": (),
    "tagging": ("B-NAME", "B-PLACE", "I-PLACE", "O"),
}
SEGMENTS = {"regression": 2, "tagging": 3}  # long texts are read with memory
INPUTS = {"multiple_choice": QUESTIONS, "answering": ASKED, "tagging": WORDS}
SERVED = {
    "multiple_choice": {name: [one[name.rstrip("s")] for one in QUESTIONS] for name in ("articles", "questions")}
    | {"options": [one["options"] for one in QUESTIONS]},
    "answering": {f"{name}s": [one[name] for one in ASKED] for name in ("question", "context")},
    "tagging": {"texts": [one if isinstance(one, str) else " ".join(one) for one in WORDS]},
}
OF_PAIRS = dict(zip(("texts", "second"), map(list, zip(*PAIRS, strict=True)), strict=True))


def examples(task, folder):
    """The path of a new file with labelled examples."""
    path = pathlib.Path(folder) / f"{task}.csv"
    if task == "answering":
        return squad_files.write(path.with_suffix(".json"), 12)
    if task == "tagging":
        return tagged_files.write(path.with_suffix(".conll"), tagged_files.sentences(12))
    if task == "multiple_choice":
        lines = [{**QUESTIONS[i % 2], "answer": i // 2 % 2} for i in range(8)]
        path.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path.with_suffix(".jsonl"))
    labels = {
        "classification": ["bad", "good", "mixed"],
        "multi_label": ["bad", "", "good|mixed"],
        "regression": [0.5, -1, 3],
    }
    with path.open("w", newline="") as file:
        first = ("", "one ", "so a dash ")  # no two texts are equal: some CPUs would round them apart
        rows = [(first[i // 5] + PAIRS[i % 5][0], PAIRS[i % 5][1], labels[task][i % 3]) for i in range(15)]
        csv.writer(file).writerows([("text", "text_b", "label"), *rows])
    return str(path)


def use(task, model_dir):
    """Predictions, metrics, the answers of an export, and a run of three steps that begins here."""
    predictor = Predictor.load(str(model_dir), strategy=make_strategy("one_device"))
    found = {"predictions": predictor.predict(INPUTS.get(task, TEXTS))}
    with tempfile.TemporaryDirectory() as folder:
        path, export, run = examples(task, folder), os.path.join(folder, "export"), os.path.join(folder, "run")
        of_file = predictor.predict_file(path, labelled=True)
        found |= {"of_file": of_file.predictions, "metrics": of_file.metrics}
        export_trained(predictor.trained, export, jit_compile=False)
        model = tf.saved_model.load(export)
        found["signatures"] = {
            name: [sorted((one, spec.dtype.name) for one, spec in side.items()) for side in (inputs, outputs)]
            for name, function in model.signatures.items()
            for inputs, outputs in [(function.structured_input_signature[1], function.structured_outputs)]
        }
        answers = model.signatures["serving_default"](
            **{name: tf.constant(values) for name, values in SERVED.get(task, OF_PAIRS).items()}
        )
        found["served"] = {name: as_json(values.numpy().tolist()) for name, values in answers.items()}
        settings = {"train": {"train_steps": 3, "jit_compile": False}, "eval": {"jit_compile": False}}
        if task == "tagging":  # as all runs of 4e03670; for that commit omit these lines
            settings["eval"]["decoding"] = "words"
        tuner = Finetuner(str(model_dir), task, path, path, settings=settings, strategy=make_strategy("one_device"))
        found["trained"] = tuner.run(run)
        found["config"] = json.loads(pathlib.Path(run, "config.json").read_text())
        for name in ("warm_start", "program"):  # a path, and a setting that later commits lack
            found["config"]["train"].pop(name, None)
        for metrics in (found["metrics"]["metrics"], found["trained"]):
            metrics.pop("spearman", None)  # equal texts have ranks by rounding
    return found


def as_json(values):
    if isinstance(values, list):
        return [as_json(value) for value in values]
    return values.decode() if isinstance(values, bytes) else values


if __name__ == "__main__":
    folder, expected = pathlib.Path(sys.argv[1]), {}
    for task, labels in TASKS.items():
        tuned_models.write_model_dir(folder / task, task, labels, SEGMENTS.get(task, 1))
        expected[task] = use(task, folder / task)
        shutil.move(folder / task / VOCABULARY, folder / VOCABULARY)
    (folder / "expected.json").write_text(json.dumps(expected, indent=0, ensure_ascii=False) + "\n")
