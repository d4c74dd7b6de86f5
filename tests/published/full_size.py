"""The largest published models at full size: `make test-full-size`, not part of the suite.

Random weights under the published names and shapes go through the commands of docs/reproduce.md, with the paper's
evaluation settings; the first lane's log-probabilities are those of the source's own conventions in NumPy. Needs 12 GB
of memory, 8 of them for a command, and 3 GB of disk.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import published_files as files
import pytest
from published_reference import Sizes, tf_log_probs, tf_tensors

from txl_tf.data.lanes import EvaluationLanes
from txl_tf.data.manifest import load_corpus
from txl_tf.families.presets.transformer_xl import PRESETS

ROOT = pathlib.Path(__file__).parents[2]
LARGEST = 8 << 30


def run(*command):
    """Runs a script; its time and its largest resident memory go to the terminal."""
    start, memory = time.perf_counter(), 0
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"})
    while process.poll() is None:
        # Not rusage: a child's begins with what its parent has at the fork.
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        memory = max(memory, *(1024 * int(kilobytes) for kilobytes in re.findall(r"VmHWM:\s+(\d+)", status)), 0)
        time.sleep(0.1)
    print(f"{command[0]}: {time.perf_counter() - start:.0f} s, {memory / 2**30:.2f} GiB", flush=True)
    assert process.returncode == 0
    assert memory < LARGEST


@pytest.mark.parametrize("name", ["enwik8_large", "wt103_large"])
def test_import_and_evaluate(tmp_path, name):
    model, evaluation = PRESETS[name].config.model, PRESETS[name].config.eval
    fields = ("vocab_size", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "cutoffs", "div_val")
    sizes = Sizes(
        **{field: getattr(model, field) for field in (*fields, "untie_r", "proj_same_dim")},
        share=model.proj_share_all_but_first,
        mem_len=evaluation.mem_len,
        clamp_len=evaluation.clamp_len,
        same_length=evaluation.same_length,
    )
    lanes = {"enwik8_large": 2, "wt103_large": evaluation.batch_size}[name]  # 16 of enwik8's would take 16 GB
    lane_tokens = evaluation.tgt_len + 9  # a whole segment and the start of another
    draw = np.random.default_rng(5)
    weights = tf_tensors(sizes, draw, scale=0.03)
    assert sum(array.size for array in weights.values()) == PRESETS[name].parameters
    files.write_tf(str(tmp_path / "model.ckpt-0"), weights)
    if name == "enwik8_large":
        symbols = [str(i) for i in range(256) if i != 10][: sizes.vocab_size]
        text = bytes(draw.choice([int(symbol) for symbol in symbols], 20 * lanes * lane_tokens).tolist())
        (tmp_path / "enwik8").write_bytes(text)  # a twentieth is test
        corpus = ["--dataset=enwik8", f"--source={tmp_path}/enwik8"]
    else:
        symbols = ["<eos>", "<unk>", *(f"w{i}" for i in range(2, sizes.vocab_size))]
        for split in ("train", "valid", "test"):
            ids = np.exp(draw.uniform(0, np.log(sizes.vocab_size), lanes * lane_tokens - 1)).astype(int)  # all clusters
            (tmp_path / f"wiki.{split}.tokens").write_text(" ".join(symbols[i] for i in ids) + "\n")
        corpus = ["--dataset=wt103", f"--source={tmp_path}"]
    (tmp_path / "symbols.txt").write_text("\n".join(symbols) + "\n")

    run(
        "scripts/import_checkpoint.py", "--format=official_tf", f"--source={tmp_path}/model.ckpt-0", f"--preset={name}",
        f"--vocabulary={tmp_path}/symbols.txt", f"--model_dir={tmp_path}/run",
    )  # fmt: skip
    for file in tmp_path.glob("model.ckpt-0.*"):
        file.unlink()
    run("scripts/prepare_data.py", *corpus, f"--vocab_file={tmp_path}/run/vocab.txt", f"--data_dir={tmp_path}/data")
    run(
        "scripts/evaluate.py",
        f"--model_dir={tmp_path}/run",
        f"--data_dir={tmp_path}/data",
        f"--batch_size={lanes}",
        f"--per_token_out={tmp_path}/scores.tsv",
    )

    rows = [line.split("\t") for line in (tmp_path / "scores.tsv").read_text().splitlines()[1:]]
    assert len(rows) == lanes * (lane_tokens - 1)
    targets, found = ([kind(row[i]) for row in rows[: lane_tokens - 1]] for i, kind in enumerate((int, float)))
    corpus = load_corpus(str(tmp_path / "data"))
    inputs, _ = next(EvaluationLanes(corpus, "test", lanes, evaluation.tgt_len).batches().as_numpy_iterator())
    lane = [inputs[0, 0], *targets[:-1]]
    segments = [lane[start : start + evaluation.tgt_len] for start in range(0, len(lane), evaluation.tgt_len)]
    wanted = np.concatenate(tf_log_probs(weights, sizes, segments))[np.arange(len(targets)), targets]
    difference = np.abs(found - wanted).max()
    print(
        f"{name}: {len(rows)} tokens, {len(targets)} of them compared, largest difference {difference:.1e}", flush=True
    )
    assert difference < 1e-3
