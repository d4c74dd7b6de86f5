"""Runs all of XLNet in a few minutes: pretraining, blanks, fine-tuning, a SavedModel, a server. For `make demo-xlnet`.

Every step is a command, printed before it runs. The corpus is Python's standard library. The model is then fine-tuned
to tell from 6,000 lines of code whether two neighbouring words of a line were exchanged. The same model without
pretraining, and a bag of words, learn from the same lines. Flags that are not the demo's go to scripts/train.py:

    make demo-xlnet DEMO_FLAGS="--train_steps=2000"
"""

import argparse
import json
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import time
import urllib.request

from demo_steps import run

ROOT = pathlib.Path(__file__).parents[2]
BLANKS = (
    "def __init__(____, name, value=None): self.value = value",
    'if name is ____: raise ValueError("name is missing")',
    "self.name = name; self.value = value; return ____.name",
)
RATE = "1e-3"
UPDATES = 600
"""Updates of fine-tuning. With 300 a run stops in the middle of learning."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="demo-xlnet", help="directory for all results")
    args, train_flags = parser.parse_known_args()
    folder = pathlib.Path(args.dir)
    data, task, model, export = folder / "data", folder / "task", folder / "model", folder / "savedmodel"
    start = time.monotonic()

    run(
        *("prepare_data", "--dataset=python_stdlib", "--vocab=sentencepiece", "--vocab_size=2000"),
        f"--data_dir={data}",
    )
    run(
        *("train", "--preset=xlnet_demo", f"--data_dir={data}", f"--model_dir={model}"),
        *("--init_std=0.06", "--eval_steps=250", "--eval_tokens=40000", *train_flags),
    )
    blanks = folder / "blanks.txt"
    blanks.write_text("\n".join(BLANKS) + "\n")
    filled = run("fill", f"--model_dir={model}", f"--text_file={blanks}", "--top=1", "--mark")
    run("prepare_task", "--task=order", f"--out_dir={task}")
    files = (f"--train={task}/train.jsonl", f"--dev={task}/valid.jsonl", f"--test={task}/test.jsonl")
    compared = run(
        *("transfer", f"--init={model}", "--task=classification", f"--out={folder}/compared", *files),
        *(f"--rates={RATE}", "--seeds=1", f"--finetune_flags=--tgt_len=48 --train_steps={UPDATES} --eval_steps=100"),
        folder="evidence/bench",
        shown=False,
    )
    classifier = folder / "compared" / f"pretrained-{RATE}-1"
    if not export.exists():
        run("export_savedmodel", f"--model_dir={classifier}", f"--export_dir={export}")
    example = json.loads((task / "test.jsonl").read_text().splitlines()[0])
    served = serve_once(export, {"texts": [example["text"]]})

    first_filling = filled[0].split("\t")[1]
    curve = [json.loads(line) for line in (model / "evaluations.jsonl").read_text().splitlines()]
    right = {line["weights"]: f"{line['accuracy'][0]:.1%}" for line in map(json.loads, compared)}
    python = sys.executable if os.path.isabs(args.dir) else os.path.relpath(sys.executable)
    print(
        f"""
done in {time.monotonic() - start:.0f} s
  pretraining         {" > ".join(f"{line['loss']:.2f}" for line in curve)} nats per target on valid
  learning curve      {model}/learning_curve.png
  a blank             {first_filling}
  words exchanged?    {", ".join(f"{name} {value}" for name, value in right.items())} right on test
  served              {example["text"]}: {served["labels"][0]}
  data                {data}, {task}
  models, metrics     {model}, {classifier}
  predictions         {classifier}/test.jsonl
  SavedModel          {export}
next:
  {python} -m tensorboard.main --logdir={folder}
  {python} scripts/fill.py --model_dir={model} --text="return ____(self)"
  {python} scripts/finetune.py --init={model} --task=classification --train=YOUR.tsv --model_dir={folder}/mine"""
    )


def serve_once(export, request):
    """The answer of the server to a request for /classify."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = (f"--export_dir={export}", f"--port={port}")
    print(f"\n$ python -m serving {shlex.join(flags)}", flush=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "serving", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        if not any("http://" in line for line in server.stdout):  # a line when it is ready
            sys.exit(f"error: the server ended with status {server.wait()}")
        body = json.dumps(request)
        print(f"$ curl localhost:{port}/classify -d {shlex.quote(body)}", flush=True)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/classify", data=body.encode(), timeout=60) as answer:
            return json.load(answer)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
