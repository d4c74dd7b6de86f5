"""The commands that a visit to a GPU runs, their times and logged results. Not a script.

TREE is the checkout; a function returns the content of a result. Times of generation, prediction and filling are those
of a long call less those of a short one, so that loading and compiling do not count.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[3]
STEPS = "--train_steps=20 --steps_per_loop=4 --log_steps=4 --save_steps=20 --warmup_steps=0"
SYMBOLS, TYPES, TOKENS = 200, 10_000, 400_000
WARM_UP, GENERATED = 8, 256  # tokens
COPIES = 8  # of the short input in the long one
COMPARED = 32  # predictions
MATMUL = """
import json, time, tensorflow as tf
n, turns, rates = {n}, {turns}, {{}}
for dtype in ("float32", "bfloat16", "float16"):
    a = tf.cast(tf.random.normal([n, n]) / n, dtype)
    product = tf.function(lambda x: tf.while_loop(lambda i, x: i < turns, lambda i, x: (i + 1, x @ a), (0, x))[1])
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        product(a)[0, 0].numpy()
        seconds.append(time.perf_counter() - start)
    rates[dtype] = turns * 2 * n**3 / min(seconds) / 1e12
cards = tf.config.list_physical_devices("GPU")
names = [tf.config.experimental.get_device_details(card)["device_name"] for card in cards]
print(json.dumps({{"device": ", ".join(names) or "CPU", "tensorflow": tf.__version__, "tflops": rates}}))
"""


def matmul(n, turns):
    """TFLOP/s of `turns` products of [n, n] by dtype, the card and TensorFlow's version."""
    return last_object(call([sys.executable, "-c", MATMUL.format(n=n, turns=turns)])[1])


def train(tree, model_dir, flags, environment=None):
    """Results of train.py, or with --init of finetune.py, in five loops of four steps."""
    (model_dir.parent / "autotuning").mkdir(parents=True, exist_ok=True)
    environment = {name: value.replace("RUNS", str(model_dir.parent)) for name, value in (environment or {}).items()}
    script = "finetune" if "--init=" in flags else "train"
    if model_dir.exists():  # from a visit that was broken off
        model_dir.rename(model_dir.with_name(f"{model_dir.name}.{time.time():.0f}"))
    command = [script, f"--model_dir={model_dir}", *STEPS.split(), *flags.split()]
    seconds, _ = run(tree, *command, environment=environment, first="^step ")
    lines = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    return {
        "first_loop_seconds": round(seconds, 1),
        "tokens_per_sec": lines[-1]["tokens_per_sec"],
        "losses": [line["loss"] for line in lines],
        "grad_norms": [line["grad_norm"] for line in lines],
        "flops_per_token": flops_per_token(model_dir) if tree == ROOT else None,
    }


def flops_per_token(model_dir):
    """Multiplications and additions of training, by txl_tf/objectives/flops.py; None if the task has no count."""
    from txl_tf import families

    config = families.config_from_json((model_dir / "config.json").read_text())
    operations = families.task_of(config).operations(config)
    return operations and round(operations / (config.data.batch_size * config.data.tgt_len))


def generate(tree, model_dir):
    """Milliseconds of a token."""
    command = ["generate", f"--model_dir={model_dir}", "--prompt=" + chr(0x100)]
    short, long = (run(tree, *command, f"--max_tokens={count}")[0] for count in (WARM_UP, WARM_UP + GENERATED))
    return {"ms_per_token": round(1e3 * (long - short) / GENERATED, 2)}


def evaluate(tree, model_dir, flags):
    """What evaluate.py says of the train split."""
    _, lines = run(tree, "evaluate", f"--model_dir={model_dir}", "--split=train", *flags.split())
    return {name: last_object(lines)[name] for name in ("tokens_per_sec", "loss")}


def predict(tree, model_dir, inputs):
    """Predictions a second, and the first ones; inputs: a file, and one that holds it COPIES times."""
    (short, lines), (long, _) = (predicted(tree, model_dir, file) for file in inputs)
    rate = (COPIES - 1) * len(inputs[0].read_text().splitlines()) / (long - short)
    return {"examples_per_sec": round(rate, 1), "probabilities": probabilities(lines)}


def predict_few(tree, model_dir, inputs, environment):
    """The first predictions alone."""
    return {"probabilities": probabilities(predicted(tree, model_dir, inputs[0], environment)[1])}


def predicted(tree, model_dir, file, environment=None):
    """`run` of predict.py."""
    command = ["predict", f"--model_dir={model_dir}", f"--input={file}", "--jit_compile"]
    return run(tree, *command, environment=environment)


