"""Beam search against all continuations there are, and against greedy choice."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, random_model

from txl_tf.errors import InputError
from txl_tf.inference.causal.beam import BeamSearch
from txl_tf.inference.generation.generator import Generator
from txl_tf.models.transformer_xl.config import Reach

V, N = 4, 4
PROMPT = [2, 0, 3, 1, 1, 2]


@pytest.fixture(scope="module")
def four_tokens():
    """A Generator over a vocabulary of four tokens."""
    return Generator(random_model(dataclasses.replace(CONFIG, vocab_size=V)), Reach(CONFIG.mem_len, same_length=True))


def all_continuations(generator, ends, length_penalty):
    """Every continuation of N tokens or up to an end, the best first: [(tokens, log-probability)]."""
    rows = np.array(list(itertools.product(range(V), repeat=N)), np.int32)
    texts = np.concatenate([np.tile(np.array([PROMPT], np.int32), [len(rows), 1]), rows], axis=1)
    hidden, _ = generator.model(texts[:, :-1], reach=generator.decoder.reach)
    log_probs = -generator.model.nll(hidden, texts[:, 1:]).numpy()[:, len(PROMPT) - 1 :].astype(np.float64)
    found = {}
    for row, log_prob in zip(rows.tolist(), log_probs, strict=True):
        n = next((i + 1 for i, token in enumerate(row) if token in ends), N)
        kept = row[: n - 1] if row[n - 1] in ends else row
        found[tuple(row[:n])] = (kept, log_prob[:n].sum(), log_prob[:n].sum() / ((5 + n) / 6) ** length_penalty)
    return [entry[:2] for entry in sorted(found.values(), key=lambda entry: -entry[2])]


@pytest.mark.parametrize(("ends", "length_penalty"), [([], 0.0), ([1, 3], 0.0), ([1, 3], 1.5)])
def test_a_beam_of_everything_equals_exhaustive_search(four_tokens, ends, length_penalty):
    search = BeamSearch(four_tokens, V**N, jit_compile=False)
    tokens, scores = search.search([PROMPT], [len(PROMPT)], N, tf.constant(ends, tf.int32), length_penalty)
    tokens, scores = tokens[0].numpy(), scores[0].numpy()
    expected = all_continuations(four_tokens, ends, length_penalty)
    assert np.isfinite(scores).sum() == len(expected)
    for row, score, (kept, total) in zip(tokens, scores, expected, strict=False):
        assert row[row >= 0].tolist() == kept
        assert score == pytest.approx(total, abs=1e-4)
    if ends:
        other = all_continuations(four_tokens, ends, 1.5 - length_penalty)
        assert [kept for kept, _ in other] != [kept for kept, _ in expected]  # the penalty matters here


def test_a_small_beam_is_between_greedy_and_everything(four_tokens):
    best = [
        float(BeamSearch(four_tokens, size, False).search([PROMPT], [6], N, tf.zeros([0], tf.int32), 0.0)[1][0, 0])
        for size in (1, 3)
    ]
    everything = all_continuations(four_tokens, [], 0.0)[0][1]
    assert best[0] <= best[1] <= everything + 1e-4


@pytest.mark.slow
def test_a_batch_of_prompts_equals_the_single_prompts_with_the_scores_of_the_texts(byte_model):
    prompts = ["", "ab", "wörter " * 14, "import os\n" * 8]
    batch = byte_model.search(prompts, 20, beam_size=3)
    for prompt, found in zip(prompts, batch, strict=True):
        assert len({tuple(one.ids) for one in found}) == 3
        alone = byte_model.search(prompt, 20, beam_size=3)
        assert [one.text for one in found] == [one.text for one in alone]
        assert found[0].total >= found[1].total >= found[2].total
        start = byte_model.vocabulary.encode(prompt) if prompt else [byte_model.vocabulary.start_token]
        first, *ids = [*start, *found[0].ids]
        log_probs = byte_model.generator.score(tf.constant([ids]), tf.constant([len(ids)]), first)
        assert len(found[0].ids) == 20
        assert found[0].total == pytest.approx(log_probs.numpy()[0, -20:].sum(), abs=1e-3)


@pytest.mark.slow
def test_one_hypothesis_is_greedy_choice(byte_model):
    for prompt in ("def f(x):", "q" * 70):
        (found,) = byte_model.search(prompt, 70, beam_size=1)
        assert found.text == byte_model.generate(prompt, 70, temperature=0.0)


def test_wrong_settings_are_refused_in_one_line(byte_model):
    with pytest.raises(InputError, match="beam_size=0"):
        byte_model.search("x", 5, beam_size=0)
    with pytest.raises(InputError, match="stop string 'ab' is 2 tokens"):
        byte_model.search("x", 5, stop=["ab"])
