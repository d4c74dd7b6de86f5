import dataclasses

import pytest
from random_model import CONFIG, random_model

from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.inference.causal.generator import Generator
from txl_tf.inference.causal.language_model import LanguageModel
from txl_tf.inference.causal.served_causal import ServedCausal


@pytest.fixture(scope="session")
def byte_model():
    """A LanguageModel over bytes with random weights, in which every query sees the same window."""
    return LanguageModel(random_model(dataclasses.replace(CONFIG, same_length=True)), ByteVocabulary())


@pytest.fixture(scope="session")
def byte_export(byte_model, tmp_path_factory):
    """The folder of its SavedModel, not compiled by XLA: that would take seconds for every number of texts."""
    export_dir = str(tmp_path_factory.mktemp("exported") / "model")
    generator = Generator(byte_model.model, byte_model.generator.decoder.reach, jit_compile=False)
    ServedCausal(generator, byte_model.vocabulary, "byte").save(export_dir)
    return export_dir
