"""RECL on losses whose true context lengths are known, and losses on contexts cut off at a known length."""

import numpy as np
import pytest

from txl_tf.inference.causal.recl import context_losses, draw_positions, effective_context_lengths, relative_gains
from txl_tf.models.transformer_xl.config import Reach, TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL

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


@pytest.mark.parametrize("attn_type", ["transformer_xl", "shaw", "vaswani", "alrfou"])
def test_context_losses_see_so_many_tokens_and_no_more(attn_type):
    model = small_model(attn_type)
    rng = np.random.default_rng(0)
    text, other = rng.integers(0, 11, [2, 40]).astype(np.int32)
    other[20:] = text[20:]  # the texts differ before all contexts of 9
    positions, lengths = np.array([29, 33]), [3, 9]
    found = context_losses(model, text, positions, lengths)
    np.testing.assert_array_equal(found, context_losses(model, other, positions, lengths))
    longer = context_losses(model, text, positions, [19])
    assert np.all(longer[:, :1] != context_losses(model, other, positions, [19])[:, :1])
    for row, context in zip(found, lengths, strict=True):
        for loss, position in zip(row, positions, strict=True):
            window = text[None, position - context : position + 1]
            hidden, _ = model(window[:, :-1], reach=Reach(0))
            assert loss == pytest.approx(float(model.nll(hidden, window[:, 1:])[0, -1]), abs=1e-5)


def test_positions_are_drawn_where_the_longest_context_fits(corpus):
    tokens, positions = draw_positions(corpus, "test", count=5, longest=70)
    assert len(tokens) == corpus.split("test").tokens - 1
    assert positions.min() >= 70 and positions.max() < len(tokens)


def small_model(attn_type):
    sizes = {"n_layer": 2, "d_model": 8, "d_embed": 8, "n_head": 2, "d_head": 4, "d_inner": 16, "mem_len": 4}
    return TransformerXL(TransformerXLConfig(vocab_size=11, attn_type=attn_type, max_klen=8, init_std=0.5, **sizes))
