"""The NumPy XLNet itself: what must hold whatever the weights are. Other code's results: published/xlnet_oracles.py."""

import copy

import numpy as np
import pytest
import reference
import reference_xlnet as xlnet
from reference_xlnet import CONTEXT, FUNCTIONAL, TARGET

T, M = 7, 5


@pytest.fixture
def weights(rng):
    return xlnet.random_weights(rng)


@pytest.fixture
def lane(rng):
    """Tokens, segments, memory and a mask of one lane."""
    rank, kind = rng.permutation(T), np.array([CONTEXT, TARGET, TARGET, CONTEXT, TARGET, FUNCTIONAL, TARGET])
    return {
        "tokens": rng.integers(0, 11, T),
        "segments": np.array([0, 0, 0, 1, 1, 1, 2]),
        "memory": list(rng.normal(size=[2, M, 8])),
        "visible": xlnet.permutation_visible(rank, kind),
        "targets": [1, 2, 4, 6],
    }


def test_a_factorization_order_by_hand():
    kind = [TARGET, CONTEXT, FUNCTIONAL, TARGET, CONTEXT]
    assert xlnet.permutation_visible([2, 0, 1, 3, 4], kind).astype(int).tolist() == [
        [0, 1, 1, 0, 1],  # a target: the context and what came before it
        [0, 1, 0, 0, 1],  # context: only context
        [0, 1, 1, 0, 1],  # a functional: itself, too
        [1, 1, 1, 0, 1],
        [0, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize("reuse_len", [0, 4, 9])
def test_factorization_orders_are_those_of_the_official_comparison(rng, reuse_len):
    for _ in range(50):
        kind = rng.integers(0, 3, 12)
        rank = np.concatenate([rng.permutation(reuse_len), reuse_len + rng.permutation(12 - reuse_len)])
        revealed = np.where(kind == CONTEXT, -1, rank)
        own = np.where(kind == TARGET, rank, revealed + 1)
        expected = own[:, None] > revealed[None, :]
        expected[:reuse_len, reuse_len:] = False
        expected[reuse_len:, :reuse_len] = True
        np.testing.assert_array_equal(xlnet.permutation_visible(rank, kind, reuse_len), expected)


@pytest.mark.parametrize("clamp_len", [-1, 3])
def test_causal_attention_without_segments_is_that_of_transformer_xl(rng, weights, clamp_len):
    layer = weights["layers"][0]
    names = {"q": "query_kernel", "k": "key_kernel", "v": "value_kernel", "r": "position_kernel"}
    names |= {"o": "output_kernel", "u": "content_bias", "w": "position_bias"}
    hidden, memory, seen = rng.normal(size=[T, 8]), rng.normal(size=[M, 8]), reference.visible(T, M)
    np.testing.assert_allclose(
        xlnet.attention(hidden, range(T), hidden, memory, layer, seen, None, 1, clamp_len),
        reference.attention(hidden, memory, {ours: layer[name] for ours, name in names.items()}, seen, clamp_len),
        rtol=1e-12,
    )


def test_text_reversed_in_direction_minus_one_is_the_same(weights, lane):
    del lane["memory"]
    forward = xlnet.xlnet(weights, **lane)
    for name in ("tokens", "segments"):
        lane[name] = lane[name][::-1]
    lane["visible"] = lane["visible"][::-1, ::-1]
    lane["targets"] = [T - 1 - target for target in lane["targets"]]
    for direction, same in ((-1, True), (1, False)):
        backward = xlnet.xlnet(weights, **lane, direction=direction)
        assert np.allclose(backward.content[-1], forward.content[-1][::-1], atol=1e-12) == same
        assert np.allclose(backward.query[-1], forward.query[-1], atol=1e-12) == same


def test_only_the_difference_of_the_segment_table_counts(rng, weights, lane):
    before, shifted, changed = xlnet.xlnet(weights, **lane).output, copy.deepcopy(weights), copy.deepcopy(weights)
    shifted["layers"][0]["segment_table"] += rng.normal(size=[1, 2, 4])
    changed["layers"][0]["segment_table"][1] += rng.normal(size=[2, 4])
    np.testing.assert_allclose(xlnet.xlnet(shifted, **lane).output, before, atol=1e-12)
    assert np.abs(xlnet.xlnet(changed, **lane).output - before).max() > 1e-3


def test_memory_is_of_segment_zero(rng, weights, lane):
    first = xlnet.xlnet(weights, **lane).output
    renamed = xlnet.xlnet(weights, **lane | {"segments": np.array([3, 3, 3, 1, 1, 1, 2])}).output
    assert np.abs(first - renamed).max() > 1e-3  # away from the memory's segment
    del lane["memory"]
    first = xlnet.xlnet(weights, **lane).output
    renamed = xlnet.xlnet(weights, **lane | {"segments": np.array([3, 3, 3, 1, 1, 1, 2])}).output
    np.testing.assert_allclose(first, renamed, atol=1e-12)


def test_a_layer_sees_what_the_mask_says_and_content_itself(weights, lane):
    weights["layers"] = weights["layers"][:1]
    lane |= {"memory": lane["memory"][:1], "targets": list(range(T))}
    before = xlnet.xlnet(weights, **lane)
    for j in range(T):
        tokens = lane["tokens"].copy()
        tokens[j] = (tokens[j] + 1) % 11
        after = xlnet.xlnet(weights, **lane | {"tokens": tokens})
        query, content = (
            np.abs(old - new).max(-1) > 1e-9
            for old, new in ((before.query[-1], after.query[-1]), (before.content[-1], after.content[-1]))
        )
        np.testing.assert_array_equal(query, lane["visible"][:, j])
        np.testing.assert_array_equal(content, lane["visible"][:, j] | (np.arange(T) == j))


def test_padding_is_seen_by_itself_alone(weights, lane):
    real = np.arange(T) >= 2
    before = xlnet.xlnet(weights, **lane, real=real)
    after = xlnet.xlnet(weights, **lane | {"tokens": np.where(real, lane["tokens"], 0)}, real=real)
    changed = np.abs(before.content[-1] - after.content[-1]).max(-1) > 1e-9
    np.testing.assert_array_equal(changed, ~real & (lane["tokens"] != 0))
    np.testing.assert_array_equal(before.output, after.output)


def test_both_forms_of_the_query_stream_predict_alike(weights, lane):
    targets = lane.pop("targets")
    rows = xlnet.xlnet(weights, **lane, targets=targets)
    whole = xlnet.xlnet(weights, **lane, is_target=np.isin(np.arange(T), targets))
    np.testing.assert_allclose(rows.query[-1], whole.query[-1][targets], atol=1e-12)
    np.testing.assert_array_equal(rows.content[-1], whole.content[-1])


def test_a_padded_prediction_knows_nothing_and_changes_nothing(weights, lane):
    padded = xlnet.xlnet(weights, **lane | {"targets": [1, 2, -1]})
    other = xlnet.xlnet(weights, **lane | {"tokens": lane["tokens"][::-1], "targets": [-1]})
    np.testing.assert_allclose(padded.output[2], other.output[0], atol=1e-12)
    np.testing.assert_array_equal(padded.output[:2], xlnet.xlnet(weights, **lane).output[:2])


def test_the_first_tokens_enter_the_memory(weights, lane):
    for reuse_len, mem_len in ((0, 9), (3, 6), (3, 2)):
        streams = xlnet.xlnet(weights, **lane, reuse_len=reuse_len, mem_len=mem_len)
        for old, entered, new in zip(lane["memory"], streams.content[:-1], streams.memory, strict=True):
            expected = np.concatenate([old, entered[: reuse_len or T]])
            np.testing.assert_array_equal(new, expected[len(expected) - mem_len :])


def test_shared_biases_are_those_of_every_layer(rng, lane):
    shared = xlnet.random_weights(rng, untie_r=False)
    untied = copy.deepcopy(shared)
    for name in ("content_bias", "position_bias", "segment_bias"):
        bias = untied.pop(name)
        for layer in untied["layers"]:
            layer[name] = bias
    np.testing.assert_array_equal(xlnet.xlnet(shared, **lane).output, xlnet.xlnet(untied, **lane).output)


def test_activations_and_probabilities(rng, weights):
    x = np.array([-1.0, 0.5, 2.0])
    np.testing.assert_allclose(xlnet.gelu(x), [-0.15865525, 0.34573123, 1.95449974], atol=1e-8)
    np.testing.assert_allclose(xlnet.gelu_tanh(x), [-0.15880801, 0.34571401, 1.95459769], atol=1e-8)
    log_probs = xlnet.log_probs(weights, rng.normal(size=[3, 8]))
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1)
