"""XLNets that continue texts, against tests/reference_xlnet.py with the mask of a left-to-right order."""

import itertools

import numpy as np
import processes
import pytest
import reference_xlnet as reference
import tensorflow as tf
from processes import ROOT
from random_xlnet import with_prefix, write_model_dir
from xlnet_models import make_model, weights_of

import txl_tf
from txl_tf.data.vocabularies import CharVocabulary, XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.inference.causal.left_to_right import LeftToRightXLNet
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.runs.model_dir import load_trained

LETTERS = "abcdefghi ."
TEXT = "abacdae. b gi" * 3


def continuation(weights, mem_len, mem_init="empty", clamp_len=-1, jit_compile=False):
    reach = Reach(mem_len, clamp_len, same_length=True, mem_init=mem_init)
    return LeftToRightXLNet(make_model(weights, mem_len=mem_len), CharVocabulary(LETTERS), reach, jit_compile)


def read_at_once(weights, ids):
    """Log-probabilities of all tokens but the first: all are targets of one segment, in the order of the text."""
    n = len(ids)
    visible = reference.permutation_visible(np.arange(n), np.full(n, reference.TARGET))
    streams = reference.xlnet(weights, ids, visible=visible, targets=range(n), activation=reference.gelu_tanh)
    return reference.log_probs(weights, streams.output)[np.arange(1, n), ids[1:]]


def rows_one_by_one(weights, ids, mem_len, mem_init, clamp_len):
    """Log-probabilities [n - 1, V] of each next token with a memory.

    Each segment is a token, which is remembered, and the next, which is predicted and which nothing sees.
    """
    d_model = weights["embedding"].shape[1]
    slots = mem_len if mem_init == "zeros" else 0
    memory, found = [np.zeros([slots, d_model])] * len(weights["layers"]), []
    visible = reference.permutation_visible([0, 1], [reference.TARGET] * 2)
    for pair in itertools.pairwise(ids):
        streams = reference.xlnet(
            weights, pair, memory, visible=visible, targets=[1], clamp_len=clamp_len, mem_len=mem_len, reuse_len=1
        )
        memory = streams.memory
        found.append(reference.log_probs(weights, streams.output[0]))
    return np.array(found)


@pytest.fixture(scope="module")
def weights():
    return reference.random_weights(np.random.default_rng(5), vocab_size=len(LETTERS))


def cached(model, text):
    """The log-probabilities of a text's tokens after the first, read token by token from a cache."""
    ids = np.array(model.vocabulary.encode(text), np.int32)
    log_probs, _ = model.generator.read(tf.constant(ids[None]), model.generator.begin(1).cache)
    return log_probs.numpy()[0, np.arange(len(ids) - 1), ids[1:]], ids


def test_a_text_that_fits_into_memory_is_one_segment_of_the_reference(weights):
    model = continuation(weights, mem_len=64)
    found, ids = cached(model, TEXT)
    np.testing.assert_allclose(found, read_at_once(weights, ids), atol=1e-6)
    scored = model.score(TEXT).log_probs  # in segments, after the start token
    np.testing.assert_allclose(scored, read_at_once(weights, np.append(model.vocabulary.start_token, ids)), atol=1e-9)


