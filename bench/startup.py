"""Measures how long commands take until their first result: a training step, an evaluated and a generated token.

    python bench/startup.py --rounds=3

The model has 6 layers of width 512. Each command is run without a cache of XLA's compiled programs ("uncached"), with
an empty one ("cold"), and with what that run left there ("warm"). The JSON line has the medians of whole commands in
seconds, and that of `import tensorflow` alone.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

KINDS = ("uncached", "cold", "warm")
SCRIPTS = pathlib.Path(__file__).parents[1] / "scripts"
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
    commands = {
        "training step": lambda i: [*train, f"--model_dir={folder}/model{i}"],
        "evaluated token": lambda i: ["evaluate", data, model, "--split=valid"],
        "generated token": lambda i: ["generate", model, "--prompt=line", "--max_tokens=1"],
    }
    seconds = {"import tensorflow": []} | {f"{name}, {kind}": [] for name in commands for kind in KINDS}
    for i in range(rounds):
        seconds["import tensorflow"].append(timed([sys.executable, "-c", "import tensorflow"], os.environ))
        for name, command in commands.items():
            for kind in KINDS:
                cache = None if kind == "uncached" else folder / f"{name.split()[0]}{i}"
                taken = script(*command(f"{i}{kind}"), cache=cache)
                seconds[f"{name}, {kind}"].append(taken)
                print(f"round {i + 1}/{rounds}, {name}, {kind}: {taken:.1f} s", file=sys.stderr, flush=True)
    return {name: round(statistics.median(taken), 2) for name, taken in seconds.items()}


def script(name, *flags, cache=None):
    """Runs a command with its compiled programs in the folder `cache`, or without; returns its seconds."""
    environment = {} if cache is None else {"TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={cache}"}
    return timed([sys.executable, SCRIPTS / f"{name}.py", *flags], os.environ | environment)


def timed(command, environment):
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
