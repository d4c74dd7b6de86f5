"""`import txl_tf`: one object for every kind of model, which does what the classes below it do."""

import contextlib
import importlib
import inspect
import json
import os
import pathlib
import pydoc
import re
import subprocess
import sys

import bigram
import numpy as np
import pandas
import pytest
import random_xlnet
import tuned_models
from small_run import change

import txl_tf
from txl_tf import families
from txl_tf.api import BATCH
from txl_tf.errors import InputError
from txl_tf.inference.tasks.predictor import Predictor
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.settings.run import DataConfig, TrainConfig
from txl_tf.training.loop import train

TRAINED = pathlib.Path(__file__).parent / "model_dir_ce09e14"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The model_dirs of a classifier and of a model with scores."""
    folder = tmp_path_factory.mktemp("tuned")
    tuned_models.write_model_dir(folder / "classification", "classification", ("bad", "good"))
    tuned_models.write_model_dir(folder / "regression", "regression")
    return folder


@pytest.fixture(scope="module")
def causal():
    return txl_tf.load(str(TRAINED / "plain"), jit_compile=False, progress=False)


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xlnet")
    random_xlnet.write_model_dir(folder, random_xlnet.with_prefix())
    return txl_tf.load(str(folder), progress=False)


def test_importing_it_loads_no_tensorflow_and_names_what_there_is():
    code = (
        "import sys, txl_tf; assert {'load', 'Model', 'InputError'} <= set(txl_tf.__all__) and txl_tf.InputError; "
        "assert not hasattr(txl_tf, 'lode'); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_python_programs_show_no_lines_of_libraries():
    """Many models, for whose programs TensorFlow gives advice, by a logger that it makes while one is loaded."""
    code = f"import txl_tf\nfor _ in range(5): txl_tf.load({str(TRAINED / 'plain')!r}, jit_compile=False).score('a')"
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("use", [use for name in families._FAMILIES for use in families._FAMILIES[name].tasks])
def test_every_registered_ability_is_there(use):
    for ability, named in use.abilities.items():
        module, _, name = named.partition(":")
        assert callable(getattr(importlib.import_module(f"txl_tf.inference.{module}"), name).of)
        assert inspect.getdoc(getattr(txl_tf.Model, ability))


def test_a_language_model_gives_what_the_commands_of_an_older_version_gave(causal):
    """Texts, scores and losses that commit ce09e14 recorded."""
    expected = json.loads((TRAINED / "expected.json").read_text())["plain"]
    for name, options in (("greedy", {"temperature": 0.0}), ("seed_3", {"seed": 3})):
        text = causal.generate("the quick ", 40, **options)
        assert f"the quick {text}\n" == expected["generate"][name]
        assert causal.generate(["the quick "], 40, **options) == [text]
    texts = causal.generate(["the quick "] * (BATCH + 1), 8)
    assert texts[BATCH] == causal.generate("the quick ", 8, seed=BATCH) != texts[0]
    for line in expected["score"]:
        score = causal.score(line["text"])
        assert score.ids.tolist() == line["ids"] and score.total == pytest.approx(line["total"], rel=1e-4)
    found = causal.evaluate(str(TRAINED / "corpus"))
    wanted = expected["evaluate"]
    assert (found["loss"], found["bpc"]) == pytest.approx((wanted["loss"], wanted["bpc"]), rel=1e-4)
    assert all(found[name] == wanted[name] for name in ("split", "tokens", "mem_len", "step", "weights"))


def test_many_texts_are_those_one_by_one(causal):
    """More than are computed at a time."""
    texts = [f"the {number} dogs"[: 3 + number] for number in range(2 * txl_tf.api.BATCH + 1)]
    scores = causal.score(texts)
    assert len(scores) == len(texts) and causal.score([]) == []
    for place in (0, 17, 32):
        assert scores[place].total == pytest.approx(causal.score(texts[place]).total, rel=1e-5)


@pytest.mark.slow
def test_settings_of_evaluation_are_those_of_generation_too(causal):
    """Another memory gives another loss, and another text after a prompt that is longer than it."""
    other = txl_tf.load(str(TRAINED / "plain"), jit_compile=False, progress=False, mem_len=1, batch_size=2)
    found, usual = (model.evaluate(str(TRAINED / "corpus"), "valid") for model in (other, causal))
    assert (found["mem_len"], found["batch_size"], usual["mem_len"]) == (1, 2, 12)
    assert abs(found["loss"] - usual["loss"]) > 1e-3
    assert abs(other.score("the brown dog is lazy").total - causal.score("the brown dog is lazy").total) > 1e-3


def test_rounded_weights_and_another_precision_change_little(causal):
    usual = causal.evaluate(str(TRAINED / "corpus"))["loss"]
    for settings in ({"quantize": "int8"}, {"dtype": "mixed_bfloat16"}):
        other = txl_tf.load(str(TRAINED / "plain"), jit_compile=False, progress=False, **settings)
        assert 0 < abs(other.evaluate(str(TRAINED / "corpus"))["loss"] / usual - 1) < 5e-3
    for wrong in ({"quantize": "int4"}, {"dtype": "half"}):
        ((name, value),) = wrong.items()
        with pytest.raises(txl_tf.InputError, match=f"{name}='{value}' must be one of None, "):
            txl_tf.load(str(TRAINED / "plain"), **wrong)


def test_an_xlnet_is_not_rounded(xlnet):
    with pytest.raises(txl_tf.InputError, match="holds an XLNet: quantize is for Transformer-XL alone"):
        txl_tf.load(xlnet.trained.model_dir, quantize="int8")


@pytest.mark.slow
def test_an_xlnet_fills_scores_and_encodes(xlnet):
    model = FillIn(xlnet.network, xlnet.vocabulary, jit_compile=False)
    text = "the ____ so"
    assert [filling.text for filling in xlnet.fill(text, top=3)] == [one.text for one in model.fill(text, top=3)]
    assert len(xlnet.fill([text, "____ a"], beam_size=2)) == 2
    with_context = xlnet.score("the dash", context="River")
    assert with_context.total == pytest.approx(model.score("the dash", "River").total, rel=1e-6)
    encoded = xlnet.encode(["the dash", ("the", "so")], pool="mean", batch_size=1)
    other = Encoder(xlnet.network, xlnet.vocabulary, jit_compile=False)(["the dash", ("the", "so")], pool="mean")
    np.testing.assert_allclose(encoded.pooled, other.pooled, rtol=1e-5, atol=1e-6)


def test_a_fine_tuned_model_classifies_predicts_and_is_evaluated(tuned, tmp_path):
    model = txl_tf.load(str(tuned / "classification"), progress=False)
    texts = ["the River", ("so", "a dash")]
    found = model.classify(texts)
    assert found == model.predict(texts) and model.classify("the River")["label"] == found[0]["label"]
    assert found == Predictor.load(str(tuned / "classification")).predict(texts)
    table = tmp_path / "table.tsv"
    labels = ["good" if model.classify(text)["label"] == "good" else "bad" for text in ("the River", "so a dash")]
    table.write_text(f"text\tlabel\nthe River\t{labels[0]}\nso a dash\t{labels[1]}\n")
    result = model.evaluate(str(table))
    assert (result["accuracy"], result["examples"], result["step"]) == (1.0, 2, 0)
    probabilities = [model.classify(text)["probability"] for text in ("the River", "so a dash")]
    assert result["loss"] == pytest.approx(-np.mean(np.log(probabilities)), rel=1e-5)


def test_tables_of_python_and_files(tuned, tmp_path, monkeypatch):
    """A DataFrame gives a DataFrame, a dict names the columns, and a file's name is not taken for a text."""
    model = txl_tf.load(str(tuned / "classification"), progress=False)
    texts, columns = ["the River", "so a dash", "one"], {"text": "message", "label": "team"}
    lists = {"id": [7, 8, 9], "message": texts, "team": ["good", "bad", "good"], "prediction": [0, 0, 0]}
    frame = pandas.DataFrame(lists, index=[4, 5, 6])
    found, wanted = model.predict(frame, columns), model.predict(texts)
    assert list(found.columns) == [*lists, "prediction_2", "probability"] and list(found.index) == [4, 5, 6]
    assert found["prediction_2"].tolist() == [one["label"] for one in wanted] and list(frame.columns) == list(lists)
    assert found["probability"].tolist() == pytest.approx([one["probability"] for one in wanted])
    gap = model.predict(frame.assign(message=["the River", "", "one"]), columns | {"skip_empty": True})
    assert gap["prediction_2"].isna().tolist() == [False, True, False]
    assert gap["prediction_2"].iloc[2] == wanted[2]["label"]
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    tables = (str(path), frame, lists, frame.to_dict("records"))
    results = [model.evaluate(table, columns=columns) for table in tables]
    assert results[0]["examples"] == 3 and all(result == results[0] for result in results)
    assert model.predict_file(str(path), {"text": "message"}) == wanted
    monkeypatch.chdir(tmp_path)
    scores = txl_tf.load(str(tuned / "regression"), progress=False)
    for ask, message in (
        (lambda: model.predict("t.csv"), r"'t\.csv' is a file here.*did you mean predict_file\('t\.csv'\)"),
        (lambda: model.classify(["t.csv"]), "is a file here"),
        (lambda: model.predict(frame), "the table has no column 'text' but 'id', 'message'"),
        (lambda: model.predict(texts, columns), "columns are for a DataFrame, and these inputs are none"),
        (lambda: model.predict(frame, {"texts": "message"}), "columns has no 'texts': give text, text_b or label"),
        (lambda: model.evaluate({"text": ["a"], "label": []}), "must be equally long, and have 'text' 1, 'label' 0"),
        (lambda: model.evaluate(3), "give a file, a DataFrame"),
        (lambda: scores.evaluate([{"text": "a", "label": "x"}]), "the table, row 1 has the label 'x', which is not a"),
        (
            lambda: model.evaluate(pandas.DataFrame({"text": ["a", None], "label": ["good", "bad"]})),
            "row 2 has no text",
        ),
    ):
        with pytest.raises(InputError, match=message):
            ask()
    assert model.predict([("t.csv", "")])[0]["label"] in ("bad", "good")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (3, "give a text or a list of texts, not 3$"),
        ({"text": "a"}, "give a text or a list of texts, not {'text'"),
        (b"abc", "give a text or a list of texts, not b'abc'"),
        (["a", 3], "text 2 is 3, not a string"),
        ([None], "text 1 is None, not a string"),
    ],
)
def test_what_is_no_text_is_one_line(causal, texts, message):
    for ask in (causal.generate, causal.score):
        with pytest.raises(InputError, match=message):
            ask(texts)


