"""Not a test: what today's commands do with the model_dirs of tests/model_dir_ce09e14, and how those were made.

    python tests/small/old_model_dir.py FOLDER

trains the runs from nothing and writes FOLDER, as tests/model_dir_ce09e14 is. Only the flags and outputs of scripts/
are used, so that the same file works with other commits.
"""

import json
import os
import pathlib
import random
import shlex
import shutil
import sys
import tempfile

import processes

ROOT = pathlib.Path(__file__).parents[2]
SIZES = (
    "--preset=demo --n_layer=2 --d_model=16 --d_embed=16 --n_head=2 --d_head=8 --d_inner=32 --mem_len=8 --tgt_len=8 "
    "--batch_size=4 --dropout=0 --dropatt=0 --learning_rate=0.01 --min_lr_ratio=0.5 --warmup_steps=20 --clip=0.25 "
    "--seed=1 --train_steps=210 --steps_per_loop=5 --save_steps=200 --eval_steps=50 --nojit_compile "
    "--eval_batch_size=4 --eval_tgt_len=16 --eval_mem_len=12 --eval_clamp_len=10 --eval_same_length "
    "--noeval_jit_compile --strategy=one_device"
)
RUNS = {
    "plain": "",
    "averaged": "--ema_decay=0.9 --untie_r --cutoffs=12,24 --div_val=2 --mem_init=empty --pre_lnorm --activation=gelu "
    "--d_inner=16 --random_offset --accumulate_steps=2",
}
"""The runs by name, with their flags besides SIZES."""

PROMPT = "the quick "
LINES = ["the brown dog is lazy and", "a Zebra, 42!"]
SAVED_AT = 200
WITHOUT = ("tokens_per_sec", "mfu")
"""Fields about the clock or the machine."""


def script(name, *flags):
    """Runs scripts/NAME.py in a process of its own and returns what it printed."""
    command = [f"scripts/{name}.py", *flags]
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def train(run, corpus, model_dir, log_steps):
    """Trains a run from nothing to its last step."""
    flags = shlex.split(f"{SIZES} {RUNS[run]} --log_steps={log_steps}")
    script("train", *flags, f"--data_dir={corpus}", f"--model_dir={model_dir}")


def json_lines(text, after=0):
    """The JSON lines of a text, of steps later than `after`, without the fields in WITHOUT."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [
        {name: value for name, value in line.items() if name not in WITHOUT}
        for line in lines
        if line.get("step", after + 1) > after
    ]


def evaluate(model_dir, corpus, *flags):
    """The JSON line of an evaluation on test."""
    out = script("evaluate", f"--model_dir={model_dir}", f"--data_dir={corpus}", "--split=test", *flags)
    return json_lines(out.splitlines()[-1])[0]


def generate(model_dir, *flags):
    """40 tokens after PROMPT; the text with the prompt."""
    return script("generate", f"--model_dir={model_dir}", f"--prompt={PROMPT}", "--max_tokens=40", *flags)


def score(model_dir, folder):
    """The JSON lines of LINES."""
    (folder / "lines.txt").write_text("".join(line + "\n" for line in LINES))
    return json_lines(script("score", f"--model_dir={model_dir}", f"--input={folder}/lines.txt", "--per_token"))


def serve(model_dir, export_dir):
    """Exports a SavedModel and calls its signatures."""
    import tensorflow as tf

    script("export_savedmodel", f"--model_dir={model_dir}", f"--export_dir={export_dir}", "--nojit_compile")
    signatures = tf.saved_model.load(str(export_dir)).signatures
    scored = signatures["score"](texts=tf.constant(LINES))
    # Settings of sampling that came later: their defaults change nothing.
    settings = json.loads((pathlib.Path(export_dir) / "sampling.json").read_text())
    sampling = {setting["name"]: tf.constant(setting["default"]) for setting in settings}
    texts = {}
    for name, temperature, seed in (("greedy", 0.0, 0), ("seed_3", 1.0, 3)):
        sampling["temperature"] = tf.constant(temperature)
        made = signatures["generate"](
            **sampling,
            prompts=tf.constant([PROMPT]),
            max_tokens=tf.constant(40),
            seeds=tf.constant([seed]),
            stop=tf.constant([], tf.string),
        )
        texts[name] = made["texts"].numpy()[0].decode("utf-8", "replace")
    return {
        "generate": texts,
        "score": {name: scored[name].numpy().tolist() for name in ("tokens", "log_probs", "lengths", "total")},
    }


def use(run, model_dir, corpus, folder):
    """What evaluation, generation, scoring and export make of a model_dir, as in expected.json.

    Args:
        run: a name in RUNS.
        model_dir: the run's folder; it is not changed.
        corpus: its corpus.
        folder: an empty folder for files.
    """
    results = {
        "evaluate": evaluate(model_dir, corpus),
        "evaluate_best": evaluate(model_dir, corpus, "--checkpoint=best"),
        "evaluate_last": evaluate(model_dir, corpus, "--weights=last"),
        "score": score(model_dir, folder),
    }
    if run == "plain":
        texts = {"greedy": generate(model_dir, "--temperature=0"), "seed_3": generate(model_dir, "--seed=3")}
        results |= {"generate": texts, "serve": serve(model_dir, folder / "export")}
    return results


def proceed(model_dir, corpus):
    """Continues a run (a copy: it is changed) and returns the lines of metrics and evaluations after SAVED_AT."""
    printed = script(
        "train", f"--model_dir={model_dir}", f"--data_dir={corpus}", "--strategy=one_device", "--log_steps=1"
    )
    assert f"continuing at step {SAVED_AT} of" in printed
    return {
        file: json_lines((pathlib.Path(model_dir) / f"{file}.jsonl").read_text(), SAVED_AT)
        for file in ("metrics", "evaluations")
    }


def write_text(path, count, seed):
    """A text of `count` lines with structure to learn, the same whenever it is written."""
    draw = random.Random(seed)
    words = shlex.split("the quick brown fox jumps over a lazy dog and is not there Zebra 42, 7:")
    lines = []
    for _ in range(count):
        lines.append(" ".join(draw.choice(words) for _ in range(draw.randrange(3, 9))) + draw.choice(".!?"))
    path.write_text("\n".join(lines) + "\n")


def cut_back(model_dir):
    """Leaves a model_dir as it was when SAVED_AT had been saved."""
    for path in model_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name.startswith("ckpt-") and not path.name.startswith(f"ckpt-{SAVED_AT}."):
            path.unlink()
        elif path.suffix == ".jsonl":
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if json.loads(line)["step"] <= SAVED_AT))


def make(folder):
    """Writes the corpus, the runs at SAVED_AT and expected.json to a folder."""
    folder.mkdir(parents=True)
    corpus, text, expected = folder / "corpus", folder / "text", {}
    text.mkdir()
    for seed, (split, count) in enumerate({"train": 160, "valid": 30, "test": 40}.items()):
        write_text(text / f"{split}.txt", count, seed)
    source = os.path.relpath(text, ROOT)
    script("prepare_data", "--dataset=text", f"--source={source}/*.txt", "--vocab=chars", f"--data_dir={corpus}")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for run in RUNS:
            train(run, corpus, folder / run, log_steps=10)
            cut_back(folder / run)
            shutil.copytree(folder / run, work / run)
            (work / f"files-{run}").mkdir()
            expected[run] = use(run, folder / run, corpus, work / f"files-{run}")
            expected[run]["continue"] = proceed(run, work / run, corpus)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
