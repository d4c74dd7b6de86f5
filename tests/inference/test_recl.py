"""RECL on losses whose true context lengths are known, and losses on contexts cut off at a known length."""

import numpy as np
import pytest

from txl_tf.inference.generate import Generator
from txl_tf.inference.recl import context_losses, draw_positions, effective_context_lengths, relative_gains
from txl_tf.models.transformer_xl.config import Reach

LENGTHS = [100, 200, 300, 400, 500]


def losses(true_context, rng, gain=0.05):
    """A model that gains by every context length up to its own, and then no more."""
    base = 2.0 + rng.random(1000)
    used = np.minimum(LENGTHS, true_context)
    return np.stack([base - gain * (length - 100) / 100 for length in used])


def test_the_true_context_is_found():
    group = [losses(true, np.random.default_rng(0)) for true in (100, 300, 500)]
    # The baseline falls with the group, so a model is worth its context only while it keeps up with the best.
    assert effective_context_lengths(group, LENGTHS) == [100, 300, 500]


def test_a_model_that_only_catches_up_does_not_gain():
    rng = np.random.default_rng(0)
    strong = losses(100, rng)
    weak = strong + np.array([0.5, 0.3, 0.1, 0.05, 0.0])[:, None]  # improves all the way, but to nothing new
    assert effective_context_lengths([strong, weak], LENGTHS) == [100, 100]
    assert effective_context_lengths([weak], LENGTHS) == [500]  # alone in its group it does


def test_gains_by_hand_on_the_hardest_positions():
    # One model; of four positions half count: those of loss 4 and 3, which fall to 2 and rise to 5 (counted as 3).
    found = relative_gains([[[4.0, 3.0, 1.0, 1.0], [2.0, 5.0, 0.0, 0.0]]], top_r=0.5)
    np.testing.assert_allclose(found, [[(3.5 - 2.5) / 3.5]])


@pytest.mark.parametrize("wrong", [{"top_r": 0.0}, {"top_r": 2.0}, {"context_lengths": [1, 2]}])
def test_wrong_arguments_are_refused(wrong):
    arguments = {"losses": np.ones([1, 5, 3]), "context_lengths": LENGTHS, "top_r": 0.5} | wrong
    with pytest.raises(ValueError, match=next(iter(wrong))):
        effective_context_lengths(**arguments)


def test_context_losses_see_so_many_tokens_and_no_more(byte_model, corpus):
    tokens, positions = draw_positions(corpus, "test", count=5, longest=70)
    assert len(tokens) == corpus.split("test").tokens - 1
    generator = Generator(byte_model.model, Reach(70, same_length=True), jit_compile=False)
    found = context_losses(generator, tokens, positions, [3, 70], batch_size=2)
    for row, context in zip(found, [3, 70], strict=True):
        for loss, position in zip(row, positions, strict=True):
            window = tokens[None, position - context : position + 1]
            hidden, _ = byte_model.model(window[:, :-1], reach=generator.decoder.reach)
            assert loss == pytest.approx(float(byte_model.model.nll(hidden, window[:, 1:])[0, -1]), abs=1e-3)