def probabilities(lines):
    """That of the first class, of the first predictions among lines of output."""
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    return [next(iter(answer["probabilities"].values())) for answer in answers[:COMPARED]]


def fill(tree, model_dir, inputs):
    """Texts with a blank that are filled in a second; inputs as for `predict`."""
    command = ["fill", f"--model_dir={model_dir}", "--jit_compile", "--top=1"]
    short, long = (run(tree, *command, f"--text_file={file}")[0] for file in inputs)
    return {"texts_per_sec": round((COPIES - 1) * len(inputs[0].read_text().splitlines()) / (long - short), 2)}


def beside_huggingface(python, benchmark, sizes, tasks):
    """Tokens per second of a benchmark's tasks, ours and those of Hugging Face's classes in another Python."""
    command = [
        sys.executable,
        str(ROOT / "evidence" / "bench" / f"{benchmark}.py"),
        "--rounds=3",
        f"--peer=huggingface={python}",
    ]
    growing = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # several processes share the card
    line = last_object(call([*command, f"--size={sizes}"], growing)[1])
    return {
        "beside": {task: line[task]["tokens_per_sec"] if task in line else line["tokens_per_sec"] for task in tasks}
    }


def run(tree, script, *flags, environment=None, first=None):
    """`call` of a script of a tree."""
    command = [sys.executable, str(tree / "scripts" / f"{script}.py"), *flags]
    return call(command, {"PYTHONPATH": str(tree)} | (environment or {}), first)


def call(command, environment=None, first=None):
    """(seconds, lines written) of a command; the seconds until it ends, or has written what `first` matches.

    Raises:
        subprocess.CalledProcessError: it failed, or has not written that.
    """
    start, found, lines = time.perf_counter(), None, []
    given = os.environ | (environment or {})
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            lines.append(line)
            if first and found is None and re.search(first, line):
                found = time.perf_counter() - start
    if process.returncode or (first and found is None):
        raise subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines))
    return (time.perf_counter() - start if found is None else found), lines


def last_object(lines):
    """The last line that is a JSON object."""
    return json.loads([line for line in lines if line.startswith("{")][-1])


def prepare(tree, folder, small):
    """Makes in `folder` what is read, where it is not there yet, by a tree whose files all commits can read.

    The corpora letters and words are for Transformer-XLs, pieces for XLNets. Texts to classify are in train.jsonl,
    dev.jsonl, few.jsonl and many.jsonl, texts with a blank in few.txt and many.txt.
    """
    draw, part = random.Random(0), 20 if small else 1
    ways = {
        "letters": (8, lambda: "".join(chr(0x100 + draw.randrange(SYMBOLS)) for _ in range(7)), "bytes"),
        "words": (2, lambda: str(draw.randrange(TYPES // part)), "words"),
    }
    for name, (share, word, vocabulary) in ways.items():
        if not (folder / name).exists():
            (folder / f"{name}.txt").write_text("\n".join(word() for _ in range(TOKENS // part // share)), "utf-8")
            source = ["--dataset=text", f"--source={folder}/{name}.txt", f"--data_dir={folder}/{name}"]
            run(tree, "prepare_data", *source, f"--vocab={vocabulary}")
    pages = [path.read_text("utf-8") for name in ("docs/*.md", "txl_tf/**/*.py") for path in sorted(ROOT.glob(name))]
    if not (folder / "pieces").exists():
        (folder / "pages.txt").write_text("\n".join(pages[:12] if small else pages), "utf-8")
        vocab = ["--vocab=sentencepiece", f"--vocab_size={500 if small else 8000}"]
        source = ["--dataset=text", f"--source={folder}/pages.txt", f"--data_dir={folder}/pieces"]
        run(tree, "prepare_data", *source, *vocab)
    if not (folder / "many.txt").exists():
        words = " ".join(pages).split()
        rows = [" ".join(draw.choices(words, k=40 if small else 600)) for _ in range(16 if small else 256)]
        examples = [json.dumps({"text": row, "label": "ab"[i % 2]}) + "\n" for i, row in enumerate(rows)]
        blanks = [f"for i in ____ ( {name} ) :\n" for name in ("ab" if small else "abcdefgh")]
        copies = {
            "train.jsonl": 1,
            "dev.jsonl": 1,
            "few.jsonl": 1,
            "many.jsonl": COPIES,
            "few.txt": 1,
            "many.txt": COPIES,
        }
        for name, count in copies.items():
            lines = examples if name.endswith(".jsonl") else blanks
            (folder / name).write_text("".join(lines * count), "utf-8")
