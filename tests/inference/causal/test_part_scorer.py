"""Parts of texts have the log-probabilities that `score` gives, and what texts share is read once."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from random_model import CONFIG, random_model

from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.part_scorer import PartScorer
from txl_tf.inference.causal.served_causal import ServedCausal
from txl_tf.inference.generation.generator import Generator

LONG = "abc def " * 20  # more than two segments


@pytest.fixture(scope="module", params=[True, False], ids=["same_length", "segments"])
def model(request):
    model = LanguageModel(random_model(dataclasses.replace(CONFIG, same_length=request.param)), ByteVocabulary())
    model.generator = Generator(model.model, model.generator.decoder.reach, jit_compile=False)
    return model


def scorer(model, batch_size, calls=None):
    """A PartScorer of the model; `calls` counts the rows that each function reads."""
    served = ServedCausal(model.generator, model.vocabulary)

    def counted(name):
        def call(**given):
            if calls is not None and "tokens" in given:
                calls[name] += len(given["tokens"])
            return getattr(served, name)(**given)

        return call

    names = ("encode", "initial_cache", "read", "step")
    return PartScorer({name: counted(name) for name in names}, model.generator.segment, batch_size)


PARTS = [
    (LONG, 160, " one"),
    (LONG, 160, " two more words" * 9),  # it ends two segments later
    (LONG, 160, "x"),
    ("", 0, "x"),
    ("", 0, ""),
    ("a", 1, ""),
    ("q" * 63, 63, "ab"),
    ("q" * 64, 64, "ab"),  # the context ends with a segment
    ("q" * 64, 64, "ac"),
    ("q" * 65, 65, "b"),
    ("q" * 64, 0, "b" * 64),
]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_parts_of_texts_have_the_log_probabilities_of_whole_texts(batch_size, model):
    """Whatever the border and the batch."""
    parts = scorer(model, batch_size)
    texts = [context + rest for context, _, rest in PARTS]
    readings = [parts.reading(ids, first) for ids, (_, first, _) in zip(parts.encode(texts), PARTS, strict=True)]
    found = {i: total for i, total, _ in parts.scores(readings)}
    wanted = [score.log_probs[first:].sum() for score, (_, first, _) in zip(model.score(texts), PARTS, strict=True)]
    np.testing.assert_allclose([found[i] for i in range(len(PARTS))], wanted, rtol=1e-5, atol=1e-5)
    totals = dict(parts.totals([parts.reading(ids, 0) for ids in parts.encode(texts)]))
    np.testing.assert_allclose(
        [totals[i] for i in range(len(texts))], [score.total for score in model.score(texts)], rtol=1e-5, atol=1e-5
    )


def test_the_likeliest_continuation_is_known_as_such(model):
    """What the model writes without chance is the likeliest; with its last letter changed it is not."""
    parts, prompt = scorer(model, 4), "abc def " * 9
    # `score` begins with the start token, and `generate` does not
    start = model.vocabulary.decode([model.vocabulary.start_token])
    tokens = model.vocabulary.encode(prompt)
    for _ in range(5):
        ids = np.concatenate([[model.vocabulary.start_token], tokens])
        log_probs, _ = model.generator.read(tf.constant(ids[None], tf.int32), model.generator.decoder.initial_cache(1))
        tokens = np.append(tokens, int(np.argmax(log_probs[0, -1])))
        if not model.generator.decoder.reach.same_length:
            break  # a longer text is divided in another way
    assert start
    other = np.append(tokens[:-1], (tokens[-1] + 1) % 256)
    readings = [parts.reading(ids.astype(np.int32), len(prompt)) for ids in (tokens, other)]
    assert {i: greedy for i, _, greedy in parts.scores(readings)} == {0: True, 1: False}


def test_what_texts_share_is_read_once(model):
    """Two contexts of two whole segments with five continuations each; of these, three differ in one last token."""
    calls = collections.Counter()
    parts = scorer(model, 16, calls)
    contexts = ("abcdefgh" * 17, "hgfedcba" * 17)
    rests = ["x", "y", "z", "two", "more"]
    texts = parts.encode(context + rest for context in contexts for rest in rests)
    found = list(parts.scores([parts.reading(ids, 136) for ids in texts]))
    assert len(found) == 10
    assert calls == {"read": 2 * 2, "step": 8}  # 2 contexts in 2 segments; 2 * 3 rests, filled up to 8 rows
