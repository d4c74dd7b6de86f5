"""A small XLNet whose every weight is large enough to matter, and a model_dir with one, for tests of inference."""

import dataclasses
import functools
import types

import numpy as np
import tensorflow as tf

from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig
from txl_tf.models.xlnet.model import XLNet
from txl_tf.runs import checkpoints, model_dir

CONFIG = XLNetConfig(
    vocab_size=256, n_layer=2, d_model=16, n_head=2, d_head=8, d_inner=32, mem_len=8, reuse_len=8, activation="gelu"
)


def random_xlnet(seed=0, **settings):
    """An XLNet with random weights."""
    model = XLNet(dataclasses.replace(CONFIG, **settings))
    draw = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        vector = len(variable.shape) == 1  # small biases, or one token would be the most likely everywhere
        centre = 1.0 if "gamma" in variable.path else 0.0
        variable.assign(draw.normal(centre, 0.1 if vector else 0.5, variable.shape))
    return model


@functools.cache
def with_prefix(cls=SubwordVocabulary):
    """A vocabulary of a SentencePiece model that puts a space in front of every text, as XLNet's does.

    A process has one of each class: tracing its graphs takes a second.
    """
    from xlnet_tokens import small_model

    return cls(small_model())


def write_model_dir(path, vocabulary, **settings):
    """Writes a model_dir with an XLNet over a vocabulary; the model."""
    model = random_xlnet(vocab_size=vocabulary.vocab_size, **settings)
    config = XLNetRunConfig().replace(
        model=dataclasses.asdict(model.config), objective={"perm_size": CONFIG.reuse_len, "num_predict": 2}
    )

    about = {"dataset": "text", "unit": vocabulary.unit, "fingerprint": "none", "files": {}}
    learned = types.SimpleNamespace(vocabulary=vocabulary, vocabulary_spec=vocabulary.spec, **about)
    model_dir.write_description(str(path), config, learned)
    weights = tf.train.Checkpoint(model=checkpoints.variables_by_path(model))
    weights.write(checkpoints.checkpoint_path(str(path), 0))
    return model