def test_what_a_model_does_not_do_is_one_line_that_says_which_do(causal, xlnet, tuned):
    regression = txl_tf.load(str(tuned / "regression"), progress=False)
    assert regression.abilities == ("predict", "predict_file", "evaluate") and xlnet.abilities == (
        "fill",
        "score",
        "encode",
        "generate",
        "evaluate",
    )
    assert "Transformer-XL, causal_lm, step 200; generate, score, evaluate>" in repr(causal)
    for ask, message in (
        (
            lambda: causal.fill("a ____"),
            "for causal_lm, which does not fill, but can generate, score, evaluate",
        ),
        (lambda: causal.encode("a"), "does not encode.* give a model of XLNet for permutation_lm$"),
        (
            lambda: regression.generate("a"),
            "does not generate.* of Transformer-XL for causal_lm or XLNet for permutation",
        ),
        (lambda: xlnet.classify("a"), "does not classify.* give a model of XLNet for classification$"),
        (
            lambda: regression.classify("a"),
            "of XLNet for regression, which does not classify, but can predict, predict_file",
        ),
        (lambda: regression.evaluate("a.tsv", "test"), "split='test' names a part of a corpus"),
        (lambda: txl_tf.load(str(tuned)), "has no config.json"),
        (
            lambda: txl_tf.load(str(tuned / "regression"), "newest"),
            "checkpoint='newest' must be one of None, 'latest', 'best'",
        ),
        (lambda: txl_tf.load(str(TRAINED / "plain"), mem_length=3), "unknown keys .'mem_length'.; known are"),
        (lambda: causal.evaluate(str(TRAINED / "nothing")), "nothing/manifest.json not found"),
    ):
        with pytest.raises(InputError, match=message):
            ask()


