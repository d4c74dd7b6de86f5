"""An XLNet's SavedModel in a fresh process that cannot import this package."""

import pathlib

import numpy as np
import processes
import pytest
import tensorflow as tf
from random_xlnet import random_xlnet

import txl_tf
from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.xlnet.encoder import Encoder
from txl_tf.inference.xlnet.fill_in import FillIn
from txl_tf.inference.xlnet.served_xlnet import ServedXLNet

pytestmark = pytest.mark.usefixtures("loaded_once")
LENGTHS = (32, 64)
TEXTS = ["the River ____ is", "____*2 the River, " + "the " * 20]
PAIRS = [("the River", ""), ("x 1,000,", "the " * 30)]

CLIENT = """
import sys
sys.modules["txl_tf"] = None  # importing it would fail
import numpy as np, tensorflow as tf, tensorflow_text
export_dir, results, *texts = sys.argv[1:]
model = tf.saved_model.load(export_dir).signatures
found = {}
for order in ("left_to_right", "right_to_left", "confident"):
    out = model["fill"](
        texts=tf.constant(texts[:2]), context=tf.constant("the"), order=tf.constant(order), beam_size=tf.constant(4),
        top=tf.constant(3), free=tf.constant(False))
    found |= {f"{order}_{key}": value for key, value in out.items()}
found |= {"score_" + key: value for key, value in model["score"](texts=tf.constant(texts[2:4])).items()}
out = model["encode"](texts=tf.constant(texts[2:4]), second=tf.constant(texts[4:]))
found |= {"encode_" + key: value for key, value in out.items()}
tokens = model["tokenize"](texts=tf.constant(texts[2:3]))["tokens"]
found["decoded"] = model["decode"](tokens=tokens)["texts"]
np.savez(results, **found)
"""


@pytest.fixture(scope="module")
def encoder(xlnet):
    return Encoder(*xlnet, jit_compile=False)


@pytest.fixture(scope="module")
def export_dir(xlnet, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("export") / "model")
    ServedXLNet(*xlnet, lengths=LENGTHS, jit_compile=False).save(folder)
    return folder


@pytest.fixture(scope="module")
def signatures(export_dir):
    """The signatures; the model lives as long as they are used."""
    model = tf.saved_model.load(export_dir)
    yield model.signatures


@pytest.fixture(scope="module")
def served(export_dir, tmp_path_factory):
    """The client's results."""
    folder = tmp_path_factory.mktemp("client")
    texts = [*TEXTS, *(a for a, _ in PAIRS), *(b for _, b in PAIRS)]
    done = processes.run(["-c", CLIENT, export_dir, folder / "results.npz", *texts], cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "results.npz", allow_pickle=True))


@pytest.mark.parametrize("order", ["left_to_right", "right_to_left", "confident"])
def test_fillings_equal_the_models(xlnet_fill_in, served, order):
    expected = xlnet_fill_in.fill(TEXTS, order=order, beam_size=4, top=3, context="the")
    for i, fillings in enumerate(expected):
        n = len(fillings[0].ids)
        assert served[f"{order}_tokens"][i, :, :n].tolist() == [filling.ids.tolist() for filling in fillings]
        assert (served[f"{order}_tokens"][i, :, n:] == -1).all()
        log_probs = [filling.log_probs for filling in fillings]
        np.testing.assert_allclose(served[f"{order}_log_probs"][i, :, :n], log_probs, rtol=0, atol=1e-4)
        totals = [filling.total for filling in fillings]
        np.testing.assert_allclose(served[f"{order}_total"][i], totals, rtol=0, atol=1e-4)
        texts = [text.decode() for text in served[f"{order}_texts"][i]]
        assert texts == [" ".join(filling.text.split()) for filling in fillings]


