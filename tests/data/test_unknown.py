"""Messages about words and pieces that a vocabulary does not know."""

import dataclasses
import pathlib

import numpy as np
import processes
import pytest
import small_run
import tensorflow as tf
from random_model import random_model

from txl_tf.data.manifest import load_corpus
from txl_tf.data.vocabularies import ByteVocabulary, WordVocabulary
from txl_tf.data.vocabularies.base import unknown_note, unknown_share
from txl_tf.runs import checkpoints, model_dir

ROOT = pathlib.Path(__file__).parents[2]
KNOWN = "the cat sat on the mat\n"
TOLD = "are unknown: the model reads them all alike"


def run(*command):
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A corpus of words whose test text has one unknown word of seven tokens, and what the command printed."""
    folder = tmp_path_factory.mktemp("words")
    for name, line in (("train", KNOWN), ("valid", KNOWN), ("test", KNOWN.replace("cat", "dog"))):
        (folder / f"{name}.txt").write_text(line * 30)
    flags = ["--dataset=text", f"--source={folder}/*.txt", "--vocab=words", f"--data_dir={folder}/data"]
    return folder / "data", run("scripts/prepare_data.py", *flags).stdout


@pytest.fixture(scope="module")
def model(prepared, tmp_path_factory):
    """The model_dir of a model with random weights for the corpus."""
    folder, corpus = tmp_path_factory.mktemp("model"), load_corpus(str(prepared[0]))
    config = small_run.change(small_run.CONFIG, model={"vocab_size": corpus.vocab_size})
    weights = checkpoints.variables_by_path(random_model(config.model))
    model_dir.write_description(str(folder), config, corpus)
    tf.train.Checkpoint(model=weights).write(checkpoints.checkpoint_path(str(folder), 0))
    return folder


def test_preparation_says_which_splits_have_unknown_words(prepared):
    lines = prepared[1].splitlines()
    assert [line for line in lines if TOLD in line] == [f"14.2 % of the words of the test text {TOLD}"]
    shards = [split.passes[0] for split in load_corpus(str(prepared[0])).splits.values()]
    assert [sum(shard.unknown for shard in passes) for passes in shards] == [0, 0, 30]


def test_evaluation_says_it(prepared, model):
    flags = [f"--model_dir={model}", f"--data_dir={prepared[0]}", "--batch_size=1"]
    low = f"{TOLD} and need not spell them, so bits_per_byte is too low\n"
    assert f"30 of the 211 tokens of the test text {low}" in run("scripts/evaluate.py", *flags).stderr
    assert TOLD not in run("scripts/evaluate.py", *flags, "--split=valid").stderr


def test_scores_and_continuations_say_it(model, tmp_path):
    (tmp_path / "texts").write_text("the cat sat\nthe dog sat\n")
    scored = run("scripts/score.py", f"--model_dir={model}", f"--input={tmp_path}/texts")
    assert f"16.7 % of the words of {tmp_path}/texts {TOLD}\n" in scored.stderr
    for prompt, said in (("the dog", f"50.0 % of the words of the prompt {TOLD}\n"), ("the cat", ""), ("", "")):
        made = run("scripts/generate.py", f"--model_dir={model}", f"--prompt={prompt}", "--max_tokens=2")
        assert made.stderr == said and TOLD not in made.stdout


def test_a_small_share_is_not_said():
    assert unknown_note("word", 0.01, "a text") == ""
    assert unknown_note("subword", 0.011, "a text") == f"1.1 % of the pieces of a text {TOLD}"


def test_the_share():
    words = WordVocabulary(["<eos>", "<unk>", "a"])
    assert unknown_share(words, [words.encode("a b"), words.encode("a a")]) == 0.25
    assert unknown_share(words, []) == unknown_share(ByteVocabulary(), [np.array([1, 2])]) == 0


def test_a_corpus_of_an_earlier_version_has_no_count(prepared):
    split = load_corpus(str(prepared[0])).split("test")
    older = [dataclasses.replace(shard, unknown=None) for shard in split.passes[0]]
    assert dataclasses.replace(split, passes=(tuple(older),)).unknown_share == 0
