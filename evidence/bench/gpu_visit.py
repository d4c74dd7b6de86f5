"""Measures a GPU, and an earlier commit beside it, in one short visit.

    python evidence/bench/gpu_visit.py --before=13b9a46 --huggingface=PYTHON --dir=visit

The most important measurements come first. Each result at once becomes a line of visit/results.jsonl; at the end
visit/page.md has the tables. The same command continues where an earlier one stopped. --minutes=0 only prepares the
texts, before there is a GPU. With --small the models are tiny, to try the script on a CPU. PYTHON needs torch and
transformers (evidence/bench/train.py says how to create it); without it Hugging Face's XLNet is not measured.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import time

from visit.commands import (
    ROOT,
    beside_huggingface,
    evaluate,
    fill,
    generate,
    matmul,
    predict,
    predict_few,
    prepare,
    train,
)
from visit.tables import page

sys.path.append(str(ROOT))

PENN = "--n_layer=16 --d_model=380 --d_embed=380 --n_head=10 --d_head=38 --d_inner=900 --tgt_len=70 --mem_len=70"
PENN += " --dropout_type=variational"
SMALL = "--n_layer=1 --d_model=16 --n_head=2 --d_head=8 --d_inner=16 --tgt_len=16 --batch_size=4"
BFLOAT16, FLOAT16 = "--dtype=mixed_bfloat16", "--dtype=mixed_float16"
SAME = "--dropout=0 --dropatt=0 --batch_size=4"
EXACT = "agreement:"
CACHES = {  # RUNS: the folder of a commit's runs
    "TF_XLA_FLAGS": "--tf_xla_persistent_cache_directory=RUNS/programs",
    "XLA_FLAGS": "--xla_gpu_per_fusion_autotune_cache_dir=RUNS/autotuning",
}
GRAPHS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
PARALLEL = "--xla_gpu_enable_llvm_module_compilation_parallelism=true --xla_gpu_force_compilation_parallelism=16"
FEWER, FUSED = "--ops=fewer", "--ops=fused"
NO_CARD, NO_TF32 = {"CUDA_VISIBLE_DEVICES": "-1"}, {"NVIDIA_TF32_OVERRIDE": "0"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dir", type=pathlib.Path, default="visit", help="for the results, and everything else that is made"
    )
    parser.add_argument("--before", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument("--huggingface", metavar="PYTHON", help="measure Hugging Face's XLNet with this Python, too")
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
    earliest = [*trees.values()][-1]  # an earlier commit cannot read what a later one prepares
    prepare(earliest, folder, args.small)
    results = folder / "results.jsonl"
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(line["what"], line["commit"]) for line in lines if "error" not in line}
    commits = list(trees)
    try:
        for what, beside, measure in measurements(folder, args.huggingface, args.small):
            for commit in commits if beside else commits[:1]:
                if (what, commit) in done or not re.search(args.only, what):
                    continue
                if time.monotonic() - start > 60 * args.minutes:
                    sys.exit(f"error: {args.minutes:g} minutes are over: run the same command again for the rest")
                print(f"{what}, {commit}", file=sys.stderr, flush=True)
                try:
                    result = measure(trees[commit], folder / commit)
                except subprocess.CalledProcessError as error:
                    result = {"error": (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]}
                except (OSError, LookupError, ValueError) as error:  # what an earlier commit writes otherwise, say
                    result = {"error": f"{type(error).__name__}: {error}"}
                lines.append({"what": what, "commit": commit, **result})
                with results.open("a") as file:
                    print(json.dumps(lines[-1]), file=file)
    finally:
        (folder / "page.md").write_text(page(lines, commits))


def measurements(folder, torch, small):
    """(name, whether the earlier commit is measured, function of the tree and a folder for the runs), by importance."""
    tiny = f" {SMALL}" if small else ""
    letters = f"--preset=enwik8_base --data_dir={folder}/letters --eval_steps=0"
    base = f"{letters}{tiny} --mem_len=16 --d_embed=16" if small else letters
    penn = base if small else f"--preset=enwik8_base --data_dir={folder}/words --eval_steps=0 {PENN}"
    recipe = f"--preset=ptb --data_dir={folder}/words --eval_steps=0 --average_from_step=10"
    recipe += f"{tiny} --ext_len=8 --d_embed=16 --tgt_len_std=1" if small else ""
    large = f"--preset=enwik8_large --data_dir={folder}/letters --eval_steps=0"
    large += f"{tiny} --mem_len=16 --d_embed=16" if small else " --batch_size=4"
    pieces = f"--preset=xlnet_base --data_dir={folder}/pieces --eval_steps=0"
    pieces += f"{tiny} --mem_len=8 --reuse_len=8 --perm_size=8 --num_predict=2" if small else " --batch_size=32"
    tuned = f"--task=classification --train={folder}/train.jsonl --dev={folder}/dev.jsonl --eval_steps=20"
    tuned += " --tgt_len=16 --batch_size=4" if small else " --tgt_len=512 --batch_size=32"
    memory = f"--data_dir={folder}/letters --mem_len={20 if small else 3800}"
    texts, inputs = ([folder / f"{name}.{ending}" for name in ("few", "many")] for ending in ("txt", "jsonl"))

    def training(what, flags, beside=False, init=None, **environment):
        def measure(tree, runs):
            begin = f" --init={runs / place(init)}" if init else ""
            return train(tree, runs / place(what), flags + begin, environment)

        return what, beside, measure

    def of_run(what, measure, run, *arguments, beside=True):
        return what, beside, lambda tree, runs: measure(tree, runs / place(run), *arguments)

    def peer(what, benchmark, own, *tasks):
        sizes = "n_layer=1,batch_size=2" + own if small else "n_layer=12,batch_size=32" + own
        return what, False, lambda *_: beside_huggingface(torch, benchmark, sizes, tasks)

    pretraining = ",d_model=768,n_head=12,d_inner=3072,tgt_len=512,mem_len=384,reuse_len=256,num_predict=85"
    if small:
        pretraining = ",d_model=64,n_head=1,d_inner=64,tgt_len=32,mem_len=16,reuse_len=16,num_predict=4"
    peers = [
        peer("XLNet pretraining beside Hugging Face", "train_xlnet", pretraining, "train"),
        peer("XLNet classifiers beside Hugging Face", "finetune", "", "train_512", "predict_512"),
    ]
    matmuls = (64, 10) if small else (8192, 100)
    return [
        ("products of matrices", False, lambda *_: matmul(*matmuls)),
        training("enwik8_base bfloat16", f"{base} {BFLOAT16}", beside=True),
        training("Penn Treebank's sizes", f"{penn} --batch_size=20", beside=True),
        training("preset ptb", recipe),
        of_run("generation of one text", generate, "enwik8_base bfloat16"),
        training("enwik8_base bfloat16, fewer kernels", f"{base} {BFLOAT16} {FEWER}"),
        training("Penn Treebank's sizes, fewer kernels", f"{penn} --batch_size=20 {FEWER}"),
        training("enwik8_base bfloat16, fused attention", f"{base} {BFLOAT16} {FUSED}"),
        training("Penn Treebank's sizes, fused attention", f"{penn} --batch_size=20 {FUSED}"),
        training("preset ptb, fused attention", f"{recipe} {FUSED}"),
        training(f"{EXACT} on the CPU", f"{base} {SAME}", **NO_CARD),
        training(f"{EXACT} fewer kernels", f"{base} {SAME} {FEWER}", **NO_TF32),
        training(f"{EXACT} fused attention", f"{base} {SAME} {FUSED}", **NO_TF32),
        training("XLNet pretraining", f"{pieces} {BFLOAT16}", beside=True),
        training("XLNet fine-tuning", f"{tuned} {BFLOAT16}", beside=True, init="XLNet pretraining"),
        of_run("XLNet prediction", predict, "XLNet fine-tuning", inputs),
        of_run("XLNet filling", fill, "XLNet pretraining", texts),
        *(peers if torch else ()),
        training("caches filled", f"{base} {BFLOAT16}", **CACHES),
        training("caches used", f"{base} {BFLOAT16}", **CACHES),
        training("enwik8_large bfloat16", f"{large} {BFLOAT16}"),
        training("enwik8_large bfloat16, fused attention", f"{large} {BFLOAT16} {FUSED}"),
        of_run("evaluation of enwik8_large, M 3,800", evaluate, "enwik8_large bfloat16", memory, beside=False),
        of_run("evaluation of enwik8_base", evaluate, "enwik8_base bfloat16", f"--data_dir={folder}/letters"),
        training("Penn Treebank's sizes, CUDA graphs", f"{penn} --batch_size=20", XLA_FLAGS=GRAPHS),
        training("parallel compilation", f"{base} {BFLOAT16}", XLA_FLAGS=PARALLEL),
        training(f"{EXACT} without TF32", f"{base} {SAME}", **NO_TF32),
        training(f"{EXACT} float32", f"{base} {SAME}"),
        training(f"{EXACT} bfloat16", f"{base} {SAME} {BFLOAT16}"),
        training(f"{EXACT} float16", f"{base} {SAME} {FLOAT16}"),
        of_run(f"{EXACT} prediction on the CPU", predict_few, "XLNet fine-tuning", inputs, NO_CARD, beside=False),
        training("enwik8_base float16", f"{base} {FLOAT16}"),
        training("enwik8_base float32", base, beside=True),
        training("Penn Treebank's sizes, B 60", f"{penn} --batch_size=60", beside=True),
        training("enwik8_base bfloat16, B 264", f"{base} {BFLOAT16} --batch_size={5 if small else 264}"),
        training("without autotuning", f"{base} {BFLOAT16}", XLA_FLAGS="--xla_gpu_autotune_level=0"),
        training("profile", f"{base} {BFLOAT16} --profile_steps=8,12"),
    ]


def place(what):
    """The folder of a run."""
    return re.sub("[^A-Za-z0-9]+", "_", what)


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
