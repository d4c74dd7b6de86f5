"""Without same_length the cut into segments matters: results are those of the model with mems that reads the same."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, draw, random_model, read

from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.inference.causal.beam import BeamSearch
from txl_tf.inference.causal.draw_token import Choice
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.served_causal import ServedCausal
from txl_tf.inference.generation.generator import Generator

S = 8  # tokens in a segment; the memory holds 24, the longest text here has 51
LENGTHS = [1, 8, 9, 51, 40, 2, 17]
SETTINGS = {"temperature": 1.3, "top_k": 40, "repetition_penalty": 1.2, "typical_p": 0.9}


@pytest.fixture(scope="module", params=["zeros", "empty"])
def generator(request):
    """A Generator in float64 whose reach has no same_length."""
    config = dataclasses.replace(CONFIG, dtype="float64", same_length=False, mem_init=request.param)
    return Generator(random_model(config), config.reach, segment=S, jit_compile=False)


@pytest.fixture(scope="module")
def texts():
    return np.random.default_rng(5).integers(0, 256, [len(LENGTHS), max(LENGTHS)]).astype(np.int32)


def cut(n):
    """The lengths of the segments in which a prompt of n tokens is read."""
    whole = (n - 1) // S
    return [S] * whole + [1] * (n - whole * S)


def continued(model, ids, seed, count, settings):
    """The ids that the model with mems makes after a prompt, token by token, and its log-probabilities of each."""
    rows, mems = read(model, ids, cut(len(ids)))
    ids, total, row, values = ids.tolist(), 0.0, rows[-1], Choice.of([], **settings).values
    for _ in range(count):
        seen, log_prob = np.isin(np.arange(256), ids), tf.constant(row[None], tf.float32)
        token = int(draw(log_prob, tf.constant(seen[None]), tf.constant([seed]), tf.constant([len(ids)]), values)[0])
        ids.append(token)
        total += row[token]
        (row,), mems = read(model, [token], [1], mems)
    return ids[-count:], total


def test_the_cut_matters_and_same_length_makes_it_not(texts):
    """Or the tests below would prove nothing."""
    config = dataclasses.replace(CONFIG, dtype="float64")
    for same_length, differs in [(False, True), (True, False)]:
        model = random_model(dataclasses.replace(config, same_length=same_length))
        one, other = (read(model, texts[3], cuts)[0] for cuts in (cut(51), [1] * 51))
        assert (np.abs(one - other).max() > 1e-3) == differs


def test_scores_are_those_of_the_model_that_reads_segments(generator, texts):
    found = generator.score(tf.constant(texts), tf.constant(LENGTHS), 10).numpy()
    for row, ids, n in zip(found, texts, LENGTHS, strict=True):
        inputs = np.array([10, *ids[: n - 1]], np.int32)
        expected = read(generator.model, inputs, [S] * (n // S) + [n % S] * (n % S > 0))[0][range(n), ids[:n]]
        np.testing.assert_allclose(row[:n], expected, rtol=0, atol=1e-9)


def test_prompts_of_any_lengths_are_each_read_in_their_own_segments(generator, texts):
    """After its whole segments every row's log-probabilities are the model's, however many its neighbours have."""
    layout = generator.lay_out(tf.constant(texts), tf.constant(LENGTHS), tf.constant(1))
    assert layout.own.numpy().tolist() == [(n - 1) // S for n in LENGTHS]
    draft = generator.read_on(generator.begin(len(texts)), layout.segments, layout.own)
    hidden, cache = generator.decoder(layout.given[:, :1], draft.cache)
    found = generator.model.log_prob(hidden)[:, 0]
    for i, (row, n) in enumerate(zip(found, LENGTHS, strict=True)):
        at = (n - 1) // S * S
        expected = read(generator.model, texts[i, : at + 1], cut(n)[: at // S + 1])[0][-1]
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-9)
        assert cache.length[i] == at + 1
        assert set(texts[i, :at]) <= set(np.flatnonzero(draft.seen[i])) <= set(texts[i, : at + 1])


@pytest.mark.parametrize(
    "settings",
    [pytest.param({"temperature": 0.0}, id="greedy"), pytest.param(SETTINGS, id="sampled")],
)
def test_generation_is_the_model_that_reads_the_prompt_in_segments(generator, texts, settings):
    seeds = list(range(len(LENGTHS)))
    found = generator.generate(texts, LENGTHS, 30, Choice.of(seeds, **settings)).numpy()
    for row, ids, n, seed in zip(found, texts, LENGTHS, seeds, strict=True):
        assert row.tolist() == continued(generator.model, ids[:n], seed, 30, settings)[0]


def test_beam_search_reads_prompts_alike(generator, texts):
    one = BeamSearch(generator, 1, jit_compile=False)
    tokens, totals = one.search(texts, LENGTHS, 6, tf.constant([], tf.int32), 0.0)
    for row, total, ids, n in zip(tokens, totals, texts, LENGTHS, strict=True):
        expected, log_prob = continued(generator.model, ids[:n], 0, 6, {"temperature": 0.0})
        assert row[0].numpy().tolist() == expected
        assert float(total[0]) == pytest.approx(log_prob, abs=1e-4)


@pytest.mark.slow
def test_a_stream_and_a_batch_are_the_text_alone():
    model = LanguageModel(random_model(dataclasses.replace(CONFIG, same_length=False)), ByteVocabulary())
    prompts = ["", "ab", "wörter " * 30, "import os\n" * 15]
    batch = model.generate(prompts, 40, seed=[1, 2, 3, 4], top_p=0.9)
    for seed, prompt, text in zip((1, 2, 3, 4), prompts, batch, strict=True):
        assert model.generate(prompt, 40, seed=seed, top_p=0.9) == text
        assert "".join(model.stream(prompt, 40, seed=seed, top_p=0.9)) == text
    same_length = dataclasses.replace(CONFIG.reach, same_length=True)
    other = LanguageModel(model.model, model.vocabulary, same_length)
    assert abs(other.score(prompts[2]).total - model.score(prompts[2]).total) > 1e-2  # honoured, not ignored


def test_a_session_of_the_saved_model_keeps_all_that_the_model_does(generator, texts):
    """The cache that goes out and in holds M slots. Without same_length, too, the model sees no more."""
    served = ServedCausal(generator, ByteVocabulary())
    cache = served.initial_cache(1)
    pieces, cuts = [], []
    for n in (19, 3, 8, 21):  # a call reads whole segments first, then single tokens
        at = sum(cuts)
        out = served.step(tf.constant(texts[3:4, at : at + n]), **cache)
        pieces.append(out.pop("log_probs")[0])
        cache = out
        cuts += [S] * (n // S) + [1] * (n % S)
    expected = read(generator.model, texts[3], cuts)[0]
    np.testing.assert_allclose(np.concatenate(pieces), expected, rtol=0, atol=2e-6)  # in float32

    cache, made, tokens = served.initial_cache(1), [], texts[3:4]
    for n in (1, 5, 20):
        values = Choice.of([], **SETTINGS).values
        out = served.write(tokens, **cache, max_tokens=tf.constant(n), seeds=tf.constant([3]), **values)
        made.append(out.pop("made").numpy())
        cache, tokens = out, made[-1][:, -1:]
    assert np.concatenate(made, axis=1)[0].tolist() == continued(generator.model, texts[3], 3, 26, SETTINGS)[0]