def test_scores_and_vectors_equal_the_models(encoder, xlnet_fill_in, served):
    for i, expected in enumerate(xlnet_fill_in.score([a for a, _ in PAIRS])):
        n = served["score_lengths"][i]
        assert served["score_tokens"][i, :n].tolist() == expected.ids.tolist()
        np.testing.assert_allclose(served["score_log_probs"][i, :n], expected.log_probs, rtol=0, atol=1e-4)
        assert not served["score_log_probs"][i, n:].any()
        assert served["score_total"][i] == pytest.approx(expected.total, abs=1e-3)
    expected = encoder(PAIRS)
    for i, n in enumerate(served["encode_lengths"]):
        assert served["encode_tokens"][i, :n].tolist() == expected.ids[i].tolist()
        np.testing.assert_allclose(served["encode_hidden"][i, :n], expected.hidden[i], rtol=0, atol=1e-4)
        assert not served["encode_hidden"][i, n:].any()
    for name, pool in [("pooled", "last"), ("first", "first"), ("mean", "mean")]:
        np.testing.assert_allclose(served[f"encode_{name}"], encoder(PAIRS, pool=pool).pooled, rtol=0, atol=1e-4)
    assert served["decoded"].tolist() == [b"the River"]


def test_a_table_has_the_models_results(encoder, xlnet_fill_in, export_dir):
    """BatchPredictor with the export; a text that is too long is a fault of its row."""
    texts = [*(a for a, _ in PAIRS), "the River " * 60, "the River one"]
    found = txl_tf.BatchPredictor(export_dir, ability="encode", pool="mean", batch_size=4)({"text": texts})
    good = [text for text, fault in zip(texts, found["fault"], strict=True) if fault is None]
    assert good == [texts[0], texts[1], texts[3]] and "a text has more than 64 tokens" in found["fault"][2]
    vectors = np.stack([one for one in found["vector"] if one is not None])
    np.testing.assert_allclose(vectors, encoder(good, pool="mean").pooled, atol=1e-4)
    scores = txl_tf.BatchPredictor(export_dir)({"text": good})["log_prob"]
    wanted = [one.total for one in xlnet_fill_in.score(good)]
    np.testing.assert_allclose(scores, wanted, atol=1e-3)


