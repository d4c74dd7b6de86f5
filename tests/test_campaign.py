"""A few cases of `make campaign` for each kind of command and each kind of damage; tests/campaign has all of them."""

import pytest
from campaign import world
from campaign.attempts import attempt
from campaign.case import ASCII, Case
from campaign.cases import KINDS

CASES = [
    Case("train", "10^30 steps", {"train_steps": "1" + 30 * "0"}, refused=True, says="--train_steps=1000"),
    Case("train", "nan", {"learning_rate": "nan"}, refused=True, says="--learning_rate=nan"),
    Case("train", "no model_dir", {"model_dir": ""}, refused=True, says="--model_dir= is empty"),
    Case("train", "no data_dir", {"data_dir": ""}, refused=True, says="--data_dir= is empty"),
    Case("train", "not UTF-8", {"data_dir": "caf\udce9"}, refused=True, says="is not UTF-8"),
    Case("train", "cut vocabulary", file=("words/vocab.txt", "cut"), refused=True, says="words/vocab.txt"),
    Case("describe", "nested deeply", file=("words/manifest.json", "nested deeply"), refused=True, says="too deeply"),
    Case("describe", "pipe", file=("words/manifest.json", "a pipe"), refused=True, says="is a pipe"),
    Case("describe", "ascii terminal", environment=ASCII, says="größe"),
    Case("describe", "Ctrl-C while TensorFlow is imported", interrupted=1.5),
    Case("prepare", "source is a pipe", {"source": "a pipe"}, refused=True, says="a pipe is a pipe, not a file"),
    Case("prepare", "source is endless", {"source": "/dev/zero"}, refused=True, says="/dev/zero is a device"),
    Case("prepare", "circle", file=("text/train.txt", "a circle"), refused=True, says="text/train.txt"),
    Case("generate", "seed beyond int32", {"seed": "1" + 30 * "0"}, refused=True, says="--seed=1000"),
    Case("generate", "config", file=("model/config.json", "not UTF-8"), refused=True, says="model/config.json"),
    Case("generate", "checkpoint", file=("model/ckpt-2.index", "a pipe"), refused=True, says="ckpt-2.index is a pipe"),
    Case("search", "infinite", {"length_penalty": "inf"}, refused=True, says="--length_penalty=inf"),
    Case("recl", "not a number", {"threshold": "nan"}, refused=True, says="--threshold=nan"),
    Case("recl", "beyond int32", {"context_lengths": "4,99999999999"}, refused=True, says="--context_lengths"),
    Case("import_huggingface", "list", file=("huggingface/config.json", "a list"), refused=True, says="config.json"),
    Case("export_huggingface", "no vocabulary", file=("model/vocab.txt", "missing"), refused=True, says="vocab.txt"),
    Case("predict", "pipe", file=("tuned/config.json", "a pipe"), refused=True, says="config.json is a pipe"),
    Case("predict", "damaged gzip", {"input": "a file.tsv.gz"}, refused=True, says="a file.tsv.gz"),
    Case("predict", "threshold", {"threshold": "0"}, refused=True, says="a threshold is for several labels"),
    Case("saved", "foreign", {"export_dir": "a folder"}, refused=True, says="a folder is not an exported model"),
]
OF_KINDS = (
    "describe: paths with brackets",
    "describe: paths behind a link",
    "prepare: paths: a file named like a pattern",
    "prepare: own text: names of splits: folders",
    "prepare: own text: two claims",
    "prepare: archives: a tar in a gz in a zip",
    "prepare: archives: an encrypted zip",
    "prepare: encodings: text in utf-16",
    "prepare: encodings: an image",
    "predict: surrogates: a first half in a text",
    "python: surrogates: score, a first half",
    "predict: tables: a spreadsheet program's utf-16",
    "predict: tables: 1,200 faults",
)
"""Lines of cases that are written in the modules of KINDS."""
CASES += [case for kind in KINDS for case in kind.cases() if f"{case.command}: {case.title}" in OF_KINDS]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    world.build(root, ["model", "huggingface", "tuned", "table.tsv", "prompt.txt"])
    return root


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command}: {case.title}")
def test_case(case, root):
    wrong, _ = attempt(case, root)
    assert not wrong


def test_kinds_have_lines_of_their_own():
    lines = [f"{case.command}: {case.title}" for kind in KINDS for case in kind.cases()]
    assert len(set(lines)) == len(lines) and set(OF_KINDS) <= set(lines)


def test_a_command_without_damage_is_no_failure_and_a_right_answer_is_told_from_a_wrong_one(root):
    """The campaign reports a success where a refusal is due, and a missing message."""
    assert attempt(Case("describe", ""), root)[0] == ""
    assert attempt(Case("describe", "", refused=True), root)[0] == "it was accepted"
    assert "does not say" in attempt(Case("describe", "", {"data_dir": "nothing"}, says="none such"), root)[0]
