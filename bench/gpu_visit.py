"""Measures training and generation on a GPU, and an earlier commit beside it, in one short visit.

    python bench/gpu_visit.py --before=13b9a46 --dir=visit

The most important measurements come first. Each result at once becomes a line of visit/results.jsonl: seconds from the
start of train.py to its first logged step, tokens per second of its last steps, milliseconds for a generated token. The
same command continues where an earlier one stopped. With --small the models are tiny, to try the script on a CPU.
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
PENN = "--n_layer=16 --d_model=380 --d_embed=380 --n_head=10 --d_head=38 --d_inner=900 --tgt_len=70 --mem_len=70"
SMALL = "--n_layer=1 --d_model=16 --d_embed=16 --n_head=2 --d_head=8 --d_inner=16 --tgt_len=16 --mem_len=16"
BFLOAT16 = "--dtype=mixed_bfloat16"
EXACT = "--dropout=0 --dropatt=0 --batch_size=4"
CACHES = {  # RUNS: the folder of a commit's runs
    "TF_XLA_FLAGS": "--tf_xla_persistent_cache_directory=RUNS/programs",
    "XLA_FLAGS": "--xla_gpu_per_fusion_autotune_cache_dir=RUNS/autotuning",
}
SYMBOLS, TOKENS = 200, 400_000
WARM_UP, GENERATED = 8, 256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dir", type=pathlib.Path, default="visit", help="for the results, and everything else that is made"
    )
    parser.add_argument("--before", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument("--minutes", type=float, default=20, help="no further measurement begins after this time")
    parser.add_argument("--only", default="", metavar="REGEX", help="measure only what matches")
    parser.add_argument("--small", action="store_true", help="tiny models")
    args = parser.parse_args()
    start = time.monotonic()
    folder = args.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    trees = {revision("HEAD"): ROOT}
    if args.before:
        trees[revision(args.before)] = checkout(revision(args.before), folder)
    prepare(folder, TOKENS // 20 if args.small else TOKENS)
    results = folder / "results.jsonl"
    lines = map(json.loads, results.read_text().splitlines() if results.exists() else ())
    done = {(line["what"], line["commit"]) for line in lines if "error" not in line}
    for what, measure in measurements(folder, args.small):
        for commit, tree in trees.items():
            if (what, commit) in done or not re.search(args.only, what):
                continue
            if time.monotonic() - start > 60 * args.minutes:
                sys.exit(f"error: {args.minutes:g} minutes are over: run the same command again for the rest")
            print(f"{what}, {commit}", file=sys.stderr, flush=True)
            try:
                result = measure(tree, folder / commit)
            except subprocess.CalledProcessError as error:
                result = {"error": (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]}
            with results.open("a") as file:
                print(json.dumps({"what": what, "commit": commit, **result}), file=file)


def measurements(folder, small):
    """(name, function of the tree and a folder for the runs that returns the line's fields), most important first."""

    def training(name, flags, **environment):
        sizes = f"{flags} {SMALL} --batch_size=4" if small else flags
        return name, lambda tree, runs: train(tree, runs / name.replace(" ", "_"), folder / "data", sizes, environment)

    return [
        training("enwik8_base bfloat16", BFLOAT16),
        training("Penn Treebank's sizes", f"{PENN} --batch_size=20 --dropout_type=variational"),
        ("generation of one text", lambda tree, runs: generate(tree, runs / "enwik8_base_bfloat16")),
        training("without autotuning", BFLOAT16, XLA_FLAGS="--xla_gpu_autotune_level=0"),
        training("caches filled", BFLOAT16, **CACHES),
        training("caches used", BFLOAT16, **CACHES),
        training("float32", ""),
        training("exact float32", EXACT, NVIDIA_TF32_OVERRIDE="0"),
        training("exact bfloat16", f"{EXACT} {BFLOAT16}"),
        training("exact float32 on the CPU", EXACT, CUDA_VISIBLE_DEVICES="-1"),
        training("batch 264 of enwik8_base", f"{BFLOAT16} --batch_size=264"),
    ]


def train(tree, model_dir, data_dir, sizes, environment):
    """Results of train.py in five loops of four steps."""
    (model_dir.parent / "autotuning").mkdir(parents=True, exist_ok=True)
    environment = {name: value.replace("RUNS", str(model_dir.parent)) for name, value in environment.items()}
    steps = "--train_steps=20 --steps_per_loop=4 --log_steps=4 --eval_steps=0 --save_steps=20 --warmup_steps=0"
    command = ["train", "--preset=enwik8_base", f"--data_dir={data_dir}", f"--model_dir={model_dir}"]
    if model_dir.exists():  # from a visit that was broken off
        model_dir.rename(model_dir.with_name(f"{model_dir.name}.{time.time():.0f}"))
    seconds = run(tree, *command, *steps.split(), *sizes.split(), environment=environment, first="^step ")
    lines = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    return {
        "first_loop_seconds": round(seconds, 1),
        "tokens_per_sec": lines[-1]["tokens_per_sec"],
        "losses": [line["loss"] for line in lines],
    }


def generate(tree, model_dir):
    """Milliseconds per token: a long text's time minus a short text's, divided by the difference in tokens."""
    command = ["generate", f"--model_dir={model_dir}", "--prompt=" + chr(0x100)]
    short, long = (run(tree, *command, f"--max_tokens={count}") for count in (WARM_UP, WARM_UP + GENERATED))
    return {"ms_per_token": round(1e3 * (long - short) / GENERATED, 2)}


def run(tree, script, *flags, environment=None, first=None):
    """Runs a script of a tree; returns the seconds until it ends, or its output matches the regular expression.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    start, found = time.perf_counter(), None
    command = [sys.executable, str(tree / "scripts" / f"{script}.py"), *flags]
    given = os.environ | {"PYTHONPATH": str(tree)} | (environment or {})
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        written = []
        for line in process.stdout:
            written.append(line)
            if first and found is None and re.search(first, line):
                found = time.perf_counter() - start
    if process.returncode or (first and found is None):
        raise subprocess.CalledProcessError(process.returncode, command, stderr="".join(written))
    return time.perf_counter() - start if found is None else found


def prepare(folder, tokens):
    """Makes folder/data, a corpus of random letters."""
    if not (folder / "data").exists():
        generator = random.Random(0)
        words = ("".join(chr(0x100 + generator.randrange(SYMBOLS)) for _ in range(7)) for _ in range(tokens // 8))
        (folder / "text.txt").write_text("\n".join(words), "utf-8")
        run(ROOT, "prepare_data", "--dataset=text", f"--source={folder}/text.txt", f"--data_dir={folder}/data")


def revision(name):
    """The short name of a commit."""
    return git("rev-parse", "--short", name).decode().strip()


def checkout(commit, folder):
    """The files of a commit, in a separate folder."""
    tree = folder / f"tree-{commit}"
    if not tree.exists():
        tree.mkdir()
        subprocess.run(["tar", "-x", "-C", tree], input=git("archive", commit), check=True)
    return tree


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"error: git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
