import dataclasses

import pytest
from random_model import CONFIG, random_model

from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.inference.language_model import LanguageModel


@pytest.fixture(scope="session")
def byte_model():
    """A LanguageModel over bytes with random weights, in which every query sees the same window."""
    return LanguageModel(random_model(dataclasses.replace(CONFIG, same_length=True)), ByteVocabulary())
