"""An XLNet's SavedModel continues texts, in a fresh process that cannot import this package."""

import pathlib

import numpy as np
import processes
import pytest
import tensorflow as tf

from txl_tf.inference.causal import sampling_settings

PROMPTS = ["the River is", "x 1,000," + " so one" * 40]
CLIENT = """
import json, sys
sys.modules["txl_tf"] = None  # importing it would fail
import numpy as np, tensorflow as tf, tensorflow_text
export_dir, results, *prompts = sys.argv[1:]
model = tf.saved_model.load(export_dir).signatures
settings = {one["name"]: one["default"] for one in json.load(open(export_dir + "/sampling.json"))}
found = {}
for temperature in (0.0, 1.0):
    given = {"max_tokens": 20, "seeds": [3, 4], **settings, "temperature": temperature}
    given = {name: tf.constant(value) for name, value in given.items()}
    out = model["generate"](prompts=tf.constant(prompts), stop=tf.constant([], tf.string), **given)
    found[str(temperature)] = out["texts"]
cache = nothing = model["initial_cache"](batch_size=tf.constant(1))
tokens = read = model["tokenize"](texts=tf.constant(prompts[:1]))["tokens"]
given |= {"max_tokens": tf.constant(10), "seeds": tf.constant([3])}
written = []
for _ in range(2):  # piece by piece, as a server does
    cache = model["write"](tokens=read, **given, **cache)
    written.append(cache.pop("made"))
    read = written[-1][:, -1:]
found["written"] = model["decode_after"](tokens=tf.concat(written, 1), after=tf.constant(prompts[:1]))["texts"]
found["step"] = model["step"](tokens=tokens, **nothing)["log_probs"]
np.savez(results, signatures=sorted(model), **found)
"""


@pytest.fixture(scope="module")
def found(xlnet_export, tmp_path_factory):
    """The client's results."""
    folder = tmp_path_factory.mktemp("client")
    done = processes.run(["-c", CLIENT, xlnet_export, folder / "results.npz", *PROMPTS], cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "results.npz", allow_pickle=True))


@pytest.mark.parametrize("temperature", ["0.0", "1.0"])
def test_texts_are_those_of_the_model(xlnet_continuation, found, temperature):
    expected = xlnet_continuation.generate(PROMPTS, 20, seed=[3, 4], temperature=float(temperature))
    assert [text.decode() for text in found[temperature]] == expected


def test_pieces_are_a_text_and_steps_give_its_probabilities(xlnet_continuation, found):
    assert found["written"][0] == found["1.0"][0] and len(set(found["1.0"][0])) > 3
    ids = tf.constant([xlnet_continuation.vocabulary.encode(PROMPTS[0])], tf.int32)
    log_probs, _ = xlnet_continuation.generator.read(ids, xlnet_continuation.generator.begin(1).cache)
    np.testing.assert_allclose(found["step"], log_probs, rtol=0, atol=1e-5)


def test_the_readme_has_all_signatures_and_says_what_to_expect(xlnet_export, found):
    assert b"_gradient_op_type" not in pathlib.Path(xlnet_export, "saved_model.pb").read_bytes()
    readme = (xlnet_export / "README.md").read_text()
    assert "trained to fill gaps, not to continue texts" in readme and "remember the last 8." in readme
    assert len(found["signatures"]) == 14
    assert all(f"| {name} |" in readme for name in (*found["signatures"], *sampling_settings.names()))
    assert (xlnet_export / "sampling.json").read_text() == sampling_settings.to_json()
