"""The SavedModel in a fresh process that cannot import this package."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG

from txl_tf.errors import InputError
from txl_tf.inference.export import export

PROMPTS = ["", "wörter " * 12, "def f(x):"]

CLIENT = """
import sys
sys.modules["txl_tf"] = None  # importing it would fail
import numpy as np, tensorflow as tf
export_dir, results, *prompts = sys.argv[1:]
model = tf.saved_model.load(export_dir).signatures
generated = {
    str(temperature): model["generate"](
        prompts=tf.constant(prompts), max_tokens=tf.constant(40), temperature=tf.constant(temperature),
        top_k=tf.constant(50), top_p=tf.constant(0.9), seeds=tf.constant([1, 2, 3]))["texts"]
    for temperature in (0.0, 1.0)
}
scored = model["score"](texts=tf.constant(prompts))
cache = model["initial_cache"](batch_size=tf.constant(2))
tokens = np.random.default_rng(0).integers(0, 256, [2, 70]).astype(np.int32)
young, old = ({k: v[i : i + 1] for k, v in cache.items()} for i in range(2))
def step(tokens, cache):
    out = model["step"](tokens=tf.constant(tokens), **cache)
    return out.pop("log_probs"), out
before, old = step(tokens[1:, :66], old)  # a segment and single tokens
together = {k: tf.concat([young[k], old[k]], 0) for k in young}  # sessions of different age in one batch
after, _ = step(np.stack([tokens[0, :4], tokens[1, 66:]]), together)
scored = {"score_" + key: value for key, value in scored.items()}
np.savez(results, before=before, after=after, tokens=tokens, **generated, **scored)
"""


@pytest.fixture(scope="module")
def served(byte_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    export(byte_model.generator, byte_model.vocabulary, str(folder / "model"), "byte")
    command = [sys.executable, "-c", CLIENT, str(folder / "model"), str(folder / "results.npz"), *PROMPTS]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)
    return np.load(folder / "results.npz", allow_pickle=True)


@pytest.mark.parametrize("temperature", ["0.0", "1.0"])
def test_generate_equals_the_model(byte_model, served, temperature):
    expected = byte_model.generate(PROMPTS, 40, temperature=float(temperature), top_k=50, top_p=0.9, seed=[1, 2, 3])
    assert [text.decode("utf-8", "replace") for text in served[temperature]] == expected


def test_score_equals_the_model(byte_model, served):
    for i, expected in enumerate(byte_model.score(PROMPTS)):
        n = served["score_lengths"][i]
        np.testing.assert_array_equal(served["score_tokens"][i, :n], expected.ids)
        np.testing.assert_allclose(served["score_log_probs"][i, :n], expected.log_probs, rtol=0, atol=1e-5)
        assert not served["score_log_probs"][i, n:].any()
        assert served["score_total"][i] == pytest.approx(expected.total, abs=1e-3)


def test_sessions_of_different_age_share_a_step(byte_model, served):
    model, reach = byte_model.model, byte_model.generator.decoder.reach
    hidden, _ = model(served["tokens"][1:], reach=reach)
    whole = model.log_prob(hidden)[0]
    np.testing.assert_allclose(served["before"][0], whole[:66], rtol=0, atol=1e-4)
    np.testing.assert_allclose(served["after"][1], whole[66:], rtol=0, atol=1e-4)
    hidden, _ = model(served["tokens"][:1, :4], reach=reach)
    np.testing.assert_allclose(served["after"][0], model.log_prob(hidden)[0], rtol=0, atol=1e-4)


def test_the_signatures_say_what_they_take(byte_model, tmp_path):
    export(byte_model.generator, byte_model.vocabulary, str(tmp_path / "model"), "byte")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    arguments = {name: set(signature.structured_input_signature[1]) for name, signature in signatures.items()}
    assert arguments == {
        "generate": {"prompts", "max_tokens", "temperature", "top_k", "top_p", "seeds"},
        "score": {"texts"},
        "initial_cache": {"batch_size"},
        "step": {"tokens", "keys", "values", "length"},
    }
    keys = signatures["step"].structured_outputs["keys"]
    assert keys.shape.as_list() == [None, CONFIG.n_layer, CONFIG.n_head, CONFIG.mem_len, CONFIG.d_head]
    readme = (tmp_path / "model" / "README.md").read_text()
    assert all(f"| {name} |" in readme for name in arguments)
    with pytest.raises(tf.errors.InvalidArgumentError, match="one seed for each prompt"):
        signatures["generate"](
            prompts=tf.constant(["a", "b"]),
            max_tokens=tf.constant(1),
            temperature=tf.constant(1.0),
            top_k=tf.constant(0),
            top_p=tf.constant(1.0),
            seeds=tf.constant([1]),
        )
    with pytest.raises(InputError, match="not empty"):
        export(byte_model.generator, byte_model.vocabulary, str(tmp_path / "model"), "byte")
