"""Makes txl_tf/ready/fairy_tales, the model that comes with the package, from eleven books of Project Gutenberg.

    python evidence/studies/fairy_tales.py --books=FOLDER --out=FOLDER

FOLDER has the books as Project Gutenberg offers them, in text: 503-0.txt, 540-0.txt and so on. It takes about half an
hour on two CPU cores. The commands are those of `make demo`, with another text and vocabulary.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import tensorflow as tf

ROOT = pathlib.Path(__file__).parents[2]
READY = ROOT / "txl_tf" / "ready" / "fairy_tales"
BOOKS = {
    "blue": "503-0.txt",
    "red": "540-0.txt",
    "green": "7277-0.txt",
    "yellow": "640.txt",
    "pink": "5615-0.txt",
    "grey": "6746-0.txt",
    "violet": "641-0.txt",
    "crimson": "2435-0.txt",
    "brown": "3282-0.txt",
    "orange": "3027-0.txt",
    "lilac": "3454-0.txt",
}
"""Andrew Lang's Fairy Books, by their colours."""

PREPARE = ["prepare_data", "--dataset=text", "--vocab=sentencepiece", "--vocab_size=1000", "--splits=shares"]
TRAIN = ["train", "--preset=demo", "--train_steps=3500", "--warmup_steps=150"]
PLAIN = {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2014": "--", "_": "", "\ufffd": "e"}


def story_text(book):
    """The stories of a book, a paragraph in each line: without Gutenberg's frame, preface, contents and footnotes."""
    frame = re.search(r"\*\*\* ?START OF TH.*?\*\*\*\n|\*END[ *].*?\n", book, re.DOTALL)
    end = re.search(r"End of (the )?Project Gutenberg|\*\*\* ?END OF", book)
    text = book[frame.end() : end.start() if end else None]
    for sign, plain in PLAIN.items():
        text = text.replace(sign, plain)
    text = re.sub(r"\n[(\[][^\n)\]]*[)\]]\n\s*\n", "\n\n", text)  # sources, each in a line of its own
    text = re.sub(r"\[\d+\]|\(\d+\)", "", text)
    text = re.sub(r"\[Illustration.*?\]", "", text, flags=re.DOTALL)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    contents = next(i for i, part in enumerate(paragraphs[:40]) if part.lower().startswith("contents"))
    stories = paragraphs[contents + 1 :]
    first = next(i for i, part in enumerate(stories) if len(part) >= 60 and re.search(r"[.!?]['\"]?$", part))
    return "\n".join(part for part in stories[first:] if not part.startswith("End of The Project")) + "\n"


def run(name, *arguments):
    """Runs a command; its last line."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / f"{name}.py", *arguments], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.splitlines()[-1]


def write_ready(model_dir):
    """Copies what `txl_tf.load` needs of a run: settings, vocabulary, and the last weights without Adam's moments."""
    READY.mkdir(parents=True, exist_ok=True)
    for old in READY.glob("ckpt-*"):
        old.unlink()
    for name in ("config.json", "sentencepiece.model"):
        shutil.copy(model_dir / name, READY / name)
    about = json.loads((model_dir / "corpus.json").read_text())
    del about["data_dir"]
    (READY / "corpus.json").write_text(json.dumps(about, indent=2) + "\n")
    path = max(model_dir.glob("ckpt-*.index"), key=lambda file: int(file.stem[5:])).with_suffix("")
    reader = tf.train.load_checkpoint(str(path))
    part, end = "model/", "/.ATTRIBUTES/VARIABLE_VALUE"
    keys = [key for key in reader.get_variable_to_shape_map() if key.startswith(part) and key.endswith(end)]
    names = {key: key.removeprefix(part).removesuffix(end).replace(".S", "/") for key in keys}
    weights = {name: tf.Variable(reader.get_tensor(key)) for key, name in names.items()}
    tf.train.Checkpoint(model=weights).write(str(READY / path.name))


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    texts, data, model = (args.out / name for name in ("texts", "data", "model"))
    texts.mkdir(parents=True, exist_ok=True)
    for colour, name in BOOKS.items():
        book = (args.books / name).read_text("utf-8-sig", "replace")
        (texts / f"{colour}.txt").write_text(story_text(book))
    run(*PREPARE, f"--source={texts}", f"--data_dir={data}")
    run(*TRAIN, f"--data_dir={data}", f"--model_dir={model}")
    print(run("evaluate", f"--model_dir={model}", f"--data_dir={data}", "--split=test"))
    write_ready(model)


if __name__ == "__main__":
    main()
