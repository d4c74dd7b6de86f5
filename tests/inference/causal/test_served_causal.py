"""The SavedModel in a fresh process that cannot import this package."""

import codecs
import contextlib
import dataclasses
import json
import pathlib
import urllib.request

import numpy as np
import processes
import pytest
import server
import tensorflow as tf
from random_model import CONFIG, random_model

from txl_tf.data.vocabularies import ByteVocabulary, SubwordVocabulary, WordVocabulary
from txl_tf.data.vocabularies.subword_training import train
from txl_tf.errors import InputError
from txl_tf.inference.causal import sampling_settings
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.served_causal import ServedCausal
from txl_tf.inference.generation.generator import Generator
from txl_tf.ops import platform
from txl_tf.storage.files import complete_directory

ON_CPU = platform.program().target == "cpu"

LIMITS = {"top_k": 50, "top_p": 0.9, "repetition_penalty": 1.2, "min_p": 0.01, "typical_p": 0.95}
PROMPTS = ["", "wörter " * 12, "def f(x):"]

CLIENT = """
import sys
sys.modules["txl_tf"] = None  # importing it would fail
import numpy as np, tensorflow as tf
export_dir, results, *prompts = sys.argv[1:]
model = tf.saved_model.load(export_dir).signatures
limits = dict(top_k=tf.constant(50), top_p=tf.constant(0.9), repetition_penalty=tf.constant(1.2),
              min_p=tf.constant(0.01), typical_p=tf.constant(0.95))
generated = {
    str(temperature): model["generate"](
        prompts=tf.constant(prompts), max_tokens=tf.constant(40), temperature=tf.constant(temperature),
        stop=tf.constant([], tf.string), seeds=tf.constant([1, 2, 3]), **limits)["texts"]
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
pair = model["initial_cache"](batch_size=tf.constant(2))
targets = np.where(np.arange(64) % 3 == 1, tokens[:, 1:65], -1)  # of some tokens
out = model["read"](tokens=tf.constant(tokens[:, :64]), targets=tf.constant(targets), **pair)
read_log_probs, pair = out.pop("log_probs"), out
nothing = model["read"](tokens=tf.constant(tokens[:, 1:65]), targets=tf.fill([2, 64], -1), **pair)["log_probs"]
read_after = step(tokens[:, 64:66], pair)[0]
stepped = tokens
cache = model["initial_cache"](batch_size=tf.constant(1))
tokens, written = model["encode"](texts=tf.constant(prompts[1:2]))["tokens"], []
for n in (7, 13, 20):  # piece by piece, as a server streams
    cache = model["write"](
        tokens=tokens, max_tokens=tf.constant(n), temperature=tf.constant(1.0), seeds=tf.constant([2]),
        **limits, **cache)
    made = cache.pop("made")
    tokens = made[:, -1:]
    written.append(made)
generated["written"] = model["decode"](tokens=tf.concat(written, 1), after=tf.constant(prompts[1:2]))["texts"]
scored = {"score_" + key: value for key, value in scored.items()}
np.savez(results, before=before, after=after, tokens=stepped, read=read_log_probs, read_after=read_after,
         targets=targets, nothing=nothing, **generated, **scored)
from tensorflow.python.tools import saved_model_cli
sys.argv = ["saved_model_cli", "show", "--all", "--dir", export_dir]
saved_model_cli.main()
"""


def request(prompts, max_tokens, **options):
    """The tensors that the signature `generate` takes."""
    options = {
        **sampling_settings.checked({}),
        "seeds": list(range(len(prompts))),
        "stop": tf.constant([], tf.string),
    } | options
    return {
        name: tf.constant(value) for name, value in {"prompts": prompts, "max_tokens": max_tokens, **options}.items()
    }


@pytest.fixture(scope="module")
def export_dir(byte_model, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("export") / "model")
    ServedCausal(byte_model.generator, byte_model.vocabulary).save(folder)
    return folder


@pytest.fixture(scope="module")
def served(export_dir, tmp_path_factory):
    """The client's results, and the output of saved_model_cli ("shown")."""
    folder = tmp_path_factory.mktemp("client")
    done = processes.run(["-c", CLIENT, export_dir, folder / "results.npz", *PROMPTS], cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "results.npz", allow_pickle=True)) | {"shown": done.stdout}


