"""Measures a machine's speed, memory and start-up for docs/results.md: `make results`.

    python evidence/bench/results.py --machine="AMD EPYC, Zen 5" --peer=tf_models=PYTHON --peer=huggingface=PYTHON

Each benchmark's JSON line at once goes into evidence/results/NAME.json, a file for each machine, with commit, date and
command. The same command continues where an earlier one stopped: results of this commit are not measured again.
evidence/bench/results_page.py then makes the page's tables and the README's picture from all these files.

Run it on a quiet machine. evidence/bench/train.py tells how to create the environments of the peers.
"""

import argparse
import datetime
import importlib.metadata
import json
import pathlib
import platform
import re
import subprocess
import sys

from beside import side_by_side

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "evidence" / "results"
BOTH, ONE, NONE = ("tf_models", "huggingface"), ("huggingface",), ()
BENCHMARKS = {
    "train": ("train.py", BOTH),
    "inference": ("inference.py", BOTH),
    "train_xlnet": ("train_xlnet.py", BOTH),
    "finetune": ("finetune.py", ONE),
    "generate": ("generate.py", NONE),
    "startup": ("startup.py", NONE),
    "train_narrow": ("train.py --size=narrow", BOTH),
    "train_wide": ("train.py --size=wide", BOTH),
    "train_large_batch": ("train.py --size=batch_size=16,tgt_len=256,mem_len=256", BOTH),
}
"""{name: (command, the peers that it takes)}, the most important first."""


def main():
    """Measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default=cpu(), help="the name that the page shows [%(default)s]")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=" or ".join(BOTH))
    parser.add_argument("--rounds", type=int, default=3, help="of each benchmark")
    parser.add_argument("--only", default="", metavar="REGEX", help="measure only what matches")
    parser.add_argument("--again", action="store_true", help="measure again what was measured at this commit")
    args = parser.parse_args()
    path = FOLDER / f"{re.sub('[^a-z0-9]+', '-', args.machine.lower()).strip('-')}.json"
    about = {"machine": args.machine, "cpu": cpu(), "cores": side_by_side.cores(), "measured": {}}
    if path.exists():
        about |= {"measured": json.loads(path.read_text())["measured"]}
    tensorflow = importlib.metadata.packages_distributions()["tensorflow"][0]  # a TPU's is tensorflow-tpu
    for name, (command, peers) in BENCHMARKS.items():
        done = about["measured"].get(name, {}).get("commit") == commit() and not args.again
        if done or not re.search(args.only, name):
            continue
        flags = [f"--peer={peer}" for peer in args.peer if peer.partition("=")[0] in peers]
        print(f"{name}: {command}", file=sys.stderr, flush=True)
        script, *size = command.split()
        line = [sys.executable, str(ROOT / "evidence" / "bench" / script), *size, f"--rounds={args.rounds}", *flags]
        result = json.loads(subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])
        about["measured"][name] = {
            "command": f"python evidence/bench/{command} --rounds={args.rounds}",
            "commit": commit(),
            "date": datetime.date.today().isoformat(),
            "tensorflow": importlib.metadata.version(tensorflow),
            "result": result,
        }
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(about, indent=1) + "\n")
        partial.replace(path)  # whole or not at all: it has the results of hours
    subprocess.run([sys.executable, str(ROOT / "evidence" / "bench" / "results_page.py")], check=True)


def cpu():
    """The processor's name."""
    try:
        found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def commit():
    """The commit of this checkout, with a plus if files differ from it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True).stdout
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno", "--", "txl_tf", "evidence/bench"], capture_output=True
    )
    return name.strip() + "+" * bool(changed.stdout)


if __name__ == "__main__":
    main()
