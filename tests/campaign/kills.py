"""Not a test: `make kills`. kill -9 at random moments; the same command, run again, ends as if nothing had happened.

    PYTHONPATH=.:tests python -m campaign.kills --kills=100 --seed=0

A command is started in a new folder and killed, sometimes twice; then it is run to its end. It must leave the files of
a run that nobody killed: every line of metrics.jsonl and of evaluations.jsonl except the time, every tensor of the last
checkpoint, and every other file bit for bit.
"""

import argparse
import hashlib
import json
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import processes
import tensorflow as tf

from campaign import world
from campaign.commands import COMMANDS, flags

OFTEN = flags("--save_steps=2 --eval_steps=10 --log_steps=2 --steps_per_loop=2")
XLA = {"nojit_compile": False}  # without XLA a run that nobody kills may differ, too: AddN has no fixed order
LONGER = {
    "train": OFTEN | XLA | flags("--train_steps=60"),
    "finetune": OFTEN | XLA | flags("--train_steps=30"),
}
"""Flags with which most of a run's time is not its start."""
KILLED = ("train", "prepare", "import_huggingface", "export", "export_huggingface", "finetune")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--commands", default=",".join(KILLED), help="which commands, separated by commas")
    args = parser.parse_args()
    draw, start, names = random.Random(args.seed), time.perf_counter(), args.commands.split(",")
    done = failed = 0
    with tempfile.TemporaryDirectory(prefix="kills") as folder:
        root = pathlib.Path(folder)
        world.build(root / "world", {part for name in names for part in COMMANDS[name].reads})
        usual = {name: run_whole(name, root) for name in names}
        for name, (seconds, _) in usual.items():
            print(f"{name} takes {seconds:.1f} s without a kill", flush=True)
        while done < args.kills:
            name = names[done % len(names)]
            seconds, wanted = usual[name]
            moments = [draw.uniform(0, seconds) for _ in range(draw.choice((1, 1, 2)))][: args.kills - done]
            wrong = run_killed(name, root, moments, wanted)
            for i, moment in enumerate(moments, done + 1):
                told = "ok" if not wrong else f"FAILED: {wrong}"
                print(f"kill {i}: {name} after {moment:.2f} of {seconds:.2f} s: {told}", flush=True)
            done, failed = done + len(moments), failed + bool(wrong)
    print(f"{done} kills, {failed} runs differ, {time.perf_counter() - start:.0f} s")
    return bool(failed)


def arguments(name):
    return COMMANDS[name].line(LONGER.get(name, {}))


def prepared(name, root):
    """A folder with what a command reads."""
    place = root / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for part in COMMANDS[name].reads:
        source = root / "world" / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place / part)
    return place


def run_whole(name, root):
    """How long a command takes, and what it leaves."""
    place = prepared(name, root)
    start = time.perf_counter()
    ended = processes.run(arguments(name), cwd=place)
    assert ended.returncode == 0, ended.stderr
    return time.perf_counter() - start, contents(place / "new")


def run_killed(name, root, moments, wanted):
    """Kills a command at these moments, in seconds after its start, and runs it to its end; what is wrong, or ""."""
    place = prepared(name, root)
    with open(root / "output", "w") as output:
        for moment in moments:
            process = processes.Popen(arguments(name), cwd=place, stdout=output, stderr=output)
            time.sleep(moment)
            process.send_signal(signal.SIGKILL)
            process.wait()
    ended = processes.run(arguments(name), cwd=place)
    if ended.returncode and not re.search("holds a model already|is not empty", ended.stderr):  # it was complete
        return f"exit status {ended.returncode}: {ended.stderr.strip()[-300:]}"
    found = contents(place / "new")
    differing = sorted(file for file in wanted.keys() | found.keys() if wanted.get(file) != found.get(file))
    differing += sorted(path.name for path in place.iterdir() if path.name not in (*COMMANDS[name].reads, "new"))
    return f"other than without a kill: {', '.join(differing)}" if differing else ""


def contents(folder):
    """The files that a command has left: {file: content}; the newest checkpoint by its tensors, without its number."""
    found, steps = {}, []
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_dir() or "tensorboard" in name or path.name.startswith("damaged-"):
            continue
        if path.name.startswith("ckpt-"):
            steps += [int(path.stem.removeprefix("ckpt-"))] if path.suffix == ".index" else []
        elif path.suffix == ".jsonl":
            found[name] = [without_clock(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name == "saved_model.pb":  # the same graph is written in another order every time
            found[name] = "a SavedModel"
        elif path.name not in ("fingerprint.pb", "variables.index"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    if steps:
        reader = tf.train.load_checkpoint(str(folder / f"ckpt-{max(steps)}"))
        for tensor in reader.get_variable_to_shape_map():
            value = reader.get_tensor(tensor)
            found[f"ckpt-{max(steps)}: {tensor}"] = value if isinstance(value, bytes) else value.tobytes()
    return found


def without_clock(line):
    return {key: value for key, value in line.items() if not key.endswith("_per_sec")}


if __name__ == "__main__":
    sys.exit(main())
