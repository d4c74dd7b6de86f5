import dataclasses

import numpy as np
import pytest
import small_run
from causal_runs import evaluate
from small_run import KilledError, change, lines

from txl_tf.data.lanes import TrainingLanes
from txl_tf.errors import InputError
from txl_tf.inference.evaluate import Evaluator
from txl_tf.models.transformer_xl.config import EvalConfig
from txl_tf.runs.model_dir import load_trained
from txl_tf.training import setup
from txl_tf.training.loop import next_stop, train
from txl_tf.training.optimizer.schedules import Schedule
from txl_tf.training.step import make_host_loop

CONFIG = change(small_run.CONFIG, model={"n_layer": 2})


@pytest.mark.slow
def test_resumed_equals_uninterrupted(corpus, tmp_path, two_replicas):
    """Bit for bit: dropout, mems, data position, Adam's moments and a log window cut in two by the kill."""
    whole = train(CONFIG, corpus, str(tmp_path / "whole"), two_replicas)

    def kill(progress):
        raise KilledError

    with pytest.raises(KilledError):
        train(
            CONFIG, corpus, str(tmp_path / "cut"), two_replicas, lambda model: kill
        )  # at step 6; the last save was at 4
    assert [line["step"] for line in lines(tmp_path / "cut")] == [3, 6]
    resumed = train(CONFIG, corpus, str(tmp_path / "cut"), two_replicas)

    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "whole")] == [3, 6, 9, 12]
    for mine, theirs in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_steps_per_loop_changes_no_line(corpus, tmp_path, one_device):
    for n in (1, 7):
        train(change(CONFIG, train={"steps_per_loop": n}), corpus, str(tmp_path / str(n)), one_device)
    assert lines(tmp_path / "1") == lines(tmp_path / "7")


@pytest.mark.slow
def test_learns_and_what_is_saved_is_what_was_trained(corpus, tmp_path, one_device, monkeypatch):
    config = change(CONFIG, train={"train_steps": 60, "log_steps": 20, "save_steps": 16})
    evaluation, reach = config.for_evaluation()
    results = []

    def evaluator(model):
        evaluate_valid = Evaluator(config, model, corpus, "valid", one_device)
        return lambda progress: results.append(evaluate_valid()) or results[-1]

    host_loops = []
    monkeypatch.setattr(setup, "make_host_loop", lambda *run: host_loops.append(make_host_loop(*run)) or host_loops[-1])
    train(config, corpus, str(tmp_path), one_device, evaluator)
    assert host_loops[0].experimental_get_tracing_count() == 1  # with loops of 1 to 5 steps, saves and evaluations
    logged = lines(tmp_path)
    assert logged[-1]["loss"] < 0.75 * logged[0]["loss"]
    for line in logged:
        assert line["lr"] == float(Schedule(config.train)(line["step"] - 1))  # of the last update
        assert line["grad_norm"] > 0.01 and line["epoch"] > 0

    trained = load_trained(str(tmp_path))
    assert trained.step == 60 and trained.config == config
    again = evaluate(trained.model, corpus, "valid", evaluation, reach, one_device)
    assert again["loss"] == results[-1]["loss"]
    assert list(tmp_path.glob("tensorboard/events*"))


@pytest.mark.slow
def test_evaluation_counts_every_token_once_for_any_batch_and_segment(corpus, tmp_path, one_device, two_replicas):
    train(CONFIG, corpus, str(tmp_path), one_device)
    trained = load_trained(str(tmp_path))
    reach = dataclasses.replace(CONFIG.model.reach, mem_len=64, same_length=True)
    tokens = corpus.splits["test"].tokens
    results = []
    for batch_size, tgt_len in ((2, 8), (2, 31), (2, 64)):
        settings = EvalConfig(batch_size=batch_size, tgt_len=tgt_len)
        results.append(evaluate(trained.model, corpus, "test", settings, reach, one_device))
    assert all(result["tokens"] == tokens - 2 and result["tokens_dropped"] == 0 for result in results)
    np.testing.assert_allclose([result["loss"] for result in results], results[0]["loss"], rtol=1e-5)

    with two_replicas.scope():
        mirrored = load_trained(str(tmp_path))
    result = evaluate(mirrored.model, corpus, "test", EvalConfig(batch_size=2, tgt_len=31), reach, two_replicas)
    np.testing.assert_allclose(result["loss"], results[1]["loss"], rtol=1e-6)
    assert result["tokens"] == tokens - 2


def test_other_settings_into_an_old_model_dir_are_refused_field_by_field(corpus, tmp_path, one_device):
    train(CONFIG, corpus, str(tmp_path), one_device)
    other = change(CONFIG, model={"n_layer": 3, "dropout": 0.2}, train={"log_steps": 6})
    with pytest.raises(InputError, match=r"n_layer=3 \(was 2\), dropout=0.2 \(was 0.1\); give the same settings"):
        train(other, corpus, str(tmp_path), one_device)


def test_a_model_dir_without_a_model_is_named(tmp_path):
    with pytest.raises(InputError, match=r"has no config\.json: give a directory that scripts/train\.py wrote"):
        load_trained(str(tmp_path))


def test_host_loops_end_where_something_is_due():
    run = dataclasses.replace(CONFIG.train, steps_per_loop=10, log_steps=7, save_steps=20, eval_steps=0, train_steps=33)
    stops = [0]
    while stops[-1] < 33:
        stops.append(next_stop(stops[-1], run))
    assert stops == [0, 7, 14, 20, 21, 28, 33]
    assert next_stop(7, dataclasses.replace(run, profile_steps=(9, 12))) == 9
    assert next_stop(9, dataclasses.replace(run, profile_steps=(9, 12))) == 12


def test_epochs_pass(corpus, tmp_path, one_device):
    """A run longer than its data begins again at the front, with other lane offsets."""
    small = change(CONFIG, data={"batch_size": 32, "tgt_len": 64}, model={"mem_len": 4})
    assert TrainingLanes(corpus, small.data).epoch_steps < 12
    train(small, corpus, str(tmp_path), one_device)
    assert lines(tmp_path)[-1]["epoch"] > 1


def test_a_finished_run_that_is_started_again_says_so(corpus, tmp_path, one_device, capsys):
    config = change(small_run.CONFIG, train={"train_steps": 1, "eval_steps": 0})
    train(config, corpus, str(tmp_path), one_device)
    assert "starting at step 0 of 1: " in capsys.readouterr().out
    train(config, corpus, str(tmp_path), one_device)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("finished at step 1 of 1: ")
    assert second.startswith("this run is finished: use the commands evaluate and export_savedmodel, or begin a new")
