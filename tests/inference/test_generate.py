"""Generation and scoring against the model with mems, one token at a time."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.inference.generate import CHUNK

# Shorter and longer than a segment (64) and than the memory (24), and none at all.
PROMPTS = ["", "ab", "def f(x):\n    return x", "q" * 64, "wörter " * 20, "import os\n" * 15]


def reference_log_probs(lm, ids):
    """Log-probabilities [n, V] after each token, by the model with mems, fed token by token."""
    mems = lm.model.initial_mems(1)
    rows = []
    for token in ids:
        hidden, mems = lm.model(tf.constant([[token]], tf.int32), mems)
        rows.append(lm.model.log_prob(hidden)[0, 0].numpy())
    return np.array(rows)


def test_greedy_takes_the_most_likely_token_after_every_prefix(byte_model):
    ids = byte_model.vocabulary.encode(PROMPTS[4])[:100]
    lengths = np.arange(1, 101, dtype=np.int32)
    found = byte_model.generator.generate(np.tile(ids, [100, 1]), lengths, 1, np.zeros(100, np.int32), 0.0, 0, 1.0)
    expected = reference_log_probs(byte_model, ids).argmax(-1)
    np.testing.assert_array_equal(found[:, 0], expected)
    assert len(set(expected)) > 3  # a model that says always the same would prove little


@pytest.mark.parametrize("settings", [{"temperature": 1.0}, {"temperature": 0.7, "top_k": 20, "top_p": 0.9}])
def test_a_batch_of_prompts_equals_the_single_prompts_and_the_stream(byte_model, settings):
    seeds = [11, 12, 13, 14, 15, 16]
    batch = byte_model.generate(PROMPTS, 70, seed=seeds, **settings)
    assert len(set(batch)) == len(batch)
    for prompt, seed, text in zip(PROMPTS, seeds, batch, strict=True):
        assert byte_model.generate(prompt, 70, seed=seed, **settings) == text
        assert "".join(byte_model.stream(prompt, 70, seed=seed, **settings)) == text


def test_a_row_depends_on_its_seed_and_not_on_its_place(byte_model):
    one, two, three = byte_model.generate(["x", "x", "x"], 40, seed=[5, 6, 5])
    assert one == three != two


def test_the_stream_comes_in_pieces_the_first_of_them_early(byte_model):
    pieces = list(byte_model.stream("x", 100, seed=1))
    assert len(pieces) >= 100 / 16
    assert len(pieces[0].encode()) <= 4


def test_resuming_from_a_cache_equals_one_run(byte_model):
    generator, n = byte_model.generator, 50
    settings = [tf.constant([3]), tf.constant(1.0), tf.constant(0), tf.constant(1.0)]
    given = np.full([1, CHUNK], -1, np.int32)
    given[0, :5] = byte_model.vocabulary.encode("hello")

    def run(cache, last, given, n):
        return generator.decode(cache, last, tf.constant(given), tf.constant(n), *settings)

    whole, last, cache = run(generator.initial_cache(1), tf.constant([0]), given, n)
    first, last_first, cache_first = run(generator.initial_cache(1), tf.constant([0]), given, 20)
    second, last_second, cache_second = run(cache_first, last_first, np.full_like(given, -1), n - 20)
    np.testing.assert_array_equal(whole[0, :n], np.concatenate([first[0, :20], second[0, : n - 20]]))
    np.testing.assert_array_equal(last, last_second)
    assert int(cache.start) == int(cache_second.start)
    for one, other in zip(cache.keys + cache.values, cache_second.keys + cache_second.values, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_scores_are_those_of_the_model_with_mems(byte_model):
    texts = ["", "a", "wörter " * 20, "xyz" * 30]
    scores = byte_model.score(texts)
    for text, score in zip(texts, scores, strict=True):
        ids = byte_model.vocabulary.encode(text)
        inputs = [byte_model.vocabulary.start_token, *ids[:-1]]
        expected = reference_log_probs(byte_model, inputs)[range(len(ids)), ids] if len(ids) else []
        np.testing.assert_allclose(score.log_probs, expected, rtol=0, atol=1e-4)
        assert score.total == pytest.approx(np.sum(expected), abs=1e-3)
        np.testing.assert_array_equal(score.ids, ids)
    assert byte_model.score(texts[2]).total == pytest.approx(scores[2].total, abs=1e-4)


def test_wrong_settings_are_refused_in_one_line(byte_model):
    with pytest.raises(InputError, match="max_tokens=0"):
        byte_model.generate("x", 0)
    with pytest.raises(InputError, match=r"top_p=1\.5"):
        byte_model.stream("x", 5, top_p=1.5)
