"""A long evaluation on a CPU tries both methods, and goes on with the faster one."""

import dataclasses

import numpy as np
import pytest
from causal_runs import evaluator as make_evaluator
from random_model import CONFIG, random_model
from replicas import one_device

from txl_tf.inference import evaluate, faster_steps
from txl_tf.inference.faster_steps import WORTH, FasterSteps
from txl_tf.models.transformer_xl.config import EvalConfig


class Machine:
    """A clock, and methods whose steps and first calls take so many seconds of it."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def method(self, name, first, step):
        def score_steps(iterator, state, n):
            self.now += int(n) * step + (first if name not in self.calls else 0)
            self.calls.append(name)
            return f"{iterator} {state} {name}"

        return score_steps

    def evaluate(self, steps, total, per_call=50):
        done = 0
        while done < total:
            n = min(per_call, total - done) if done else 1
            assert steps("iterator", "state", n, total - done - n) == f"iterator state {self.calls[-1]}"
            done += n


@pytest.mark.parametrize(("second", "faster"), [(0.9, True), (0.97, False)])
def test_the_faster_method_is_found_once_and_kept(second, faster):
    machine = Machine()
    steps = FasterSteps(machine.method("first", 5, 1), lambda: machine.method("second", 9, second), lambda: machine.now)
    machine.evaluate(steps, 301)
    kept = "second" if faster else "first"
    assert machine.calls == ["first"] * 2 + ["second"] * 2 + [kept] * 3
    machine.calls.clear()
    machine.evaluate(steps, 301)
    assert machine.calls == [kept] * 7


@pytest.mark.parametrize(("step", "tried"), [(WORTH / 260, False), (WORTH / 240, True)])
def test_nothing_is_tried_if_little_is_left(step, tried):
    machine = Machine()
    steps = FasterSteps(
        machine.method("first", 5, step), lambda: machine.method("second", 9, step / 2), lambda: machine.now
    )
    machine.evaluate(steps, 301)
    assert ("second" in machine.calls) is tried


def test_a_trial_that_an_evaluation_ends_goes_on_in_the_next_with_a_call_of_several_steps():
    machine = Machine()
    steps = FasterSteps(machine.method("first", 5, 2), lambda: machine.method("second", 9, 1), lambda: machine.now)
    machine.evaluate(steps, 101)
    machine.evaluate(steps, 2, per_call=1)
    assert machine.calls == ["first", "first", "second", "second", "second"] and not steps._decided
    machine.evaluate(steps, 51)
    assert steps._decided and machine.calls[-1] == "second"


@pytest.mark.xla
@pytest.mark.parametrize(
    ("dtype", "loss_rtol", "atol", "mean_error"),
    [("float32", 1e-6, 1e-4, 1e-5), ("mixed_bfloat16", 1e-2, 3.0, 0.05)],  # large weights: one token may differ much
)
def test_an_evaluation_that_changes_methods_gives_the_result_of_one(
    dtype, loss_rtol, atol, mean_error, corpus, monkeypatch
):
    model, strategy = random_model(dataclasses.replace(CONFIG, dtype=dtype)), one_device()
    tried = []

    class Tried(FasterSteps):
        def __call__(self, *arguments, **options):
            scores = super().__call__(*arguments, **options)
            tried.append((self._trial is not None, self._decided))
            return scores

    def result(jit_compile, may_change=True):
        evaluation = EvalConfig(batch_size=2, tgt_len=9, jit_compile=jit_compile)  # not several segments at once
        recorded = []
        found = make_evaluator(model, corpus, "valid", evaluation, CONFIG.reach, strategy, may_change=may_change)(
            record=lambda *tokens: recorded.extend(tokens)
        )
        return found["loss"], *recorded

    monkeypatch.setattr(evaluate, "STEPS_PER_CALL", 3)
    wanted_loss, *wanted = result(jit_compile=False)
    monkeypatch.setattr(evaluate, "FasterSteps", Tried)
    monkeypatch.setattr(faster_steps, "WORTH", 0.0)
    loss, *found = result(jit_compile=True)
    assert tried[2:4] == [(True, False), (False, True)] and len(tried) > 4
    assert loss == pytest.approx(wanted_loss, rel=loss_rtol)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], atol=atol)
    assert np.mean(np.abs(found[1] - wanted[1])) < mean_error
    tried.clear()
    result(jit_compile=True, may_change=False)
    assert set(tried) == {(False, True)}, "training's evaluations stay with one method"
