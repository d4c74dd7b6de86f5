"""The text sample of a model in training."""

import dataclasses

import pytest

from txl_tf.data.prepare import prepare
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.text_sampler import PROMPT_TOKENS, SAMPLE_TOKENS, SEED, TEMPERATURE, TextSampler
from txl_tf.models.transformer_xl.model import TransformerXL

CHOICES = {"words": {"min_count": 1}, "sentencepiece": {"vocab_size": 278}, "chars": {}}


def assert_continues(sampler, model, vocabulary, reach):
    """The sample is what `generate` makes of the same prompt, seed and weights."""
    expected = LanguageModel(model, vocabulary, reach).generate(
        sampler.prompt, SAMPLE_TOKENS, temperature=TEMPERATURE, seed=SEED
    )
    assert sampler() == expected


@pytest.mark.slow
def test_the_sample_follows_the_weights_and_is_traced_once(byte_model, corpus):
    reach = dataclasses.replace(byte_model.model.config.reach, same_length=True)
    model = TransformerXL(byte_model.model.config)
    sampler = TextSampler(model, corpus, reach, jit_compile=False)
    assert len(corpus.vocabulary.encode(sampler.prompt)) == PROMPT_TOKENS
    before = sampler()
    assert sampler() == before
    assert_continues(sampler, model, corpus.vocabulary, reach)
    traces = sampler._generator.many_steps.experimental_get_tracing_count()
    model.set_weights(byte_model.model.get_weights())
    assert sampler() != before
    assert_continues(sampler, model, corpus.vocabulary, reach)
    assert sampler._generator.many_steps.experimental_get_tracing_count() == traces == 1


@pytest.mark.parametrize("vocab", CHOICES)
def test_any_kind_of_token(byte_model, tmp_path, vocab):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a rose is a rose is a rose\n" * 30)
    data_dir = f"{tmp_path}-data"
    corpus = prepare("text", data_dir, source=str(tmp_path), vocab=vocab, **CHOICES[vocab])
    model = TransformerXL(dataclasses.replace(byte_model.model.config, vocab_size=corpus.vocab_size))
    sampler = TextSampler(model, corpus, model.config.reach, jit_compile=False)
    assert sampler.prompt.startswith("a rose is a rose")
    assert sampler() == sampler()
