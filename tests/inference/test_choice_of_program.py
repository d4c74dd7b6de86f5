"""A long evaluation on a CPU times a step with XLA and without, before it counts anything."""

import numpy as np
import pytest
from causal_runs import evaluator as make_evaluator
from random_model import CONFIG, random_model
from replicas import one_device

from txl_tf.inference import evaluate
from txl_tf.models.transformer_xl.config import EvalConfig


def evaluator(corpus, jit_compile=True, **options):
    evaluation = EvalConfig(batch_size=2, tgt_len=9, jit_compile=jit_compile)  # not several segments at once
    return make_evaluator(random_model(CONFIG), corpus, "valid", evaluation, CONFIG.reach, one_device(), **options)


def result(an_evaluator):
    recorded = []
    loss = an_evaluator(record=lambda *tokens: recorded.extend(tokens))["loss"]
    return loss, recorded[1]


@pytest.fixture
def timed(monkeypatch):
    """The programs whose steps are timed, in order; each takes the next of `timed.seconds`."""

    class Timed(list):
        seconds = ()

    made = Timed()
    monkeypatch.setattr(
        evaluate.Evaluator, "_seconds", lambda _, steps: made.append(steps) or made.seconds[len(made) - 1]
    )
    return made


@pytest.mark.xla
@pytest.mark.parametrize(
    ("seconds", "trials", "jit_compile"),
    [((1.0, 0.9), 2, False), ((1.0, 0.97), 2, True), ((0.1,), 1, True)],
    ids=["the other is faster", "the other is hardly faster", "a short evaluation"],
)
def test_one_program_scores_all_steps(seconds, trials, jit_compile, corpus, timed):
    timed.seconds = seconds
    chosen = evaluator(corpus, choose=True)
    loss, scores = result(chosen)
    assert len(timed) == trials
    wanted_loss, wanted = result(evaluator(corpus, jit_compile))
    assert loss == wanted_loss  # to the last digit: no step was scored by the other program, and none of a trial
    np.testing.assert_array_equal(scores, wanted)
    assert result(chosen)[0] == wanted_loss and len(timed) == trials  # the choice is kept


def test_evaluations_while_training_choose_nothing(corpus, timed):
    result(evaluator(corpus))
    assert not timed


def test_a_trial_leaves_no_trace(corpus, monkeypatch):
    monkeypatch.setattr(evaluate, "LONG", 0.0)
    monkeypatch.setattr(evaluate, "FASTER", 0.0)  # the other program is timed, and never taken
    chosen = evaluator(corpus, choose=True)
    loss, scores = result(chosen)
    wanted_loss, wanted = result(evaluator(corpus))
    assert loss == wanted_loss
    np.testing.assert_array_equal(scores, wanted)
