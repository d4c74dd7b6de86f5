"""More steps for a finished run, and other runs with its settings: `--extend`, `--settings_from`, `--eval_tokens`."""

import json
import math
import pathlib
import shutil

import numpy as np
import processes
import pytest
from small_run import CONFIG, KilledError, change, evaluator, lines

from txl_tf.errors import InputError
from txl_tf.runs.model_dir import load_trained, read_config
from txl_tf.settings.run import TrainConfig
from txl_tf.training.loop import first_of_window, next_stop, train
from txl_tf.training.optimizer.schedules import Schedule
from txl_tf.training.same_run import extended

ROOT = pathlib.Path(__file__).parents[3]


def cosine(step, total, warmup=3, peak=0.01, ratio=0.1):
    if step < warmup:
        return peak * step / warmup
    return peak * (ratio + (1 - ratio) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2)


def test_each_part_has_the_schedule_of_its_end():
    """Steps that were made keep their rate; later ones have that of a run that was so long from its beginning."""
    settings = {"learning_rate": 0.01, "warmup_steps": 3, "min_lr_ratio": 0.1}
    schedule = Schedule(TrainConfig(train_steps=40, extended_at=(10, 25), **settings))
    expected = [cosine(step, 10 if step < 10 else 25 if step < 25 else 40) for step in range(40)]
    np.testing.assert_allclose([float(schedule(step)) for step in range(40)], expected, rtol=1e-4)
    whole = Schedule(TrainConfig(train_steps=40, **settings))
    assert [float(schedule(step)) for step in range(25, 41)] == [float(whole(step)) for step in range(25, 41)]


@pytest.mark.parametrize("history", [(10, 10), (12, 10), (40,), (50,), (3,)])
def test_a_history_that_cannot_be_is_refused(history):
    with pytest.raises(InputError, match="must rise from warmup_steps=3 to train_steps=40"):
        TrainConfig(train_steps=40, warmup_steps=3, extended_at=history)


def test_windows_and_loops_end_where_the_run_ended():
    settings = TrainConfig(train_steps=30, extended_at=(14,), log_steps=10, steps_per_loop=100, save_steps=100)
    assert [first_of_window(step, settings) for step in (10, 14, 20, 30)] == [0, 10, 14, 20]
    assert [next_stop(step, settings) for step in (0, 10, 14, 20)] == [10, 14, 20, 30]


def test_an_extended_run_equals_one_that_was_never_finished(corpus, tmp_path, one_device):
    """Killed after its extension, it has the lines and the weights, bit for bit, of a run with the same history."""
    config = change(CONFIG, model={"vocab_size": corpus.vocabulary.vocab_size}, train={"train_steps": 7})
    losses = iter([3.0, 2.0, None, *[1.0] * 9])

    def measure():
        if (loss := next(losses)) is None:
            raise KilledError
        return loss

    run = str(tmp_path / "r")
    train(config, corpus, run, one_device, evaluator(measure))
    longer = extended(change(config, train={"train_steps": 16}), run)
    with pytest.raises(KilledError):  # at step 12, the first evaluation after the extension
        train(longer, corpus, run, one_device, evaluator(measure))
    assert extended(change(config, train={"train_steps": 16}), run) == longer == read_config(run)
    train(longer, corpus, run, one_device, evaluator(measure))
    losses = iter([3.0, 2.0, *[1.0] * 9])
    train(longer, corpus, str(tmp_path / "whole"), one_device, evaluator(measure))

    found, whole = lines(tmp_path / "r"), lines(tmp_path / "whole")
    assert found == whole and [line["step"] for line in found] == [3, 6, 7, 9, 12, 15, 16]
    assert lines(tmp_path / "r", "evaluations.jsonl") == lines(tmp_path / "whole", "evaluations.jsonl")
    mine, theirs = (load_trained(str(tmp_path / name)).model.get_weights() for name in ("r", "whole"))
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[3]["lr"] > found[2]["lr"]  # the schedule of 16 steps holds from step 7 on


SIZES = ["--n_layer=1", "--d_model=8", "--d_embed=8", "--n_head=1", "--d_head=8", "--d_inner=8", "--mem_len=8"]
SHORT = ["--warmup_steps=0", "--eval_steps=2", "--log_steps=1", "--nojit_compile", "--noeval_jit_compile"]
EVAL = ["--eval_batch_size=4", "--eval_tgt_len=16", "--eval_mem_len=8", "--eval_clamp_len=-1"]


