"""Runs everything in a few minutes: data, training, evaluation, text, a SavedModel and its use. For `make demo`.

Every step is a command, printed before it runs. Flags that are not the demo's go to scripts/train.py:

    make demo DEMO_FLAGS="--train_steps=2000"
"""

import argparse
import json
import os
import pathlib
import sys
import time

from demo_steps import run

PROMPT = "def read_lines(path):"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="demo", help="directory for all results")
    args, train_flags = parser.parse_known_args()
    folder = pathlib.Path(args.dir)
    data, model, export = folder / "data", folder / "model", folder / "savedmodel"
    start = time.monotonic()

    run("prepare_data", "--dataset=python_stdlib", f"--data_dir={data}")
    run("train", "--preset=demo", f"--data_dir={data}", f"--model_dir={model}", *train_flags)
    result = json.loads(run("evaluate", f"--model_dir={model}", f"--data_dir={data}", "--split=test")[-1])
    sample = ("--max_tokens=300", "--temperature=0.8", "--seed=1")
    text = run("generate", f"--model_dir={model}", f"--prompt={PROMPT}", *sample)
    (folder / "sample.txt").write_text("\n".join(text) + "\n")
    if not export.exists():
        run("export_savedmodel", f"--model_dir={model}", f"--export_dir={export}")
    run("continue_savedmodel", f"--export_dir={export}", f"--prompt={PROMPT}", *sample)

    windows = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    speed = sorted(window["tokens_per_sec"] for window in windows)[len(windows) // 2]
    python = sys.executable if os.path.isabs(args.dir) else os.path.relpath(sys.executable)
    print(
        f"""
done in {time.monotonic() - start:.0f} s
  test                {result["bpc"]:.3f} bpc over {result["tokens"]:,} bytes, step {result["step"]:,}
  training            {speed:,.0f} tokens/s
  data                {data}
  model, metrics      {model}
  sample              {folder / "sample.txt"}
  SavedModel          {export}
next:
  {python} -m tensorboard.main --logdir={model}
  {python} scripts/generate.py --model_dir={model} --prompt="import " --max_tokens=500
  {python} scripts/prepare_data.py --dataset=text --source=YOUR_FILES --data_dir={folder}/mine && \\
    {python} scripts/train.py --preset=demo --data_dir={folder}/mine --model_dir={folder}/my_model"""
    )


if __name__ == "__main__":
    main()
