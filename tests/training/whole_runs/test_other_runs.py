"""Runs that training refuses to continue or to overwrite; a refusal changes no file."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from small_run import CONFIG, change

from txl_tf.data.manifest import load_corpus
from txl_tf.data.prepare import prepare
from txl_tf.errors import InputError
from txl_tf.runs import checkpoints, model_dir
from txl_tf.training.loop import train

RUN = change(CONFIG, train={"eval_steps": 0, "train_steps": 4})
LETTERS = "abcdefghij "


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(folder, match, corpus, strategy, config=RUN):
    """Training is refused in one line, and no file has changed."""
    before = content(folder)
    with pytest.raises(InputError, match=match) as error:
        train(config, corpus, str(folder), strategy)
    assert "\n" not in str(error.value)
    assert content(folder) == before


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Corpora of one size: two with the same vocabulary, one with the same ids and another vocabulary."""
    folder, found = tmp_path_factory.mktemp("corpora"), {}
    draw = np.random.default_rng(0)
    text = "".join(draw.choice(list(LETTERS), 4000))
    whole, turned = (LETTERS + part + LETTERS for part in (text, text[::-1]))
    texts = {"own": whole, "turned": turned, "upper": whole.upper()}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
        found[name] = prepare("text", str(folder / name), source=str(folder / f"{name}.txt"), vocab="chars")
    sizes = {(corpus.vocab_size, corpus.splits["train"].tokens) for corpus in found.values()}
    assert len(sizes) == 1
    return found


@pytest.fixture(scope="module")
def finished(corpora, tmp_path_factory):
    import replicas

    folder = tmp_path_factory.mktemp("finished") / "run"
    train(RUN, corpora["own"], str(folder), replicas.one_device())
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run."""
    return shutil.copytree(finished, tmp_path / "run")


def test_another_corpus_of_the_same_size(run, corpora, one_device):
    refused(run, "holds a run on other data: give the data it began with, .*/own, or", corpora["turned"], one_device)
    refused(run, "holds a run with another vocabulary", corpora["upper"], one_device)
    refused(run, "holds a run with other settings", corpora["own"], one_device, change(RUN, train={"seed": 9}))


def test_the_same_corpus_elsewhere_is_the_same(run, corpora, one_device, tmp_path):
    copy = load_corpus(str(shutil.copytree(corpora["own"].data_dir, tmp_path / "copy")))
    train(RUN, copy, str(run), one_device)
    assert model_dir.trained_on(str(run)) == copy.data_dir


def test_a_vocabulary_that_was_swapped(run, corpora, one_device):
    (run / "vocab.txt").write_text("".join(json.dumps(letter) + "\n" for letter in reversed(LETTERS)))
    refused(run, "vocab.txt differs from the vocabulary of the data", corpora["own"], one_device)
    with pytest.raises(InputError, match=r"vocab.txt is not the vocabulary that belongs here .*copy it again"):
        model_dir.load_trained(str(run))
    (run / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"vocab.txt is missing: the model_dir is incomplete"):
        model_dir.load_trained(str(run))


@pytest.mark.parametrize(
    "name", ["vocab.txt", "metrics.jsonl", "evaluations.jsonl", "corpus.json", "labels.json", "ckpt-7.index"]
)
def test_foreign_files(corpora, one_device, tmp_path, name):
    (tmp_path / name).write_text('{"mine": true}\n')
    refused(tmp_path, name, corpora["own"], one_device)
    assert len(content(tmp_path)) == 1


def test_what_a_killed_start_leaves_is_no_hindrance(corpora, one_device, tmp_path):
    corpora["own"].vocabulary.save(str(tmp_path))
    train(change(RUN, train={"train_steps": 1}), corpora["own"], str(tmp_path), one_device)
    assert checkpoints.checkpoint_steps(str(tmp_path)) == [1]


def test_a_vocabulary_larger_than_the_model(corpora, one_device, tmp_path):
    config = change(RUN, model={"vocab_size": corpora["own"].vocab_size - 1})
    tmp_path.joinpath("run").mkdir()
    refused(tmp_path / "run", "vocab_size=11 is too small: .* has 12 tokens", corpora["own"], one_device, config)


def test_a_checkpoint_that_cannot_be_read_is_not_damaged(run, corpora, one_device):
    """A directory stands in for a file that the system does not let us read."""
    data = run / "ckpt-4.data-00000-of-00001"
    data.unlink()
    data.mkdir()
    refused(run, "ckpt-4.data.* is a directory, not a file: copy the checkpoint again", corpora["own"], one_device)
    with pytest.raises(InputError, match="is a directory"):
        model_dir.load_trained(str(run))


def poisoned(run, value):
    """The run's only checkpoint, with one weight that is not finite; the weight's path."""
    reader = tf.train.load_checkpoint(str(run / "ckpt-4"))
    names = [name for name in reader.get_variable_to_shape_map() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    trained = model_dir.load_trained(str(run))
    parts = {"model": checkpoints.variables_by_path(trained.model)}
    name = next(name for name in parts["model"] if "query_kernel" in name)
    weight = parts["model"][name]
    weight.assign(tf.tensor_scatter_nd_update(weight, [[0] * len(weight.shape)], [value]))
    others = {}
    for path in names:
        part, key, *_ = path.split("/")
        if part != "model" and part != "save_counter":
            key = key.replace(".S", "/").replace("..", ".")
            others.setdefault(part, {})[key] = tf.Variable(reader.get_tensor(path))
    tf.train.Checkpoint(**parts, **others).write(str(run / "ckpt-4"))
    return name


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(run, corpora, one_device, tmp_path, value):
    """They are named, whatever reads them: what loads a model, a continued run, and one that starts with them."""
    name = poisoned(run, value)
    match = rf"ckpt-4 has weights that are not finite \({name}\): use an earlier checkpoint"
    with pytest.raises(InputError, match=match):
        model_dir.load_trained(str(run))
    refused(run, match, corpora["own"], one_device)
    config = change(RUN, train={"warm_start": str(run)})
    (tmp_path / "other").mkdir()
    refused(tmp_path / "other", match, corpora["own"], one_device, config)


def test_a_run_without_a_good_step_has_no_result(corpora, one_device, tmp_path):
    """Weights that overflow in the first update: every later step is skipped, and the evaluation is not the best."""
    config = change(RUN, train={"train_steps": 6, "learning_rate": 1e30, "clip": 0.0, "save_steps": 3, "eval_steps": 2})
    with pytest.raises(InputError, match=r"stopped at step \d: .*(last \d steps had no finite|not finite)") as error:
        train(config, corpora["own"], str(tmp_path), one_device, lambda model: lambda progress: {"loss": 1.0})
    assert "\n" not in str(error.value)
    assert checkpoints.checkpoint_steps(str(tmp_path)) in ([], [2])