def command(*flags):
    done = processes.run([ROOT / "scripts/train.py", *flags])
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A finished run of 4 steps, of which evaluations read a part of valid, and what it printed."""
    run = f"{tmp_path_factory.mktemp('finished')}/r"
    data = [f"--data_dir={corpus.data_dir}", "--preset=enwik8_base", "--batch_size=4", "--tgt_len=8"]
    flags = [*SIZES, *SHORT, *EVAL, *data, "--train_steps=4", "--eval_tokens=300", "--seed=7"]
    done = command(f"--model_dir={run}", *flags)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(run), flags, done.stdout


def test_evaluations_read_a_part_of_valid_and_say_so(finished, corpus):
    run, _, printed = finished
    whole = corpus.splits["valid"].tokens
    assert f"of the {whole:,} tokens of valid" in printed and "evaluations read about " in printed
    for line in lines(run, "evaluations.jsonl"):
        assert 0 < line["tokens"] < whole / 2 and line["tokens"] + line["tokens_dropped"] + 4 == whole
    more = command(f"--model_dir={run}", f"--eval_tokens={whole + 1}")
    assert more.returncode == 0 and "evaluations read" not in more.stdout, more.stderr


def test_extending_by_the_command(finished, corpus, tmp_path):
    folder, flags, _ = finished
    run = shutil.copytree(folder, tmp_path / "r")
    at = f"--model_dir={run}"
    assert "another --model_dir; --train_steps=N --extend gives it more steps" in command(at).stdout
    for given, said in (
        ([at, "--train_steps=8"], "train_steps=8 (was 4); give the same settings or another --model_dir; more steps "),
        ([at, "--train_steps=8"], "more steps need --extend"),
        ([at, "--train_steps=3"], "train_steps cannot be lowered: steps that were made stay"),
        (
            [at, "--train_steps=3", "--extend"],
            "is a run of 4 steps, and steps that were made stay: give --train_steps ",
        ),
        (
            [at, "--train_steps=8", "--extend", "--learning_rate=1"],
            "learning_rate=1.0 (was 0.00025); give the same settings or another --model_dir\n",
        ),
        ([at, "--extend"], "is a run of 4 steps, and steps that were made stay: give --train_steps above 4"),
        ([f"--model_dir={tmp_path}/none", *flags, "--extend"], "--extend: "),
    ):
        refused = command(*given)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr
    facts = json.loads((run / "corpus.json").read_text())
    (run / "corpus.json").write_text(json.dumps(facts | {"data_dir": f"{tmp_path}/moved"}))
    assert (
        f"{tmp_path}/moved has no corpus any more, and {run} was trained on it: give --data_dir" in command(at).stderr
    )
    (run / "corpus.json").write_text(json.dumps(facts))
    done = command(at, "--train_steps=6", "--extend")
    assert "extended: from step 4 on the learning rate is that of a run of 6 steps\n" in done.stdout
    assert done.returncode == 0 and "continuing at step 4 of 6" in done.stdout, done.stderr
    again = command(at, *flags, "--train_steps=9", "--extend")  # the command that began the run, with more steps
    assert again.returncode == 0 and "continuing at step 6 of 9" in again.stdout, again.stderr
    settings = json.loads((run / "config.json").read_text())["train"]
    assert (settings["train_steps"], settings["extended_at"]) == (9, [4, 6])
    assert [line["step"] for line in lines(run)] == list(range(1, 10))
    assert "finished at step 9 of 9" in command(at).stdout
    for given in (flags, [f"--settings_from={run}", f"--data_dir={corpus.data_dir}"]):  # without its history
        same = command(at, *given, "--train_steps=9")
        assert same.returncode == 0 and "finished at step 9 of 9" in same.stdout, same.stderr
    assert json.loads((run / "config.json").read_text())["train"] == settings
    refused = command(at, *flags)
    assert "other settings: train_steps=4 (was 9); give the same settings" in refused.stderr
    more = [f"--model_dir={tmp_path}/more", f"--settings_from={run}", f"--data_dir={corpus.data_dir}"]
    other = command(*more)  # 9 steps from the first on, at the rates of such a run
    assert other.returncode == 0 and "starting at step 0 of 9" in other.stdout, other.stderr
    assert json.loads((tmp_path / "more/config.json").read_text())["train"]["extended_at"] == []


def test_another_run_with_the_same_settings(finished, corpus, tmp_path):
    folder, _, _ = finished
    new = [f"--model_dir={tmp_path}/new", f"--data_dir={corpus.data_dir}", f"--settings_from={folder}"]
    done = command(*new, "--train_steps=2", "--seed=8")
    assert done.returncode == 0, done.stderr
    theirs, mine = (json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "new"))
    theirs["train"] |= {"train_steps": 2, "seed": 8}
    assert mine == theirs
    for given, said in (
        ([*new, "--preset=demo"], "give --preset or --settings_from, not both"),
        ([*new[:2], f"--settings_from={tmp_path}"], "has no config.json: give the model_dir of a run"),
        ([new[0], new[2]], "give --data_dir: the corpus"),
    ):
        refused = command(*given)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr
