"""Measures how long commands take until their first result: a training step, an evaluated and a generated token.

    python evidence/bench/startup.py --rounds=3

The model has 6 layers of width 512. Each command is run without a cache of XLA's compiled programs ("uncached"), with
an empty one ("cold"), and with what that run left there ("warm"). The JSON line has the medians of the seconds from a
command's start until it has written its first result, and those of `import tensorflow` alone. Later work, such as
writing a checkpoint, is not included.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

KINDS = ("uncached", "cold", "warm")
SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
SIZES = ["--n_layer=6", "--d_model=512", "--d_embed=512", "--n_head=8", "--d_head=64", "--d_inner=2048"]
LENGTHS = ["--tgt_len=64", "--mem_len=64", "--batch_size=4", "--eval_batch_size=4", "--eval_mem_len=128"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measure(pathlib.Path(name), args.rounds)))


def measure(folder, rounds):
    """The content of the JSON line."""
    text = folder / "text.txt"
    text.write_text("".join(f"line {i} of a text\n" for i in range(2000)))
    data, model = f"--data_dir={folder}/data", f"--model_dir={folder}/model"
    script("prepare_data", "--dataset=text", f"--source={text}", data)
    steps = ["--train_steps=1", "--steps_per_loop=1", "--eval_steps=0", "--warmup_steps=0"]
    train = ["train", "--preset=demo", data, *SIZES, *LENGTHS, *steps]
    script(*train, model)
    commands = {  # and what they write first when they have a result
        "training step": (lambda i: [*train, f"--model_dir={folder}/model{i}"], "^step "),
        "evaluated token": (lambda i: ["evaluate", data, model, "--split=valid"], "^{"),
        "generated token": (lambda i: ["generate", model, "--prompt=line", "--max_tokens=1"], "^line."),
    }
    seconds = {"import tensorflow": []} | {f"{name}, {kind}": [] for name in commands for kind in KINDS}
    for i in range(rounds):
        loaded = "import tensorflow; print('loaded', flush=True)"
        seconds["import tensorflow"].append(until([sys.executable, "-c", loaded], os.environ, "^loaded"))
        for name, (command, result) in commands.items():
            for kind in KINDS:
                cache = None if kind == "uncached" else folder / f"{name.split()[0]}{i}"
                taken = script(*command(f"{i}{kind}"), result=result, cache=cache)
                seconds[f"{name}, {kind}"].append(taken)
                print(f"round {i + 1}/{rounds}, {name}, {kind}: {taken:.1f} s", file=sys.stderr, flush=True)
    return {name: round(statistics.median(taken), 2) for name, taken in seconds.items()}


def script(name, *flags, result="", cache=None):
    """Runs a command with its compiled programs in the folder `cache`, or without; as for `until`."""
    environment = {} if cache is None else {"TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={cache}"}
    return until([sys.executable, SCRIPTS / f"{name}.py", *flags], os.environ | environment, result)


def until(command, environment, result):
    """Runs a command; returns the seconds until its output contains the regular expression `result`."""
    written, seconds, start = "", None, time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while more := process.stdout.read1():
            written += more.decode(errors="replace")
            if seconds is None and re.search(result, written, re.MULTILINE):
                seconds = time.perf_counter() - start
    if process.returncode or seconds is None:
        raise RuntimeError(f"{command} wrote no {result}; exit status {process.returncode}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