@pytest.mark.slow
def test_a_family_that_registers_nothing_is_evaluated(corpus, tmp_path, one_device, monkeypatch):
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
    families.register(bigram.FAMILY)
    config = bigram.BigramRunConfig(bigram.BigramConfig(), DataConfig(batch_size=4, tgt_len=8), TrainConfig())
    config = change(config, train={"train_steps": 2, "steps_per_loop": 2, "jit_compile": False})
    train(config, corpus, str(tmp_path), one_device)
    model = txl_tf.load(str(tmp_path), progress=False)
    assert model.abilities == ("evaluate",) and model.evaluate(corpus.data_dir)["order"] == 2
    with pytest.raises(InputError, match="of bigram table for next_token, which does not generate, but can evaluate"):
        model.generate("a")


def test_what_takes_long_reports_how_much_is_done(causal, monkeypatch):
    seen = []

    @contextlib.contextmanager
    def reported(title, unit, shown):
        yield lambda done, total: seen.append((title, done, total))

    monkeypatch.setattr(txl_tf.api, "reported", reported)
    causal.generate("the quick ", 40)
    assert seen[-1] == ("generating", 40, 40) and [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


@pytest.mark.parametrize("keras_comes_first", [False, True])
def test_another_backend_of_keras_in_the_environment(keras_comes_first):
    code = f"import os, sys, types; os.environ['KERAS_BACKEND'] = 'jax'\nlm = {str(TRAINED / 'plain')!r}\n"
    if keras_comes_first:
        code += "config = types.SimpleNamespace(backend=lambda: 'jax')\n"
        code += "sys.modules['keras'] = types.SimpleNamespace(config=config)\n"
    code += "import txl_tf; print(txl_tf.load(lm))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ("Transformer-XL" in done.stdout) != keras_comes_first, done.stderr
    said = "ImportError: txl_tf needs Keras on TensorFlow, and Keras was imported on jax: import txl_tf before it\n"
    assert done.stderr.endswith(said) == keras_comes_first


def test_everything_that_is_exported_is_there_and_help_fits_two_screens():
    exported = {name for names in txl_tf._HOMES.values() for name in names}
    assert sorted(exported) == txl_tf.__all__ and all(getattr(txl_tf, name) for name in exported)
    text = pydoc.plain(pydoc.render_doc(txl_tf))
    assert len(text.splitlines()) <= 2 * 40
    assert all(re.search(rf"\b{name}\b", text) for name in exported) and txl_tf.__version__ in text
    with pytest.raises(AttributeError, match="has no attribute 'families_of'"):
        _ = txl_tf.families_of


def test_one_version_everywhere():
    root = pathlib.Path(__file__).parents[1]
    for name, pattern in (
        ("pyproject.toml", r'^version = "(.*)"'),
        ("CITATION.cff", "^version: (.*)"),
        ("CHANGELOG.md", r"^## (\d+\.\d+\.\d+)"),
    ):
        assert re.search(pattern, (root / name).read_text(), re.MULTILINE)[1] == txl_tf.__version__, name
