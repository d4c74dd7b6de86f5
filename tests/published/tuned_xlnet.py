"""Not a test: a fine-tuned model as Hugging Face's checkpoint, with what it predicts here, to be compared there.

    PYTHONPATH=. python tests/published/tuned_xlnet.py MODEL_DIR INPUT FOLDER
    hf/bin/python tests/published/huggingface_xlnet.py --compare FOLDER

INPUT is a file that scripts/predict.py takes for the model. FOLDER gets the files of scripts/export_checkpoint.py and
predicted.npz. That has the padded inputs, by the names of Hugging Face's arguments, and our model's outputs as
out/NAME. Hugging Face's model must predict the same.
"""

import sys

import numpy as np

from txl_tf import families
from txl_tf.data.examples.example_set import ExamplePlan
from txl_tf.data.tables.columns import Columns
from txl_tf.devices.distribute import make_strategy
from txl_tf.inference.tasks.evaluator import TaskReader
from txl_tf.published.exporting import export_checkpoint
from txl_tf.runs.model_dir import load_trained

INPUTS = {"tokens": "input_ids", "segments": "token_type_ids", "padding": "input_mask", "cls_index": "cls_index"}


def main(model_dir, path, folder):
    trained = load_trained(model_dir)
    export_checkpoint(trained, "huggingface", folder)
    task = families.task_of(trained.config)
    rows = task.read(path, Columns(), False)
    plan = ExamplePlan(trained.config, trained.vocabulary, labels=trained.class_names(), labelled=False)
    examples = task.examples(rows, plan)
    reader = TaskReader(trained.config.replace(eval={"jit_compile": False}), trained.model, make_strategy())
    outputs = reader.outputs(reader.arranged(examples))
    arrays = {theirs: examples.features[ours] for ours, theirs in INPUTS.items() if ours in examples.features}
    arrays["token_type_ids"] = arrays["token_type_ids"].astype(np.int64)
    arrays["input_ids"] = arrays["input_ids"].astype(np.int64)
    arrays["input_mask"] = arrays["input_mask"].astype(np.float32)
    if "allowed" in examples.features:
        arrays["p_mask"] = (~examples.features["allowed"]).astype(np.float32)
    arrays |= {f"out/{name}": array for name, array in outputs.items()}
    np.savez(f"{folder}/predicted.npz", **arrays)
    print(f"{folder}: {len(examples)} examples of {trained.config.task}")


if __name__ == "__main__":
    main(*sys.argv[1:])
