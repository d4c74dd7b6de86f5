"""Runs all of XLNet in a few minutes: pretraining, blanks, fine-tuning, a SavedModel, a server. For `make demo-xlnet`.

Every step is a command, printed before it runs. The corpus is Python's standard library. The model is then fine-tuned
to tell whether a docstring belongs to a function's body. Flags that are not the demo's go to scripts/train.py:

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

SERVER = pathlib.Path(__file__).parents[2] / "examples" / "serve.py"
BLANKS = (
    "for i in ____ ( len ( self . items ) ) :",
    "if not isinstance ( value , str ) : raise ____ ( value )",
    "with open ( path ) as file : return file . ____ ( )",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="demo-xlnet", help="directory for all results")
    args, train_flags = parser.parse_known_args()
    folder = pathlib.Path(args.dir)
    data, task = folder / "data", folder / "task"
    model, classifier, export = folder / "model", folder / "classifier", folder / "savedmodel"
    start = time.monotonic()

    run(
        *("prepare_data", "--dataset=python_stdlib", "--vocab=sentencepiece", "--vocab_size=2000"),
        f"--data_dir={data}",
    )
    run("train", "--preset=xlnet_demo", f"--data_dir={data}", f"--model_dir={model}", *train_flags)
    pretrained = json.loads(run("evaluate", f"--model_dir={model}", f"--data_dir={data}", "--split=test")[-1])
    for text in BLANKS:
        run("fill", f"--model_dir={model}", f"--text={text}", "--top=3")
    run("prepare_task", "--task=match", f"--out_dir={task}")
    tuned = run(
        *("finetune", f"--init={model}", "--task=classification", f"--train={task}/train.jsonl"),
        *(f"--dev={task}/valid.jsonl", f"--model_dir={classifier}", "--tgt_len=112", "--learning_rate=3e-4"),
        *("--train_steps=600", "--eval_steps=300"),
    )
    predictions = folder / "predictions.jsonl"
    predictions.unlink(missing_ok=True)  # of an earlier demo
    run("predict", f"--model_dir={classifier}", f"--input={task}/test.jsonl", f"--output={predictions}")
    if not export.exists():
        run("export_savedmodel", f"--model_dir={classifier}", f"--export_dir={export}")
    example = json.loads((task / "test.jsonl").read_text().splitlines()[0])
    served = serve_once(export, {"texts": [example["text"]], "second": [example["text_b"]]})

    labels = [json.loads(line)["label"] for line in (task / "test.jsonl").read_text().splitlines()]
    answers = [json.loads(line)["label"] for line in predictions.read_text().splitlines()]
    right = sum(a == b for a, b in zip(answers, labels, strict=True)) / len(labels)
    python = sys.executable if os.path.isabs(args.dir) else os.path.relpath(sys.executable)
    print(
        f"""
done in {time.monotonic() - start:.0f} s
  pretraining         {pretrained["loss"]:.3f} nats per target on test, step {pretrained["step"]:,}
  fine-tuning         {json.loads(tuned[-1])["accuracy"]:.1%} of valid, {right:.1%} of {len(labels)} test pairs
  served              {json.dumps(served)}
  data                {data}, {task}
  models, metrics     {model}, {classifier}
  predictions         {predictions}
  SavedModel          {export}
next:
  {python} -m tensorboard.main --logdir={folder}
  {python} scripts/fill.py --model_dir={model} --text="return ____ ( self )"
  {python} scripts/finetune.py --init={model} --task=classification --train=YOUR.tsv --dev=YOUR_DEV.tsv \\
    --model_dir={folder}/mine"""
    )


def serve_once(export, request):
    """The answer of examples/serve.py to a request for /classify."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = (f"--export_dir={export}", f"--port={port}")
    print(f"\n$ python -m serving {shlex.join(flags)}", flush=True)
    server = subprocess.Popen([sys.executable, str(SERVER), *flags], stdout=subprocess.PIPE, text=True)
    try:
        if not any("http://" in line for line in server.stdout):  # a line when it is ready
            sys.exit(f"error: examples/serve.py ended with status {server.wait()}")
        body = json.dumps(request)
        print(f"$ curl localhost:{port}/classify -d {shlex.quote(body[:100] + '..')}", flush=True)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/classify", data=body.encode(), timeout=60) as answer:
            return json.load(answer)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
