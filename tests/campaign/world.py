"""Not a test: one small file of every kind that a command reads, each made in seconds and without training."""

import csv
import functools
import json
import pathlib
import pickle
import tempfile

import numpy as np
import openpyxl
import published_files
import random_model
import random_xlnet
import tensorflow as tf
import tuned_models
import xlnet_files
import xlnet_tokens
from published_reference import Sizes, tf_tensors, torch_tensors

from txl_tf import families
from txl_tf.data.manifest import load_corpus
from txl_tf.data.prepare import prepare
from txl_tf.data.tables.columns import Columns
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.devices.distribute import make_strategy
from txl_tf.inference.export import export_trained
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLRunConfig
from txl_tf.published.exporting import export_checkpoint
from txl_tf.runs import checkpoints, model_dir
from txl_tf.training.loop import train

WORDS = [f"word{i}" for i in range(30)]
SIZES = Sizes(vocab_size=23, cutoffs=(5, 9, 17), div_val=2, untie_r=True, share=True)
PARTS = {}
"""Functions that make a part of the world, by the part's path."""


def part(path):
    """Registers a function that makes a file or folder at a path of the world."""

    def add(function):
        PARTS[path] = function
        return function

    return add


def build(root, parts):
    """Makes parts, and what they are made from, in the folder `root`; those that are there stay."""
    make = functools.cache(lambda path: _make(pathlib.Path(root), path))
    for path in parts:
        make(path)


def _make(root, path):
    if not (root / path).exists():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        PARTS[path](root / path, root)


@part("text")
def text(path, root):
    path.mkdir()
    draw = np.random.default_rng(0)
    for name, lines in (("train", 400), ("valid", 60), ("test", 60)):
        content = "größe " + "\n".join(" ".join(draw.choice(WORDS, 8)) for _ in range(lines))
        (path / f"{name}.txt").write_text(content + "\n")


@part("prompt.txt")
def prompt(path, root):
    path.write_text("word1 größe word3\nword4 word5\n")


@part("prompts.jsonl")
def prompts(path, root):
    path.write_text('{"prompt": "word1 größe", "id": 1}\n"word4"\n{"prompt": ""}\n')


@part("list.txt")
def word_list(path, root):
    path.write_text("\n".join(["<eos>", "<unk>", "größe", *WORDS]) + "\n")


@part("words")
def words(path, root):
    build(root, ["text"])
    prepare("text", str(path), source=str(root / "text"), vocab="words")


@part("model")
def model(path, root):
    """A model_dir as training leaves it."""
    build(root, ["words"])
    corpus = load_corpus(str(root / "words"))
    config = TransformerXLRunConfig(random_model.CONFIG, eval=EvalConfig(batch_size=2, tgt_len=16, mem_len=16))
    config = config.replace(model={"vocab_size": corpus.vocab_size}, eval={"jit_compile": False, "clamp_len": -1})
    model_dir.write_description(str(path), config, corpus)
    weights = checkpoints.variables_by_path(random_model.random_model(config.model))
    tf.train.Checkpoint(model=weights).write(checkpoints.checkpoint_path(str(path), 2))
    lines = [json.dumps({"step": step, "loss": loss}) for step, loss in ((1, 3.5), (2, 3.0))]
    (path / "evaluations.jsonl").write_text("\n".join(lines) + "\n")


@part("half")
def half(path, root):
    """The model_dir of a run that stopped after two of four steps."""
    build(root, ["words"])
    corpus = load_corpus(str(root / "words"))
    config = families.presets()["enwik8_base"].config.replace(
        model=TINY | {"vocab_size": corpus.vocab_size}, data=BATCHES, train=SHORT, eval=TINY_EVAL
    )

    def killed(model):
        def evaluate(progress):
            raise KeyboardInterrupt

        return evaluate

    try:
        train(config, corpus, str(path), make_strategy("one_device"), killed)
    except KeyboardInterrupt:
        return
    raise AssertionError("the run was not cut short")


TINY = {"n_layer": 1, "d_model": 8, "d_embed": 8, "n_head": 1, "d_head": 8, "d_inner": 8, "mem_len": 8}
BATCHES = {"batch_size": 4, "tgt_len": 8}
SHORT = {"train_steps": 4, "warmup_steps": 1, "log_steps": 1, "save_steps": 2, "eval_steps": 2, "jit_compile": False}
TINY_EVAL = {"batch_size": 4, "tgt_len": 16, "mem_len": 8, "clamp_len": -1, "jit_compile": False}


@part("xlnet")
def xlnet(path, root):
    random_xlnet.write_model_dir(path, random_xlnet.with_prefix(XLNetVocabulary))


@part("tuned")
def tuned(path, root):
    tuned_models.write_model_dir(path, "classification", ("no", "yes"))
    line = {"step": 0, "loss": 1.0, "error": 0.5, "metrics": {"accuracy": 0.5}}
    (path / "evaluations.jsonl").write_text(json.dumps(line) + "\n")


