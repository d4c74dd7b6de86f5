"""Pretraining an XLNet in the ordinary loop: replicas, resuming, evaluation."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pair_corpus
import processes
import pytest
import tensorflow as tf
from small_run import KilledError, change, lines

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.evaluate import Evaluator
from txl_tf.models.xlnet.config import XLNetConfig, XLNetEvalConfig, XLNetRunConfig
from txl_tf.runs.model_dir import load_trained
from txl_tf.settings.pretraining import PairsConfig, PermutationLMConfig
from txl_tf.settings.run import TrainConfig
from txl_tf.training.loop import train

ROOT = pathlib.Path(__file__).parents[3]
CONFIG = XLNetRunConfig(
    XLNetConfig(
        *(312, 2, 16, 2, 8, 32),
        init_std=0.1,
        dtype="float64",
        dropout=0.1,
        dropatt=0.1,
        mem_len=24,
        reuse_len=16,
    ),
    PairsConfig(batch_size=4, tgt_len=40, bi_data=True),
    TrainConfig(
        train_steps=6,
        learning_rate=1e-2,
        weight_decay=0.01,
        bias_correction=False,
        steps_per_loop=5,
        log_steps=2,
        save_steps=2,
        eval_steps=3,
        jit_compile=False,
    ),
    XLNetEvalConfig(batch_size=4, jit_compile=False),
    PermutationLMConfig(num_predict=7, perm_size=16),
)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Four steps an epoch and lane, so that runs go on into the second."""
    return pair_corpus.write(str(tmp_path_factory.mktemp("pieces")), 180, learnable=True)[0]


@pytest.fixture(scope="module")
def whole(pieces, tmp_path_factory):
    """(folder, model) of a run of all steps on two replicas."""
    import replicas

    folder, strategy = tmp_path_factory.mktemp("whole"), replicas.two_replicas()
    evaluator = lambda model: Evaluator(CONFIG, model, pieces, "valid", strategy)  # noqa: E731
    return folder, train(CONFIG, pieces, str(folder), strategy, evaluator)


@pytest.fixture(scope="module")
def trained(pieces, tmp_path_factory):
    """The folder of the same run on one device."""
    import replicas

    folder, strategy = tmp_path_factory.mktemp("trained"), replicas.one_device()
    train(CONFIG, pieces, str(folder), strategy, lambda model: Evaluator(CONFIG, model, pieces, "valid", strategy))
    return str(folder)


