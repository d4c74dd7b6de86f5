"""Long texts by a trained model, unedited, with statistics beside those of the real continuations.

    python evidence/studies/samples.py --out=runs/ablations --run=xl-1 --page=evidence/studies/samples.md

Prompts are beginnings of excerpts of the test text, which the model has not read (excerpts.py). Sampling is
the paper's: from the 40 most probable tokens. Statistics count words, numbers and marks, the same number of them in
each text: the share of n-grams that are distinct, and the share of windows of 8 that occurred before in the text.
"""

import itertools
import os
import pathlib
import re

import study
from absl import flags
from command_line import run
from jobs import Job, read_record

from txl_tf.errors import InputError

FLAGS = flags.FLAGS
PROMPT_CHARACTERS, WINDOW = 800, 8
if __name__ == "__main__":
    study.define_flags(["small"])
    flags.DEFINE_string("run", "xl-1", "a run in --out: a variant and a seed")
    flags.DEFINE_integer("parts", 4, "excerpts of the test text, as excerpts.py made them", lower_bound=1)
    flags.DEFINE_integer("max_tokens", 4000, "tokens of each sample", lower_bound=1)
    flags.DEFINE_integer("mem_len", 256, "memory in generation", lower_bound=1)


def main(argv):
    """Generates the texts and reports them."""
    del argv
    test = pathlib.Path(FLAGS.out, "text", "test.txt")
    if not test.exists():
        raise InputError(f"{test} is missing: run evidence/studies/ablations.py without --data_dir first")
    texts = cut(test.read_text(), FLAGS.parts)
    jobs = [job(i, text[:PROMPT_CHARACTERS]) for i, text in enumerate(texts)]
    study.run(jobs)
    pairs = []
    for one, text in zip(jobs, texts, strict=True):
        if read_record(study.folder(), one.name).get("finished"):
            sample = pathlib.Path(study.folder(), f"{one.name}.out").read_text()
            pairs.append([part[PROMPT_CHARACTERS:] for part in (sample, text)] + [text[:PROMPT_CHARACTERS]])
    shown = [
        f"## Text {i + 1}\n\nPrompt:\n\n{fenced(prompt)}\n\nSample:\n\n{fenced(sample)}"
        for i, (sample, _, prompt) in enumerate(pairs)
    ]
    study.publish("\n\n".join([compared(pairs), study.about(jobs), *shown]))


def cut(text, parts):
    """Parts of the same length of whole lines."""
    starts = [0, *(text.find("\n", i * len(text) // parts) + 1 for i in range(1, parts)), len(text)]
    return [text[start:stop] for start, stop in itertools.pairwise(starts)]


def job(i, prompt):
    """The generation of a text."""
    path = pathlib.Path(FLAGS.out, f"prompt-{i}.txt")
    path.write_text(prompt)
    model_dir = os.path.join(FLAGS.out, "runs", FLAGS.run)
    settings = {"max_tokens": FLAGS.max_tokens, "mem_len": FLAGS.mem_len, "same_length": True, "top_k": 40}
    paths = {"model_dir": model_dir, "prompt_file": str(path)}
    return Job(f"sample-{FLAGS.run}-{i}", "scripts/generate.py", paths | settings | {"seed": i}, (FLAGS.run,))


def compared(pairs):
    """A table of statistics of samples and real continuations, means over the texts."""
    words = [[re.findall(r"\w+|[^\w\s]", text) for text in pair[:2]] for pair in pairs]
    length = min((len(text) for pair in words for text in pair), default=0)
    rows = []
    for title, texts in zip(("samples", "real continuations"), zip(*words, strict=True), strict=False):
        values = [list(statistics_of(text[:length])) for text in texts]
        rows.append([title, *(study.mean_and_spread(column, 2) for column in zip(*values, strict=True))])
    head = ["", *(f"distinct {n}-grams" for n in (1, 2, 3, 4)), f"windows of {WINDOW} seen before"]
    return f"Means over {len(pairs)} texts of {length:,} words each\n\n{study.table(head, rows)}"


def statistics_of(words):
    """Yields the shares of distinct n-grams for n = 1 .. 4, and the share of windows that occurred before."""
    for n in (1, 2, 3, 4):
        yield distinct(words, n)
    yield 1 - distinct(words, WINDOW)


def distinct(words, n):
    """The number of different n-grams over the number of n-grams."""
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(set(grams)) / max(len(grams), 1)


def fenced(text):
    """A text as a block of Markdown that shows it unchanged."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text.strip(chr(10))}\n{fence}"


if __name__ == "__main__":
    run(main)
