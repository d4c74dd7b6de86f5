"""Files of tagged words through the commands, which say what they understood before TensorFlow loads."""

import json

import processes
import pytest

WORDS, TAGS = ["Anna", "Berg", "in", "Oslo"], ["B-PER", "I-PER", "O", "B-LOC"]
COUNTS = "2 texts, 8 words, 4 tags (IOB2)"


def lines(row, before="", end="\n", tags=TAGS):
    """Two texts, with a line of `row` for each word."""
    text = [before, *(row.format(i=i, w=w, t=t) for i, (w, t) in enumerate(zip(WORDS, tags, strict=True), 1)), ""]
    return end.join(line for line in (text if before else text[1:]) * 2)


def objects(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows for _ in range(2))


NUMBERED = lines("{i}\t{w}\t{t}\tO", "#\thttp://a.org/1 [2009]")
FILES = {
    "germeval.tsv": NUMBERED,
    "multiconer.conll": lines("{w} _ _ {t}", "# id 1-aa domain=en"),
    "mac.conll": lines("{w}\t{t}", end="\r"),
    "under.conll": lines("{w}\t{t}").replace("-", "_"),
    "zero.conll": lines("{w}\t{t}") + "so\t0\n",
    "bilou.conll": lines("{w}\t{t}", tags=["B-PER", "L-PER", "O", "U-LOC"]),
    "doccano.jsonl": objects({"id": 1, "text": " ".join(WORDS), "label": [[0, 9, "PER"], [13, 17, "LOC"]]}),
    "words.jsonl": objects({"words": WORDS, "ner": TAGS}),
    "st.csv": "sentence_id,words,labels\n"
    + "".join(f"{n},{w},{t}\n" for n in (0, 1) for w, t in zip(WORDS, TAGS, strict=True)),
}


def finetune(folder, train, dev, *flags):
    for name in {train, dev}:
        (folder / name).write_bytes(FILES[name].encode())
    command = ["scripts/finetune.py", "--init=none", "--task=tagging", f"--model_dir={folder}/run", "--dry_run"]
    return processes.run([*command, f"--train={folder / train}", f"--dev={folder / dev}", *flags])


@pytest.mark.parametrize(
    ("train", "dev", "flags", "said"),
    [
        (
            "germeval.tsv",
            "germeval.tsv",
            ("--text_column=2", "--label_column=3"),
            ["CoNLL, word in column 2, tag in 3"],
        ),
        ("multiconer.conll", "mac.conll", (), ["tag in 4, 2 comments left out", "word in column 1, tag in 2"]),
        ("doccano.jsonl", "words.jsonl", (), ["texts with spans", "words in 'words', tags in 'ner'"]),
        ("st.csv", "under.conll", (), ["words in 'words', tags in 'labels', texts by 'sentence_id'", "tag in 2"]),
    ],
)
def test_what_was_understood_is_said(tmp_path, train, dev, flags, said):
    done = finetune(tmp_path, train, dev, *flags)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == len(said) and not (tmp_path / "run").exists()
    assert all(line.endswith(COUNTS) and words in line for line, words in zip(found, said, strict=True))


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ("germeval.tsv", "line 2 has '1', 'Anna', 'B-PER', 'O': column 1 counts"),
        ("zero.conll", "line 10: the tag '0' does not name an entity"),
    ],
)
def test_what_would_be_read_wrongly_is_refused_in_one_line(tmp_path, train, said):
    done = finetune(tmp_path, train, train)
    assert done.returncode == 1 and said in done.stderr
    assert len(done.stderr.splitlines()) == 1