@pytest.mark.parametrize(("order", "context"), [("left_to_right", "the"), ("right_to_left", "")])
def test_candidates_equal_the_models(xlnet_fill_in, signatures, order, context):
    texts, candidates = ["the ____ is", "____ so"], ["River", "a dash", "the River one"]
    rows = [(text, candidate, context, order) for text in texts for candidate in candidates]
    given = dict(
        zip(("texts", "candidates", "context", "order"), map(tf.constant, zip(*rows, strict=True)), strict=True)
    )
    found = {name: value.numpy() for name, value in signatures["score_candidates"](**given).items()}
    own = xlnet_fill_in.fill(texts, candidates=candidates, order=order, context=context)
    for i, fillings in enumerate(own):
        for j, row in enumerate(np.argsort(-found["total"][3 * i : 3 * i + 3]) + 3 * i):
            n, filling = len(fillings[j].ids), fillings[j]
            assert found["tokens"][row, :n].tolist() == filling.ids.tolist() and (found["tokens"][row, n:] == -1).all()
            np.testing.assert_allclose(found["log_probs"][row, :n], filling.log_probs, rtol=0, atol=1e-4)
            assert not found["log_probs"][row, n:].any()
            assert found["total"][row] == pytest.approx(filling.total, abs=1e-4)
            assert found["texts"][row].decode() == " ".join(filling.text.split())
    for name, wrong, message in (
        ("texts", "____*2 is", "candidates are for a text with one blank"),
        ("texts", "____ is ____", "candidates are for a text with one blank"),
        ("texts", "is", "candidates are for a text with one blank"),
        ("candidates", " ", "a candidate is empty"),
        ("order", "confident", "order must be left_to_right or right_to_left"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signatures["score_candidates"](**given | {name: tf.constant([wrong] * 6)})


@pytest.mark.parametrize("order", ["right_to_left", "confident"])
def test_fillings_in_parts_are_those_of_one_call(signatures, order):
    settings = {"context": "the", "order": order, "beam_size": 4, "top": 3, "free": False}
    request = {name: tf.constant(value) for name, value in {"texts": [TEXTS[0], "____*4 so"], **settings}.items()}
    whole = signatures["fill"](**request)
    kept = {"kept_tokens": tf.zeros([2, 0, 0], tf.int32), "kept_log_probs": tf.zeros([2, 0, 0])}
    kept["kept_total"] = tf.zeros([2, 0])
    begin, steps = 0, 1
    while begin < steps:
        found = signatures["fill_part"](
            **request, begin=tf.constant(begin), end=tf.constant(begin + 1 + begin % 2), **kept
        )
        begin, steps, kept = begin + 1 + begin % 2, max(found["steps"].numpy()), {name: found[name] for name in kept}
    assert steps == 4
    for name, values in whole.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(("size", "at_once"), [(1, 1), (5, 4), (100, 16)])
def test_scores_in_parts_are_those_of_one_call(signatures, size, at_once):
    texts = tf.constant(["the River (one)", "", "so one"])
    whole = signatures["score"](texts=texts)
    count = int(tf.reduce_sum(whole["lengths"]))
    parts = [
        signatures["score_part"](
            texts=texts, begin=tf.constant(i), end=tf.constant(i + size), at_once=tf.constant(at_once)
        )
        for i in range(0, count, size)
    ]
    assert np.all(sum((part["log_probs"] != 0).numpy().astype(int) for part in parts) == (whole["log_probs"] != 0))
    np.testing.assert_allclose(sum(part["log_probs"] for part in parts), whole["log_probs"], rtol=0, atol=1e-5)


def test_wrong_requests_and_the_readme(xlnet, export_dir, signatures):
    assert b"_gradient_op_type" not in pathlib.Path(export_dir, "saved_model.pb").read_bytes()
    readme = (pathlib.Path(export_dir) / "README.md").read_text()
    assert "disable_meta_optimizer" in readme and 'load("model")' in readme and 'model["encode"]' in readme
    assert set(signatures) == {
        "encode",
        "fill",
        "fill_part",
        "score",
        "score_part",
        "score_candidates",
        "tokenize",
        "decode",
    }
    rows = {line.split(" | ")[0].strip("| "): line for line in readme.splitlines() if line.startswith("| ")}
    for name, function in signatures.items():
        row = rows[name] + (rows["fill"] if "as for `fill`" in rows[name] else "")
        assert all(f"{given}:" in row for given in function.structured_input_signature[1])
        assert all(given in row for given in function.structured_outputs)
    request = {"context": "", "order": "confident", "beam_size": 2, "top": 1, "free": True}
    for wrong, message in [
        ({"texts": ["the"]}, "a text has no blank"),
        ({"texts": ["____*0"]}, "a blank cannot have 0 tokens"),
        ({"texts": ["____" + " the" * 90]}, "more than 64 tokens"),
        ({"top": 3}, "top must be from 1 to beam_size"),
        ({"beam_size": 0}, "top must be from 1"),
        ({"order": "0,2"}, "order must be left_to_right"),
    ]:
        given = {"texts": ["the ____"], **request} | wrong
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signatures["fill"](**{name: tf.constant(value) for name, value in given.items()})
    with pytest.raises(tf.errors.InvalidArgumentError, match="second text"):
        signatures["encode"](texts=tf.constant(["a"]), second=tf.constant(["a", "b"]))
    with pytest.raises(InputError, match="not empty"):
        ServedXLNet(*xlnet, lengths=LENGTHS).save(export_dir)


@pytest.mark.slow
def test_a_vocabulary_without_special_tokens_has_no_encode(tmp_path):
    model = random_xlnet(n_layer=1)
    ServedXLNet(model, ByteVocabulary(), lengths=(32,)).save(str(tmp_path / "model"))
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    assert "encode" not in signatures
    readme = (tmp_path / "model" / "README.md").read_text()
    assert "| encode |" not in readme and 'model["encode"]' not in readme
    own = FillIn(model, ByteVocabulary(), jit_compile=False).score("a text")
    assert float(signatures["score"](texts=tf.constant(["a text"]))["total"][0]) == pytest.approx(own.total, abs=1e-3)