@pytest.mark.parametrize("mem_init, clamp_len", [("zeros", -1), ("empty", 3)])
@pytest.mark.parametrize("untie_r", [True, False])
def test_a_longer_text_is_read_with_memory(mem_init, clamp_len, untie_r):
    weights = reference.random_weights(np.random.default_rng(6), vocab_size=len(LETTERS), untie_r=untie_r)
    model = continuation(weights, 5, mem_init, clamp_len)
    found, ids = cached(model, TEXT)
    expected = rows_one_by_one(weights, ids, 5, mem_init, clamp_len)[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A model_dir with an XLNet over eleven letters."""
    path = tmp_path_factory.mktemp("left_to_right")
    write_model_dir(path, CharVocabulary(LETTERS), activation="gelu_tanh")
    return str(path)


def run(*flags):
    return processes.run(["scripts/generate.py", *flags], cwd=ROOT)


def test_the_command_continues_a_text_as_the_reference_does(model_dir):
    """With the memory of the run, 8 slots of zeros; it says that the model was not trained for this."""
    done = run(f"--model_dir={model_dir}", "--prompt=abc ", "--max_tokens=12", "--temperature=0")
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr == "an XLNet is trained to fill gaps, not to continue texts: this text may soon make little sense\n"
    )
    model = txl_tf.load(model_dir, jit_compile=False, progress=False)
    weights, text = weights_of(model.network), done.stdout.removesuffix("\n")
    ids = np.array(model.vocabulary.encode(text))
    assert text.startswith("abc ") and len(ids) == 16
    assert rows_one_by_one(weights, ids, 8, "zeros", -1)[3:].argmax(axis=1).tolist() == ids[4:].tolist()
    assert model.generate("abc ", max_tokens=12, temperature=0) == text[4:]


def test_a_space_at_the_end_of_a_prompt_is_said_for_pieces_of_words(tmp_path):
    write_model_dir(tmp_path, with_prefix(XLNetVocabulary))
    (tmp_path / "p.jsonl").write_text('"the River "\n"the River"\n')
    done = run(f"--model_dir={tmp_path}", f"--prompts_jsonl={tmp_path}/p.jsonl", "--max_tokens=1")
    assert done.returncode == 0 and "\n1 prompt ends in a space: the text goes on better without" in done.stderr


def test_samples_and_beams_of_the_command_are_those_of_python(model_dir):
    model = LeftToRightXLNet.of(load_trained(model_dir), jit_compile=False, mem_len=6)
    flags = [f"--model_dir={model_dir}", "--prompt=ab", "--max_tokens=9", "--mem_len=6"]
    assert run(*flags, "--top_k=4", "--seed=3").stdout == f"ab{model.generate('ab', 9, seed=3, top_k=4)}\n"
    found = model.search("ab", 9, beam_size=2)
    assert run(*flags, "--beam_size=2").stdout == f"ab{found[0].text}\n"
    assert found[0].total == pytest.approx(cached(model, "ab" + found[0].text)[0][1:].sum(), abs=1e-5)


@pytest.mark.slow
def test_an_export_continues_a_text_as_the_command_does(model_dir, tmp_path):
    flags = ("--prompt=abc d", "--max_tokens=30", "--seed=2")
    export = [f"--model_dir={model_dir}", f"--export_dir={tmp_path / 'export'}", "--mem_len=5", "--nojit_compile"]
    done = processes.run(["scripts/export_savedmodel.py", *export], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for temperature in ("--temperature=0", "--temperature=0.9"):
        expected = run(f"--model_dir={model_dir}", "--mem_len=5", *flags, temperature)
        command = ["scripts/continue_savedmodel.py", f"--export_dir={tmp_path / 'export'}", *flags, temperature]
        assert processes.run(command, cwd=ROOT).stdout == expected.stdout != ""
    done = processes.run(["scripts/export_savedmodel.py", *export[:1], "--export_dir=x", "--nosame_length"], cwd=ROOT)
    assert done.returncode == 1 and "error: --same_length: not for an XLNet" in done.stderr


def test_settings_that_an_xlnet_does_not_have_get_one_line(model_dir):
    for flag, message in (
        ("--nosame_length", "error: --same_length: not for an XLNet, which reads each token with the memory before it"),
        ("--quantize=int8", "holds an XLNet: quantize is for Transformer-XL alone"),
    ):
        done = run(f"--model_dir={model_dir}", "--prompt=a", flag)
        assert done.returncode == 1 and message in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    with pytest.raises(InputError, match="mem_len=-1"):
        LeftToRightXLNet.of(load_trained(model_dir), mem_len=-1)
