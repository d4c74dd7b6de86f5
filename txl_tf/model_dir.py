"""A model_dir: config.json, the vocabulary, checkpoints. Training writes one; inference needs nothing else.

config.json         every setting (Config)
corpus.json         the data the model learned from: name, unit, fingerprint, vocabulary
vocabulary files    as `Vocabulary.save` writes them
ckpt-STEP.*         TensorFlow checkpoints: the newest and the best
damaged-ckpt-STEP.* what could not be read when the run was continued
metrics.jsonl       one line per log_steps
evaluations.jsonl   one line per evaluation during training: step, and all that `evaluate` returns
tensorboard/        event files
"""

import dataclasses
import json
import math
import re

import tensorflow as tf

from txl_tf.config import Config
from txl_tf.data.vocabularies import Vocabulary, load_vocabulary
from txl_tf.errors import InputError, one_line
from txl_tf.models.transformer_xl import TransformerXL

CONFIG_FILE = "config.json"
CORPUS_FILE = "corpus.json"
EVALUATIONS_FILE = "evaluations.jsonl"
WEIGHT_PARTS = {"last": "model", "average": "average"}
"""Under which name a checkpoint has which weights."""


class DamagedCheckpointError(InputError):
    """A checkpoint that was whole once cannot be read."""


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


def load_trained(model_dir, weights=None, checkpoint="latest"):
    """The model of a model_dir with the weights of one of its checkpoints: a TrainedModel.

    Args:
        model_dir: local or gs://.
        weights: "last", or "average" of the steps as ema_decay or average_from_step of the run say; None: the average
            where there is one.
        checkpoint: "latest", or "best" by the loss on valid during training.

    Raises:
        InputError: no such model_dir, no checkpoint in it, or one that does not fit its config.json; no average; no
            evaluation to say which is best.
    """
    config = read_config(model_dir)
    if config is None:
        raise InputError(f"{model_dir} has no {CONFIG_FILE}: give a directory that scripts/train.py wrote")
    if weights == "average" and not config.train.averages_weights:
        raise InputError(f"{model_dir} has no averaged weights: its run had neither ema_decay nor average_from_step")
    weights = weights or ("average" if config.train.averages_weights else "last")
    steps = checkpoint_steps(model_dir)
    if not steps:
        raise InputError(f"{model_dir} has no checkpoint yet: train until the first save (save_steps)")
    step = best_step(model_dir) if checkpoint == "best" else steps[-1]
    if step is None:
        raise InputError(
            f"{model_dir} has no evaluated checkpoint, so none is best: train with --eval_steps, or latest"
        )
    about = json.loads(_read(tf.io.gfile.join(model_dir, CORPUS_FILE)))
    model = TransformerXL(config.model)
    read_checkpoint(checkpoint_path(model_dir, step), **{WEIGHT_PARTS[weights]: variables_by_path(model)})
    return TrainedModel(
        model=model,
        weights=weights,
        config=config,
        vocabulary=load_vocabulary(model_dir, about["vocabulary"]["spec"]),
        vocabulary_identity=about["vocabulary"],
        unit=about["unit"],
        step=step,
    )


def checkpoint_name(step):
    """ckpt-{step}."""
    return f"ckpt-{step}"


def checkpoint_path(model_dir, step):
    """What TensorFlow calls the prefix of a checkpoint's files."""
    return tf.io.gfile.join(model_dir, checkpoint_name(step))


def checkpoint_files(model_dir):
    """The names of the files of checkpoints: {step: [name, ..]}; none where there is no model_dir yet."""
    files = {}
    for name in tf.io.gfile.listdir(model_dir) if tf.io.gfile.isdir(model_dir) else ():
        if match := re.fullmatch(r"ckpt-(\d+)\.(index|data-.*)", name):
            files.setdefault(int(match[1]), []).append(name)
    return files


def checkpoint_steps(model_dir):
    """The steps whose checkpoints are there, rising: those with an index, which is written last."""
    return sorted(step for step, files in checkpoint_files(model_dir).items() if f"ckpt-{step}.index" in files)


def best_step(model_dir):
    """The first step with the least loss on valid among those whose checkpoints are there, or None."""
    steps = checkpoint_steps(model_dir)
    lines = read_json_lines(tf.io.gfile.join(model_dir, EVALUATIONS_FILE))
    return min((line for line in lines if line["step"] in steps), key=score, default={}).get("step")


def score(evaluation):
    """What the best evaluation has least of: the loss, where NaN counts as infinite."""
    return math.inf if math.isnan(evaluation["loss"]) else evaluation["loss"]


def read_weights(source, model):
    """Assigns the last weights of a run to a model.

    Args:
        source: a model_dir, for its newest checkpoint, or the path of a checkpoint.
        model: a TransformerXL.

    Raises:
        InputError: there is no checkpoint, it cannot be read, or it is of a model of other sizes.
    """
    path = source
    if tf.io.gfile.isdir(source):
        steps = checkpoint_steps(source)
        path = checkpoint_path(source, steps[-1]) if steps else None
    if path is None or not tf.io.gfile.exists(f"{path}.index"):
        raise InputError(
            f"--warm_start={source} is no checkpoint: give a model_dir, or a checkpoint such as runs/a/ckpt-400"
        )
    read_checkpoint(path, **{WEIGHT_PARTS["last"]: variables_by_path(model)})


def read_checkpoint(path, **parts):
    """Assigns the values in a checkpoint to variables.

    Args:
        path: of a checkpoint.
        parts: a part's name in the checkpoint -> {name: variable}; its other parts are left alone.

    Raises:
        DamagedCheckpointError: it cannot be read, or a checksum is wrong; some variables may have been assigned.
        InputError: it lacks variables, or has them in other shapes.
    """
    if not tf.io.gfile.exists(f"{path}.index"):
        raise DamagedCheckpointError(f"{path} is damaged: it has no index")
    try:
        stored = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        problems = []
        for part, variables in parts.items():
            for name, variable in variables.items():
                escaped = name.replace(".", "..").replace("/", ".S")  # as tf.train.Checkpoint does
                shape = stored.get(f"{part}/{escaped}/.ATTRIBUTES/VARIABLE_VALUE")
                if shape is None:
                    problems.append(f"{part}/{name} is missing")
                elif shape != variable.shape:
                    problems.append(f"{part}/{name} is {shape} instead of {list(variable.shape)}")
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise InputError(f"{path} does not fit the model: {', '.join(problems[:3])}{more}")
        tf.train.Checkpoint(**parts).read(path).expect_partial()
    except (tf.errors.OpError, IndexError) as error:
        # TensorFlow's reader says OpError and IndexError of a file cut short; its other errors may pass.
        if type(error) not in _DAMAGE:
            raise
        raise DamagedCheckpointError(f"{path} is damaged: {one_line(error)}") from error


_DAMAGE = (IndexError, tf.errors.OpError, tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)


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


def read_json_lines(path):
    """The objects of a file of JSON lines; none where there is no file. A last line cut short does not count."""
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path) as file:
        try:
            return [json.loads(line) for line in file if line.endswith("\n")]
        except json.JSONDecodeError as error:
            raise InputError(f"{path} has a line that is not JSON ({error}): mend it or remove the file") from error