@pytest.mark.slow
def test_resumed_equals_uninterrupted(whole, pieces, tmp_path, two_replicas):
    """Bit for bit: pairs, spans, orders, dropout, mems and moments, across an epoch's end."""

    def kill(progress):
        raise KilledError

    with pytest.raises(KilledError):  # at step 3; the last save was at 2
        train(CONFIG, pieces, str(tmp_path), two_replicas, lambda model: kill)
    assert [line["step"] for line in lines(tmp_path)] == [2]
    resumed = train(CONFIG, pieces, str(tmp_path), two_replicas)
    assert lines(tmp_path) == lines(whole[0]) and lines(tmp_path)[-1]["epoch"] > 1
    for mine, theirs in zip(resumed.get_weights(), whole[1].get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_two_replicas_are_one_and_so_are_groups_of_lanes(whole, pieces, tmp_path, one_device):
    one = train(CONFIG, pieces, str(tmp_path / "one"), one_device)
    grouped = train(change(CONFIG, train={"accumulate_steps": 4}), pieces, str(tmp_path / "grouped"), one_device)
    for folder, model in ((tmp_path / "grouped", grouped), whole):
        for line, other in zip(lines(tmp_path / "one"), lines(folder), strict=True):
            np.testing.assert_allclose(line["loss"], other["loss"], rtol=1e-9)
        for mine, theirs in zip(one.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
    plain = change(CONFIG, model={"dropout": 0.0, "dropatt": 0.0})
    train(plain, pieces, str(tmp_path / "plain"), one_device)
    assert abs(lines(tmp_path / "plain")[0]["loss"] - lines(tmp_path / "one")[0]["loss"]) > 1e-4


def evaluate(config, model, corpus, strategy, **options):
    result = Evaluator(config, model, corpus, "test", strategy, **options)()
    return {name: value for name, value in result.items() if name != "tokens_per_sec"}


def test_evaluation_is_always_the_same(trained, pieces, one_device):
    loaded = load_trained(trained)
    assert loaded.config == CONFIG
    first = evaluate(CONFIG, loaded.model, pieces, one_device)
    assert first == evaluate(CONFIG, loaded.model, pieces, one_device)
    assert first["targets"] == first["tokens"] and first["tokens_dropped"] == 0
    steps = ((180 // 2) - 21) // 16
    assert 4 * steps * (7 - 2) < first["targets"] <= 4 * steps * 7
    settings = {"tgt_len": 40, "mem_len": 24, "reuse_len": 16, "clamp_len": -1, "mem_init": "zeros", "bi_data": True}
    settings |= {"num_predict": 7, "perm_size": 16, "mask_alpha": 6, "max_span": 5, "seed": 1}
    assert {name: first[name] for name in settings} == settings
    assert first["loss_by"]["rank"]["bins"] == ["0", "1", "2", "3"]
    for parts in first["loss_by"].values():
        assert sum(parts["targets"]) == first["targets"]
        total = sum(loss * count for loss, count in zip(parts["loss"], parts["targets"], strict=True) if count)
        assert math.isclose(total / first["targets"], first["loss"], rel_tol=1e-9)


@pytest.mark.slow
def test_evaluation_by_two_replicas_seeds_and_batches(trained, pieces, one_device, two_replicas):
    model = load_trained(trained).model
    first = evaluate(CONFIG, model, pieces, one_device)
    with two_replicas.scope():
        mirrored = load_trained(trained).model
    second = evaluate(CONFIG, mirrored, pieces, two_replicas)
    assert math.isclose(second["loss"], first["loss"], rel_tol=1e-5) and second["targets"] == first["targets"]
    for name, parts in first["loss_by"].items():
        assert second["loss_by"][name]["targets"] == parts["targets"]
        pairs = zip(second["loss_by"][name]["loss"], parts["loss"], strict=True)
        assert all(mine == theirs or math.isclose(mine, theirs, rel_tol=1e-5) for mine, theirs in pairs)
    other = evaluate(change(CONFIG, eval={"seed": 2}), model, pieces, one_device)
    assert other["seed"] == 2 and abs(other["loss"] - first["loss"]) > 1e-4
    other = evaluate(change(CONFIG, eval={"batch_size": 2}), model, pieces, one_device)
    assert other["targets"] != first["targets"] and other["loss"] == pytest.approx(first["loss"], rel=0.05)


def test_evaluations_during_training_are_shown_in_parts(trained):
    """In evaluations.jsonl, by which the best checkpoint is chosen and runs end early, and in TensorBoard."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    evaluations = lines(pathlib.Path(trained), "evaluations.jsonl")
    assert [line["step"] for line in evaluations] == [3, 6]
    best = min(evaluations, key=lambda line: line["loss"])
    assert load_trained(trained, checkpoint="best").step == best["step"]
    pictures = EventAccumulator(f"{trained}/tensorboard").Reload().Tags()["tensors"]
    wanted = {"loss/by_rank", "loss/by_span"}
    wanted |= {f"attention_{stream}/{name}" for stream in ("content", "query") for name in ("by_distance", "layer_01")}
    assert wanted <= set(pictures)
    curves = EventAccumulator(f"{trained}/tensorboard").Reload()
    for name, parts in evaluations[-1]["loss_by"].items():
        for label, loss in zip(parts["bins"], parts["loss"], strict=True):
            if loss is not None:
                shown = curves.Tensors(f"loss_by_{name}/{label}")[-1]
                assert shown.step == 6 and tf.make_ndarray(shown.tensor_proto) == pytest.approx(loss, rel=1e-6)


def run_evaluation(model_dir, corpus, *flags):
    """The finished process of scripts/evaluate.py."""
    flags = [f"--model_dir={model_dir}", f"--data_dir={corpus.data_dir}", "--strategy=one_device", *flags]
    return processes.run(["scripts/evaluate.py", *flags], cwd=ROOT)


@pytest.mark.slow
def test_the_command_evaluates_as_python_does(trained, pieces, one_device):
    flags = {"mem_len": 5, "batch_size": 2, "seed": 3}, {"mem_init": "empty"}, {"num_predict": 9, "max_span": 2}
    config = change(CONFIG, **dict(zip(("eval", "model", "objective"), flags, strict=True)))
    given = [f"--{name}={value}" for group in (flags[0], flags[2]) for name, value in group.items()]
    given.append("--conventions=huggingface")  # empty slots of the memory are masked
    done = run_evaluation(trained, pieces, "--split=test", "--checkpoint=best", *given)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    loaded = load_trained(trained, checkpoint="best", change=lambda _: config)
    expected = evaluate(config, loaded.model, pieces, one_device)
    assert found.pop("tokens_per_sec") and found == expected | {"step": loaded.step, "weights": "last"}
    assert (found["mem_len"], found["mem_init"], found["num_predict"]) == (5, "empty", 9)


@pytest.mark.slow
def test_it_learns(pieces, tmp_path, one_device):
    config = change(CONFIG, train={"train_steps": 40, "log_steps": 10, "eval_steps": 0, "save_steps": 40})
    train(config, pieces, str(tmp_path), one_device)
    logged = [line["loss"] for line in lines(tmp_path)]
    assert logged[-1] < 0.75 * logged[0]


def test_a_corpus_decides_the_vocabulary_and_must_have_special_tokens(pieces, corpus):
    task = families.task_of(CONFIG)
    fitted = task.fit_to_corpus(change(CONFIG, model={"vocab_size": 5}), pieces, {})
    assert fitted == CONFIG
    with pytest.raises(InputError, match="has no separator token: prepare the data with --vocab=sentencepiece"):
        task.fit_to_corpus(CONFIG, corpus, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"tgt_len": 21}}, "reuse_len=16 must be from 1 to tgt_len - 6 = 15"),
        ({"objective": {"perm_size": 17}}, "perm_size=17 must be at most reuse_len=16 and tgt_len - reuse_len=24"),
        ({"objective": {"num_predict": 39}}, "num_predict=39 is too large: half must fit into the first"),
        ({"eval": {"batch_size": 3}}, "evaluation's batch_size=3 is odd, and with bi_data"),
        ({"data": {"batch_size": 3}}, "batch_size=3 is odd, and with bi_data"),
    ],
)
def test_lengths_that_do_not_fit_are_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        CONFIG.replace(**changes)


def test_what_an_xlnet_does_not_do_is_one_line(trained, pieces, one_device):
    with pytest.raises(
        InputError, match=r"holds an XLNet, which is not trained to continue texts: use scripts/fill\.py"
    ):
        LanguageModel.load(trained)
    model = load_trained(trained).model
    with pytest.raises(InputError, match="--sliding_window: not for an XLNet"):
        evaluate(CONFIG, model, pieces, one_device, sliding_window=5)
    with pytest.raises(InputError, match="--per_token_out: this objective's targets are drawn at random"):
        Evaluator(CONFIG, model, pieces, "test", one_device)(record=lambda ids, log_probs: None)


@pytest.mark.slow
def test_a_run_without_bi_data(pieces, tmp_path, one_device):
    config = change(CONFIG, data={"bi_data": False, "batch_size": 3}, train={"train_steps": 2, "eval_steps": 0})
    config = dataclasses.replace(config, eval=XLNetEvalConfig(batch_size=3))
    train(config, pieces, str(tmp_path), one_device)
    assert lines(tmp_path)[-1]["step"] == 2
