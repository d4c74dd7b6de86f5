"""Runs that are ended in every way and continued: with kill -9 anywhere, by a signal, on other replicas."""

import os
import signal

import numpy as np
import processes
import pytest
from small_run import CONFIG, KilledError, change, evaluator, lines

from txl_tf.runs.model_dir import load_trained
from txl_tf.training.interruption import TrainingStoppedError
from txl_tf.training.loop import train


@pytest.mark.slow
def test_kill_9_anywhere_changes_no_line(corpus, tmp_path):
    """Real kills, in the middle of a save, of a line and of an evaluation too: every line as uninterrupted."""
    driver = [os.path.join(processes.PROGRAMS, "killed_runs.py"), corpus.data_dir, tmp_path]
    environment = {"PYTHONPATH": os.pathsep.join([processes.PATHS, os.environ.get("PYTHONPATH", "")])}
    done = processes.run(driver, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("damaged") == 2 and "ckpt-4 is damaged: it has no index; set aside as" in done.stdout
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        assert lines(tmp_path / "killed", file) == lines(tmp_path / "whole", file)
    assert [line["step"] for line in lines(tmp_path / "whole")] == [3, 6, 9, 12]
    killed, whole = ({file.name for file in (tmp_path / run).iterdir()} for run in ("killed", "whole"))
    assert killed - whole == {"damaged-ckpt-4.data-00000-of-00001"} and whole < killed
    killed, whole = (load_trained(str(tmp_path / run)).model.get_weights() for run in ("killed", "whole"))
    for mine, theirs in zip(killed, whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("bfloat16_moments", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sigterm_saves_in_the_middle_of_a_log_window_and_of_an_evaluation(
    corpus, tmp_path, one_device, bfloat16_moments
):
    """The evaluation is cut off and done again; lines, sums of the window and scores as uninterrupted."""
    config = change(CONFIG, train={"eval_steps": 4, "save_steps": 12, "bfloat16_moments": bfloat16_moments})
    losses = iter([3.0, 2.0, 1.0, 3.0, 2.0, 1.0])
    train(config, corpus, str(tmp_path / "whole"), one_device, evaluator(lambda: next(losses)))

    def stopping(model):
        def evaluate(progress):
            os.kill(os.getpid(), signal.SIGTERM)
            progress()
            raise AssertionError("the evaluation went on")

        return evaluate

    with pytest.raises(TrainingStoppedError, match=r"SIGTERM: saved at step 4; the same command continues") as stopped:
        train(config, corpus, str(tmp_path / "cut"), one_device, stopping)
    assert stopped.value.exit_status == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    train(config, corpus, str(tmp_path / "cut"), one_device, evaluator(lambda: next(losses)))
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        assert lines(tmp_path / "cut", file) == lines(tmp_path / "whole", file)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_replicas(corpus, tmp_path, one_device, two_replicas):
    config = change(CONFIG, model={"dropout": 0.0, "dropatt": 0.0}, train={"eval_steps": 4})
    train(config, corpus, str(tmp_path / "whole"), one_device)

    losses = iter([None, 1.0, None, 1.0, 1.0])

    def measure():
        if (loss := next(losses)) is None:
            raise KilledError
        return loss

    for strategy in (two_replicas, one_device):  # to steps 4 and 8
        with pytest.raises(KilledError):
            train(config, corpus, str(tmp_path / "moved"), strategy, evaluator(measure))
    train(config, corpus, str(tmp_path / "moved"), two_replicas, evaluator(measure))
    moved, whole = lines(tmp_path / "moved"), lines(tmp_path / "whole")
    assert [line["step"] for line in moved] == [line["step"] for line in whole] == [3, 6, 9, 12]
    for mine, theirs in zip(moved, whole, strict=True):
        for name in ("loss", "lr", "grad_norm"):
            assert mine[name] == pytest.approx(theirs[name], rel=2e-5)


@pytest.mark.slow
def test_the_best_is_kept_and_a_run_that_no_longer_improves_ends(corpus, tmp_path, one_device, capsys):
    config = change(CONFIG, train={"eval_steps": 2, "save_steps": 1, "keep_checkpoints": 1, "early_stop_evals": 3})
    losses = iter([3.0, 2.0, float("nan"), 2.5])

    def measure():
        if (loss := next(losses, None)) is None:
            raise KilledError
        return loss

    with pytest.raises(KilledError):
        train(config, corpus, str(tmp_path), one_device, evaluator(measure))  # in the evaluation at step 10
    losses = iter([2.0, 1.0])
    train(config, corpus, str(tmp_path), one_device, evaluator(measure))
    assert "stopped early at step 10: 3 evaluations were not better; the best was at step 4" in (
        capsys.readouterr().out
    )
    assert [line["loss"] for line in lines(tmp_path, "evaluations.jsonl")] == [
        3.0,
        2.0,
        pytest.approx(np.nan, nan_ok=True),
        2.5,
        2.0,
    ]
    assert sorted(file.stem for file in tmp_path.glob("*.index")) == ["ckpt-10", "ckpt-4"]
    assert load_trained(str(tmp_path)).step == 10
    assert load_trained(str(tmp_path), checkpoint="best").step == 4
