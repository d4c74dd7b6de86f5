"""Spans and orders: token by token the published rule, and the published numbers."""

import fractions

import numpy as np
import pytest
import tensorflow as tf
import xlnet_rules

from txl_tf.data.xlnet.spans import permutation_ranks, sample_spans
from txl_tf.hashing import numbered_seeds, random_bits, split_seed
from txl_tf.settings.pretraining import PermutationLMConfig

RULE = PermutationLMConfig()  # P 85, 6 tokens of context for one, up to 5 tokens
ROWS, HALF = 3000, 256


def seeds_of(rows, run=(1, 0)):
    return numbered_seeds(tf.constant(run), tf.range(rows))


def expected(starts, goal, rule, seed, singles=None):
    """One row by the rule, given the draws of its seed; `singles`, a list, gets the tokens that were drawn singly."""
    singles = [] if singles is None else singles
    span_seed, single_seed = (part.numpy() for part in split_seed(tf.constant(seed)[None], 2))
    spans = iter(range(goal + 1))
    now = {}

    def draw_size():
        now["bits"] = random_bits([1, 2], numbered_seeds(tf.constant(span_seed), next(spans))).numpy()[0].astype(object)
        shares = np.cumsum([1 / n for n in range(1, rule.max_span + 1)])
        return 1 + int(np.searchsorted(shares[:-1] / shares[-1], now["bits"][0] / 2**32, side="right"))

    def draw_before(context):
        return int(now["bits"][1]) * context >> 32

    order = random_bits([1, len(starts)], tf.constant(single_seed)).numpy()[0]

    def draw_single(chosen):
        singles.append(min(np.flatnonzero(~chosen), key=lambda place: order[place]))
        return singles[-1]

    fraction = fractions.Fraction(rule.mask_alpha).limit_denominator(9)
    return xlnet_rules.sample_spans(starts, goal, draw_size, draw_before, draw_single, *fraction.as_integer_ratio())


@pytest.mark.parametrize(
    ("length", "goal", "share", "rule"),
    [
        (HALF, 43, 0.6, RULE),
        (HALF, 42, 0.02, RULE),  # hardly a place to begin: nearly all are single tokens
        (40, 30, 0.9, RULE),  # more than fits with its context
        (31, 9, 0.5, PermutationLMConfig(mask_alpha=7 / 3, max_span=3)),
        (16, 16, 1.0, PermutationLMConfig(mask_alpha=2.0, max_span=1)),
    ],
)
def test_spans_are_those_of_the_rule_token_by_token(rng, length, goal, share, rule):
    starts, seeds = rng.random([12, length]) < share, seeds_of(12)
    drawn = sample_spans(tf.constant(starts), goal, rule, seeds).numpy()
    for row in range(12):
        np.testing.assert_array_equal(drawn[row], expected(starts[row], goal, rule, seeds[row].numpy()))
    np.testing.assert_array_equal(drawn.sum(axis=1), goal)


def test_a_row_depends_on_its_own_seed_alone(rng):
    starts, seeds = tf.constant(rng.random([6, 50]) < 0.5), seeds_of(6)
    drawn = sample_spans(starts, 12, RULE, seeds)
    alone = tf.function(sample_spans)(starts[4:5], 12, RULE, seeds[4:5])
    np.testing.assert_array_equal(alone[0], drawn[4])
    assert not np.array_equal(drawn, sample_spans(starts, 12, RULE, seeds_of(6, (2, 0))))


@pytest.fixture(scope="module")
def many():
    """Both halves' targets in many segments whose tokens may all begin a span: bool [ROWS, 256] each."""
    starts = tf.ones([ROWS, HALF], tf.bool)
    return [sample_spans(starts, goal, RULE, seeds_of(ROWS, (3, goal))).numpy() for goal in (43, 42)]


def test_43_and_42_of_512_tokens_are_drawn(many):
    assert [set(half.sum(axis=1)) for half in many] == [{43}, {42}]
    assert RULE.num_predict == 85


def test_first_spans_lengths_go_with_one_over_their_length(many):
    """0.438, 0.219, 0.146, 0.1095, 0.0876. With a goal of 5 nothing cuts the first span short, nor joins the second."""
    drawn = sample_spans(tf.ones([20_000, 64], tf.bool), 5, RULE, seeds_of(20_000)).numpy()
    places = np.array([np.flatnonzero(row) for row in drawn])
    gaps = np.pad(np.diff(places) > 1, [[0, 0], [0, 1]], constant_values=True)
    lengths = np.argmax(gaps, axis=1) + 1
    shares = np.bincount(lengths, minlength=6)[1:] / len(lengths)
    np.testing.assert_allclose(shares, [0.438, 0.219, 0.146, 0.1095, 0.0876], atol=0.012)


def test_spans_begin_at_starts_and_single_tokens_anywhere(rng):
    starts = np.zeros([400, HALF], bool)
    starts[:, ::4] = True
    drawn = sample_spans(tf.constant(starts), 43, RULE, seeds_of(400)).numpy()
    before = np.pad(drawn, [[0, 0], [1, 0]])[:, :-1]
    first = drawn & ~before
    assert (first & starts).sum() > 0.5 * first.sum()  # a quarter of all tokens are starts


def test_orders_are_permutations_of_blocks():
    ranks = permutation_ranks(12, 4, seeds_of(500)).numpy()
    blocks = ranks.reshape(500, 3, 4) - np.arange(3)[:, None] * 4
    np.testing.assert_array_equal(np.sort(blocks, axis=2), np.broadcast_to(np.arange(4), blocks.shape))
    np.testing.assert_array_equal(blocks[:, 0], blocks[:, 2])  # one permutation for all blocks, as officially
    kinds, counts = np.unique(blocks[:, 0], axis=0, return_counts=True)
    assert len(kinds) == 24 and counts.max() < 45  # 500 / 24 = 21 on average
    assert set(permutation_ranks(HALF, HALF, seeds_of(1)).numpy()[0]) == set(range(HALF))


def test_a_part_may_end_within_a_block():
    ranks = permutation_ranks(10, 4, seeds_of(50)).numpy()
    assert all(len(set(row)) == 10 for row in ranks) and ranks.max() == 11


def test_a_seventh_of_the_text_is_drawn_by_spans_and_a_sixth_in_all(many):
    """Spans cover n of 7 n tokens, 36.6 of 256; single tokens make up 43 and 42."""
    starts, seeds, singles = np.ones(HALF, bool), seeds_of(60, (5, 5)), []
    drawn = sample_spans(tf.constant([starts] * 60), 80, RULE, seeds).numpy()  # a goal that spans do not meet
    for row in range(60):
        np.testing.assert_array_equal(drawn[row], expected(starts, 80, RULE, seeds[row].numpy(), singles))
    assert 80 - len(singles) / 60 == pytest.approx(HALF / 7, abs=1.5)
    np.testing.assert_allclose([half.mean() for half in many], [43 / 256, 42 / 256])
