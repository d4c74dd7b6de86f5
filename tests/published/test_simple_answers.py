"""XLNetForQuestionAnsweringSimple: Hugging Face's numbers; in by the command, answers, a SavedModel, and out again."""

import functools
import json
import pathlib

import numpy as np
import processes
import pytest
import reference_xlnet as reference
import replicas
import server
import tensorflow as tf
import tuned_models
import xlnet_files
import xlnet_tokens

from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.inference.tasks.predictor import Predictor
from txl_tf.inference.tasks.served import ServedTask
from txl_tf.published.importing import open_checkpoint
from txl_tf.tasks.answering import Answering

ROOT = pathlib.Path(__file__).parents[2]
KIND = "XLNetForQuestionAnsweringSimple"
ASKED = [{"question": "the River", "context": text} for text in ("so one", "one  so a dash River " * 6)]
STARTS = [
    [0.3758190, 0.7290461, 0.5451124, -1.4485388, 2.4979490, 2.5399303],
    [0.2952147, 2.5341113, 1.0385904, -0.0501955, -0.9023446, -3.9014380],
]
ENDS = [
    [1.8341982, -2.2946727, 2.0211084, -5.1262480, -1.2731946, -1.0551615],
    [-4.9221587, 1.1441016, -3.3358570, 3.0403924, -1.0833998, -4.4237610],
]
"""What Hugging Face's class (transformers 5.24, PyTorch 2.13) makes of `fixed_case`."""


def run(*command):
    done = processes.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def simple_weights(rng, **options):
    """An XLNet's and the head's, by the reference's names."""
    d_model = xlnet_files.D
    head = {"positions/kernel": rng.normal(size=[d_model, 2]), "positions/bias": rng.normal(size=[2])}
    return xlnet_files.random_weights(rng, **options) | xlnet_files.to_float32(head)


def fixed_case():
    """Weights, tokens, segments and padding that are always the same."""
    rng, shape = np.random.default_rng(56), [2, xlnet_files.T]
    tokens, segments = rng.integers(0, xlnet_files.V, shape), rng.integers(0, 3, shape)
    return simple_weights(rng), tokens, segments, np.arange(xlnet_files.T) < np.array([[0], [2]])


def test_logits_and_loss_are_hugging_faces(tmp_path):
    """Their loss masks nothing: so all positions are allowed here."""
    weights, tokens, segments, padding = fixed_case()
    xlnet_files.write_hugging_face(tmp_path, xlnet_files.huggingface_tensors(weights), architectures=[KIND])
    model, config = xlnet_files.imported(tmp_path, "huggingface")
    assert (config.task, config.model.answer_head) == ("answering", "simple")
    nothing = tf.zeros([2], tf.int32)
    given = {"segments": tf.constant(segments), "padding": tf.constant(padding)}
    found = model(tf.constant(tokens), tf.ones(tokens.shape, tf.bool), nothing, nothing, **given)
    np.testing.assert_allclose(found.start, STARTS, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.end, ENDS, rtol=0, atol=1e-5)
    losses = Answering().losses(found, {"start": tf.constant([1, 3]), "end": tf.constant([4, 5])})
    assert np.mean(losses) == pytest.approx(4.300573, abs=1e-5)


def test_in_by_the_command_answers_and_out_again(tmp_path, rng):
    """Probabilities from the equations; every tensor of the export has the bits that it came with."""
    pieces = xlnet_tokens.small_model()
    vocabulary = XLNetVocabulary(pieces)
    weights = simple_weights(rng, vocab_size=vocabulary.vocab_size)
    tensors = xlnet_files.huggingface_tensors(weights)
    about = {"vocab_size": vocabulary.vocab_size, "architectures": [KIND]}
    xlnet_files.write_hugging_face(tmp_path / "hf", tensors, **about)
    (tmp_path / "hf" / "spiece.model").write_bytes(pieces)
    output = run("scripts/import_checkpoint.py", "--format=huggingface", f"--source={tmp_path}/hf",
                 f"--model_dir={tmp_path}/run")  # fmt: skip
    assert "for answering" in output and "not in the checkpoint" not in output
    (tmp_path / "asked.json").write_text(json.dumps([{"id": "q"} | ASKED[0]]))
    run("scripts/predict.py", f"--model_dir={tmp_path}/run", f"--input={tmp_path}/asked.json",
        f"--output={tmp_path}/answers.jsonl", "--nojit_compile")  # fmt: skip
    found = json.loads((tmp_path / "answers.jsonl").read_text())

    text, question = (vocabulary.encode(ASKED[0][name]).tolist() for name in ("context", "question"))
    sep, cls = (vocabulary.special_token(name) for name in ("sep", "cls"))
    tokens, size = np.array([*text, sep, *question, sep, cls]), len(text)
    segments = np.array([0] * (size + 1) + [1] * (len(question) + 1) + [2])
    hidden = reference.xlnet(weights, tokens, segments=segments, activation=reference.gelu).output
    logits = hidden @ weights["positions/kernel"] + weights["positions/bias"]
    logits = np.append(logits[:size], logits[-1:], axis=0)  # an answer is in the text, or CLS
    starts, ends = np.exp([reference.log_softmax(column) for column in logits.T])
    none, spans = starts[-1] * ends[-1], np.triu(np.outer(starts[:-1], ends[:-1]))
    assert found["no_answer_probability"] == pytest.approx(none, abs=1e-5)
    assert found["candidates"][0]["probability"] == pytest.approx(spans.max(), abs=1e-5)
    assert bool(found["answer"]) == (none <= 0.5)

    run("scripts/export_checkpoint.py", f"--model_dir={tmp_path}/run", f"--export_dir={tmp_path}/out")
    file = open_checkpoint("huggingface", str(tmp_path / "out")).file
    assert set(file.shapes) == set(tensors)
    for name, tensor in tensors.items():
        assert file.read(name).tobytes() == tensor.tobytes(), name
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told["architectures"] == [KIND] and "start_n_top" not in told


def test_the_saved_model_and_the_server_answer_as_the_predictor(tmp_path):
    tuned_models.write_model_dir(tmp_path / "run", "answering", answer_head="simple")
    predictor = Predictor.load(str(tmp_path / "run"), strategy=replicas.one_device())
    expected = predictor.predict(ASKED)
    ServedTask(predictor.trained, lengths=(24,), jit_compile=False).save(str(tmp_path / "saved"))
    request = {f"{name}s": [one[name] for one in ASKED] for name in ("question", "context")}
    with server.running(str(tmp_path / "saved")) as address:
        status, answer = functools.partial(server.call, address)("/answer", request)
    assert status == 200
    for one, line in zip(answer["answers"], expected, strict=True):
        best = line["candidates"][0]
        assert [one[name] for name in ("text", "begin", "end")] == [best[name] for name in ("text", "begin", "end")]
        assert one["probability"] == pytest.approx(best["probability"], rel=1e-4)
        assert one["no_answer_probability"] == pytest.approx(line["no_answer_probability"], rel=1e-4)
