"""One more setting of sampling is a flag, an argument, an input, a field of requests, a line of a README."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, random_model

from serving.errors import RequestError
from serving.service import Service
from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.served_causal import ServedCausal

ROOT = pathlib.Path(__file__).parents[3]

ADDED = """
import sys
from txl_tf.inference.causal import sampling_settings

def below(logits, seen, vocab):
    return sampling_settings.tf.where(sampling_settings.tf.range(logits.shape[-1]) < vocab, logits, -float("inf"))

sampling_settings.SETTINGS += (
    sampling_settings.Setting(
        "below", default=256, low=1, high=256, help="choose only ids below this one", transform=below
    ),
)
"""

HELP = """
import runpy
sys.argv = ["scripts/generate.py", *sys.argv[1:]]
sys.path.insert(0, "scripts")
try:
    runpy.run_path("scripts/generate.py", run_name="__main__")
finally:
    assert "tensorflow" not in sys.modules, "--help and wrong flags must not wait for TensorFlow"
"""


def generate_script(*flags):
    """What scripts/generate.py says, with one sampler more."""
    done = subprocess.run([sys.executable, "-c", ADDED + HELP, *flags], cwd=ROOT, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.fixture
def added(monkeypatch):
    """The description with one entry more: only ids below a number."""
    monkeypatch.setattr(sampling_settings, "SETTINGS", sampling_settings.SETTINGS)
    exec(ADDED, {})


@pytest.mark.slow
def test_a_sampler_is_one_entry(added, tmp_path):
    assert sampling_settings.names()[-1] == "below"
    model = LanguageModel(random_model(CONFIG), ByteVocabulary())
    text = model.generate("x", 30, seed=1, below=100)
    assert max(text.encode()) < 100 <= max(model.generate("x", 30, seed=1).encode())
    assert "".join(model.stream("x", 30, seed=1, below=100)) == text
    with pytest.raises(InputError, match="below=0 must be at least 1 and at most 256; choose only ids below"):
        model.generate("x", 30, below=0)

    export_dir = tmp_path / "model"
    ServedCausal(model.generator, model.vocabulary).save(str(export_dir))
    generate = tf.saved_model.load(str(export_dir)).signatures["generate"]
    inputs = generate.structured_input_signature[1]
    assert {"prompts", "max_tokens", "seeds", "stop", *sampling_settings.names()} == set(inputs)
    assert (inputs["below"].dtype, inputs["below"].shape) == (tf.int32, [])
    request = {name: tf.constant(value) for name, value in sampling_settings.checked({"below": 100}).items()}
    request |= {"prompts": tf.constant(["x"]), "max_tokens": tf.constant(30), "seeds": tf.constant([1])}
    request["stop"] = tf.constant([], tf.string)
    assert generate(**request)["texts"].numpy()[0].decode() == text
    with pytest.raises(tf.errors.InvalidArgumentError, match="below must be at least 1 and at most 256"):
        generate(**request | {"below": tf.constant(300)})

    assert (
        "| below | int | at least 1 and at most 256 | 256 | choose only ids" in (export_dir / "README.md").read_text()
    )
    described = json.loads((export_dir / "sampling.json").read_text())
    assert [setting["name"] for setting in described] == list(sampling_settings.names())

    served = Service(str(export_dir)).generation
    assert served.draft({"below": 7}, ["x"], [1], most=1, wants_texts=False).options["below"] == 7
    assert set(served.draft({}, ["x"], [1], most=1, wants_texts=False).options) == set(sampling_settings.names())
    with pytest.raises(RequestError, match="below must be at least 1 and at most 256"):
        served.draft({"below": 0}, ["x"], [1], most=1, wants_texts=False)


def test_a_sampler_is_a_flag_before_tensorflow_loads():
    text = generate_script("--help")
    assert "AssertionError" not in text
    for name in (*sampling_settings.names(), "below"):
        assert f"  --{name}: " in text
    joined = " ".join(text.split())
    for setting in sampling_settings.SETTINGS:
        assert f"{setting.help} ({setting.range}) (default: '{setting.default}')" in joined
    assert "choose only ids below this one (at least 1 and at most 256) (default: '256')" in joined
    for wrong in ("--below=0", "--top_p=nan", "--temperature=inf", "--min_p=1.5", "--top_k=-1"):
        found = generate_script("--model_dir=/nowhere", "--prompt=a", wrong)
        name = wrong.removeprefix("--").partition("=")[0]
        assert f"{name}=" in found and " must be " in found and "Traceback" not in found, found


def test_the_description_travels_as_json():
    for described, setting in zip(json.loads(sampling_settings.to_json()), sampling_settings.SETTINGS, strict=True):
        assert described["type"] == setting.kind.__name__ == type(described["default"]).__name__
        assert described["name"] == setting.name and described["range"] == setting.range
        bounds = [setting.low, np.inf if setting.high is None else setting.high]
        assert [described["low"], np.inf if described["high"] is None else described["high"]] == bounds