@part("answering")
def answering(path, root):
    tuned_models.write_model_dir(path, "answering")


@part("tagging")
def tagging(path, root):
    tuned_models.write_model_dir(path, "tagging", ("O", "B-X", "I-X"), 2)


@part("labelling")
def labelling(path, root):
    tuned_models.write_model_dir(path, "multi_label", ("a", "b", "c"))
    (path / "columns.json").write_text(json.dumps(Columns(label_separator=";").names))
    line = {"step": 0, "loss": 1.0, "error": 0.5, "metrics": {"micro_f1": 0.5, "threshold": 0.3}}
    (path / "evaluations.jsonl").write_text(json.dumps(line) + "\n")


@part("sets.csv")
def sets(path, root):
    path.write_text("text,label\nlambda,a;b\nimport,\nwhile,c\n")


@part("words.conll")
def tagged_words(path, root):
    path.write_text("lambda O\nimport B-X\n\nreturn O\nwhile I-X\n" * 3)


@part("table.tsv")
def table(path, root):
    rows = [f"lambda return {word}\t{label}" for word, label in (("import", "yes"), ("while", "no"))] * 4
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n")


TICKETS = [
    (i, f"{word} return {WORDS[i]}, import", team, f'a "{word}" note')
    for i, (word, team) in enumerate([("lambda", "no"), ("while", "yes")] * 8)
]
"""Rows of a spreadsheet, with columns that no model reads."""


@part("tickets.csv")
def tickets(path, root):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("id", "message", "team", "note"), *TICKETS])


@part("tickets.xlsx")
def workbook(path, root):
    book = openpyxl.Workbook()
    for row in (("id", "message", "team", "note"), *TICKETS):
        book.active.append(row)
    book.save(path)


@part("squad.json")
def squad(path, root):
    answer = {"text": "import", "answer_start": 7}
    questions = [{"id": "q1", "question": "class ?", "answers": [answer], "is_impossible": False}]
    paragraph = {"context": "lambda import return", "qas": questions}
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": [paragraph]}]}))


@part("saved")
def saved(path, root):
    build(root, ["model"])
    export_trained(model_dir.load_trained(str(root / "model")), str(path), jit_compile=False)


@part("saved_xlnet")
@part("saved_tuned")
@part("saved_answering")
@part("saved_tagging")
@part("saved_labelling")
def saved_other(path, root):
    source = path.name.removeprefix("saved_")
    build(root, [source])
    export_trained(model_dir.load_trained(str(root / source)), str(path), jit_compile=False)


@part("huggingface")
def huggingface(path, root):
    build(root, ["model"])
    export_checkpoint(model_dir.load_trained(str(root / "model")), "huggingface", str(path))


@part("huggingface_simple")
def huggingface_simple(path, root):
    """A model whose answers' starts and ends are independent."""
    with tempfile.TemporaryDirectory() as folder:
        tuned_models.write_model_dir(folder, "answering", answer_head="simple")
        export_checkpoint(model_dir.load_trained(folder), "huggingface", str(path))


@part("huggingface_xlnet")
def huggingface_xlnet(path, root):
    build(root, ["tuned"])
    export_checkpoint(model_dir.load_trained(str(root / "tuned")), "huggingface", str(path))


@part("huggingface_labelling")
@part("huggingface_tagging")
def huggingface_other(path, root):
    source = path.name.removeprefix("huggingface_")
    build(root, [source])
    export_checkpoint(model_dir.load_trained(str(root / source)), "huggingface", str(path))


@part("xlnet.zip")
def xlnet_zip(path, root):
    """An XLNet as its authors publish it."""
    pieces = xlnet_tokens.small_model()
    size = XLNetVocabulary(pieces).vocab_size
    weights = xlnet_files.random_weights(np.random.default_rng(0), vocab_size=size)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        xlnet_files.write_official(folder, xlnet_files.official_tensors(weights), n_token=size)
        (folder / "spiece.model").write_bytes(pieces)
        xlnet_files.write_zip(path, folder)


@part("official_tf")
def official_tf(path, root):
    path.mkdir()
    published_files.write_tf(str(path / "model.ckpt-0"), tf_tensors(SIZES, np.random.default_rng(0)))
    _vocabulary(path)


@part("official_pytorch")
def official_pytorch(path, root):
    path.mkdir()
    tensors = torch_tensors(SIZES, np.random.default_rng(0))
    published_files.write_torch(path / "model.pt", *published_files.as_torch(tensors))
    _vocabulary(path)


def _vocabulary(path):
    symbols = ["<eos>", "<unk>", *(f"w{i}" for i in range(SIZES.vocab_size - 2))]
    (path / "vocab.pkl").write_bytes(pickle.dumps(vars(published_files.Vocab(symbols))))