@pytest.mark.parametrize("temperature", ["0.0", "1.0"])
def test_generate_equals_the_model(byte_model, served, temperature):
    expected = byte_model.generate(PROMPTS, 40, temperature=float(temperature), seed=[1, 2, 3], **LIMITS)
    assert [text.decode("utf-8", "replace") for text in served[temperature]] == expected


def test_write_goes_on_from_its_cache_as_generate_does(served):
    assert served["written"][0] == served["1.0"][1]


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


def test_an_export_that_ends_early_is_no_export(tmp_path):
    """It leaves no directory of its name, and can be started again."""
    for error in (OSError("full"), None):
        with contextlib.suppress(OSError), complete_directory(str(tmp_path / "new")) as folder:
            pathlib.Path(folder).mkdir()
            (pathlib.Path(folder) / f"{error}").write_text("")
            if error:
                raise error
        assert [path.name for path in tmp_path.iterdir()] == ([] if error else ["new"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["None"]


def test_read_reads_a_segment_and_scores_the_targets(served):
    model_log_probs = served["before"][0]  # of the second text, by `step`
    wanted = served["targets"][1] >= 0
    expected = np.where(wanted, model_log_probs[np.arange(64), served["targets"][1]], 0.0)
    np.testing.assert_allclose(served["read"][1], expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(served["read_after"][1], model_log_probs[64:66], rtol=0, atol=1e-4)
    assert np.abs(expected).sum() > 1 and not served["nothing"].any()


def test_the_signatures_say_what_they_take(byte_model, export_dir, served):
    assert b"_gradient_op_type" not in pathlib.Path(export_dir, "saved_model.pb").read_bytes()
    signatures = tf.saved_model.load(export_dir).signatures
    arguments = {name: set(signature.structured_input_signature[1]) for name, signature in signatures.items()}
    cache = {"keys", "values", "length", "seen"}
    sampling = {"max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "min_p", "typical_p", "seeds"}
    assert sampling == {"max_tokens", "seeds", *sampling_settings.names()}
    assert arguments == {
        "generate": {"prompts", "stop", *sampling},
        "score": {"texts"},
        "encode": {"texts"},
        "decode": {"tokens", "after"},
        "initial_cache": {"batch_size"},
        "step": {"tokens", *cache},
        "read": {"tokens", "targets", *cache},
        "write": {"tokens", *cache, *sampling},
    }
    keys = signatures["step"].structured_outputs["keys"]
    assert keys.shape.as_list() == [None, CONFIG.n_layer, CONFIG.n_head, CONFIG.mem_len, CONFIG.d_head]
    readme = (pathlib.Path(export_dir) / "README.md").read_text()
    assert "disable_meta_optimizer" in readme and f'load("{pathlib.Path(export_dir).name}")' in readme
    assert all(f"| {name} |" in readme for name in (*arguments, *sampling_settings.names()))
    assert (pathlib.Path(export_dir) / "sampling.json").read_text() == sampling_settings.to_json()
    assert all(f"signature_def['{name}']" in served["shown"] for name in arguments)
    for inputs in arguments.values():
        assert all(f"inputs['{name}'] tensor_info" in served["shown"] for name in inputs)
    for wrong, message in [
        ({"seeds": [1]}, "one seed for each text"),
        ({"stop": [""]}, "stop strings must not be empty"),
        ({"repetition_penalty": 0.5}, "repetition_penalty must be at least 1"),
        ({"temperature": np.inf}, "temperature must be at least 0"),
        ({"min_p": np.nan}, "min_p must be at least 0 and at most 1"),
        ({"typical_p": 0.0}, "typical_p must be above 0 and at most 1"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signatures["generate"](**request(["a", "b"], 1, **wrong))
    free = signatures["generate"](**request(["a"], 30))["texts"].numpy()[0]
    stop = [free[12:14], free[9:11], b"not in it"]
    stopped = signatures["generate"](**request(["a"], 30, stop=stop))["texts"].numpy()[0]
    assert stopped == free[: min(free.find(string) for string in stop[:2])]
    with pytest.raises(InputError, match="not empty"):
        ServedCausal(byte_model.generator, byte_model.vocabulary).save(export_dir)


def check_tokens_of_a_stream(address, vocabulary, prompt):
    """Each is written as the Python vocabulary writes it there; greedy choice makes the likeliest of the alternatives,
    also without same_length, where it matters how the text is divided."""
    for text_before, steps in ((prompt, 12), (" ".join(["the end"] * 50), 3)):
        data = json.dumps({"prompt": text_before, "max_tokens": steps, "top": 2, "temperature": 0}).encode()
        with urllib.request.urlopen(address + "/stream", data, timeout=60) as answer:
            tokens = [token for line in answer for token in json.loads(line)["tokens"]]
        decode, text = vocabulary.decoder(text_before), codecs.getincrementaldecoder("utf-8")("replace")
        assert [token["text"] for token in tokens[:-1]] == [text.decode(decode([t["token"]])) for t in tokens[:-1]]
        assert [token["token"] for token in tokens] == [token["top"][0]["token"] for token in tokens]
        assert [token["log_prob"] for token in tokens] == [token["top"][0]["log_prob"] for token in tokens]


@pytest.mark.slow
@pytest.mark.xla
def test_weights_in_int8_are_in_the_graph(tmp_path):
    model = random_model(dataclasses.replace(CONFIG, dtype="mixed_bfloat16"))
    model.round_to_int8()
    language_model = LanguageModel(model, ByteVocabulary(), int8=True)
    ServedCausal(language_model.generator, language_model.vocabulary).save(str(tmp_path / "model"))
    served = tf.saved_model.load(str(tmp_path / "model"))
    functions = served.signatures["generate"].graph.as_graph_def().library.function
    reads = [node for function in functions for node in function.node_def if node.op == "ReadVariableOp"]
    int8 = [node for node in reads if node.attr["dtype"].type == tf.int8.as_datatype_enum]
    assert len(int8) == (7 if ON_CPU else 0)  # six of the layers, and a table
    sampling = {setting.name: tf.constant(setting.default) for setting in sampling_settings.SETTINGS}
    made = served.signatures["generate"](
        prompts=tf.constant(["one"]),
        max_tokens=tf.constant(40),
        seeds=tf.constant([1]),
        stop=tf.constant([], tf.string),
        **sampling,
    )
    assert made["texts"].numpy()[0].decode(errors="replace") == language_model.generate("one", 40, seed=1)


@pytest.mark.parametrize("kind", [pytest.param("words", marks=pytest.mark.slow), "subwords"])
def test_words_and_subwords_are_inside_the_graph(kind, tmp_path):
    """Text goes in and comes out as the Python vocabulary has it: tables and the SentencePiece model travel along."""
    words = ["a", "rose", "is", "the", "end"]
    if kind == "words":
        vocabulary = WordVocabulary([*dict.fromkeys(words), "<eos>", "<unk>"])
    else:
        vocabulary = SubwordVocabulary(train(dict.fromkeys([*words, "\n"], 9), 283).model)
    model = random_model(dataclasses.replace(CONFIG, vocab_size=vocabulary.vocab_size))
    own = LanguageModel(model, vocabulary)
    own.generator = Generator(model, model.config.reach, jit_compile=False)
    ServedCausal(own.generator, vocabulary).save(str(tmp_path / "model"))
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    prompts = ["a rose is", "", "the end\n a rôse"]
    found = signatures["generate"](**request(prompts, 12, seeds=[4, 5, 6]))
    texts = own.generate(prompts, 12, seed=[4, 5, 6])
    assert [text.decode("utf-8", "replace") for text in found["texts"].numpy()] == texts
    assert ["".join(own.stream(prompt, 12, seed=4 + i)) for i, prompt in enumerate(prompts)] == texts
    if kind == "words":  # a prompt and its continuation, joined, are the words that were read and made
        for prompt, text, made in zip(prompts, texts, found["tokens"].numpy(), strict=True):
            assert vocabulary.encode(prompt + text).tolist() == [*vocabulary.encode(prompt), *made]
    with server.running(str(tmp_path / "model")) as address:
        sent = {"prompts": prompts, "max_tokens": 12, "seeds": [4, 5, 6]}
        assert server.call(address, "/generate", sent) == (200, {"texts": texts})
        data = json.dumps({"prompt": prompts[0], "max_tokens": 12, "seed": 4}).encode()
        with urllib.request.urlopen(address + "/stream", data, timeout=60) as answer:
            assert "".join(json.loads(line)["text"] for line in answer) == texts[0]
        check_tokens_of_a_stream(address, vocabulary, prompts[2])
    scores = signatures["score"](texts=tf.constant(prompts))
    for i, score in enumerate(own.score(prompts)):
        assert scores["tokens"][i, : len(score.ids)].numpy().tolist() == score.ids.tolist()
        assert float(scores["total"][i]) == pytest.approx(score.total, abs=1e-3)
