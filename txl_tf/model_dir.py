"""A model_dir: config.json, the vocabulary, checkpoints. Training writes one; inference needs nothing else.

config.json         every setting (Config)
corpus.json         the data the model learned from: name, unit, fingerprint, vocabulary
vocabulary files    as `Vocabulary.save` writes them
ckpt-STEP.*         TensorFlow checkpoints
metrics.jsonl       one line per log_steps
tensorboard/        event files
"""

import dataclasses
import json

import tensorflow as tf

from txl_tf.config import Config
from txl_tf.data.vocab import Vocabulary, load_vocabulary
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl import TransformerXL

CONFIG_FILE = "config.json"
CORPUS_FILE = "corpus.json"
CHECKPOINT_NAME = "ckpt"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A model with its newest weights, and what belongs to it. `weights` says which: "last" or "average"."""

    model: TransformerXL
    weights: str
    config: Config
    vocabulary: Vocabulary
    vocabulary_identity: dict
    unit: str
    step: int


def read_config(model_dir):
    """The Config of a model_dir, or None where there is none yet."""
    path = tf.io.gfile.join(model_dir, CONFIG_FILE)
    return Config.from_json(_read(path), path) if tf.io.gfile.exists(path) else None


def describe(model_dir, config, corpus):
    """Writes config.json, corpus.json and the vocabulary."""
    tf.io.gfile.makedirs(model_dir)
    corpus.vocabulary.save(model_dir)
    about = {
        "dataset": corpus.dataset,
        "unit": corpus.unit,
        "fingerprint": corpus.fingerprint,
        "vocabulary": vocabulary_identity(corpus),
    }
    write_atomically(tf.io.gfile.join(model_dir, CORPUS_FILE), json.dumps(about, indent=2) + "\n")
    write_atomically(tf.io.gfile.join(model_dir, CONFIG_FILE), config.to_json())


def vocabulary_identity(corpus):
    """What must be equal for a model and a corpus to mean the same by an id."""
    return {"spec": corpus.vocabulary_spec, "sha256": corpus.files}


def load_trained(model_dir, weights=None):
    """The model of a model_dir with the weights of its newest checkpoint: a TrainedModel.

    Args:
        model_dir: local or gs://.
        weights: "last", or "average" of the steps as ema_decay or average_from_step of the run say; None: the average
            where there is one.

    Raises:
        InputError: no such model_dir, no checkpoint in it, or one that does not fit its config.json; no average.
    """
    config = read_config(model_dir)
    if config is None:
        raise InputError(f"{model_dir} has no {CONFIG_FILE}: give a directory that scripts/train.py wrote")
    if weights == "average" and not config.train.averages_weights:
        raise InputError(f"{model_dir} has no averaged weights: its run had neither ema_decay nor average_from_step")
    weights = weights or ("average" if config.train.averages_weights else "last")
    checkpoint = tf.train.latest_checkpoint(model_dir)
    if checkpoint is None:
        raise InputError(f"{model_dir} has no checkpoint yet: train until the first save (save_steps)")
    about = json.loads(_read(tf.io.gfile.join(model_dir, CORPUS_FILE)))
    model = TransformerXL(config.model)
    try:
        tf.train.Checkpoint(**{"average" if weights == "average" else "model": variables_by_path(model)}).restore(
            checkpoint
        ).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:
        raise InputError(f"{checkpoint} does not fit {model_dir}/{CONFIG_FILE}: {error}") from error
    return TrainedModel(
        model=model,
        weights=weights,
        config=config,
        vocabulary=load_vocabulary(model_dir, about["vocabulary"]["spec"]),
        vocabulary_identity=about["vocabulary"],
        unit=about["unit"],
        step=int(checkpoint.rpartition("-")[2]),
    )


def variables_by_path(keras_object):
    """The variables of a model or optimizer by their Keras path: {"transformer_xl/layer_0/attention/..": variable}.

    Checkpoints hold these. Keras objects themselves would not do: tf.train.Checkpoint does not look into their lists
    of layers (Keras 3.15), and saves and restores the rest without a word.
    """
    named = {variable.path: variable.value for variable in keras_object.variables}
    if len(named) != len(keras_object.variables):
        raise ValueError(f"{keras_object.name}: two variables have the same path")
    return named


def write_atomically(path, text):
    """Writes a text file whole or not at all."""
    with tf.io.gfile.GFile(path + ".partial", "w") as file:
        file.write(text)
    tf.io.gfile.rename(path + ".partial", path, overwrite=True)


def _read(path):
    try:
        with tf.io.gfile.GFile(path) as file:
            return file.read()
    except tf.errors.NotFoundError as error:
        raise InputError(f"{path} is missing: the model_dir is incomplete") from error
