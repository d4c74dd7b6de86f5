"""The checkpoints of a model_dir: their files, and their values read and checked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from txl_tf.errors import InputError, one_line
from txl_tf.storage.files import check_checkpoint, digest
from txl_tf.storage.literal_paths import checkpoint_reader, files_of, lacks_files, listed, plain_prefix


class DamagedCheckpointError(InputError):
    """A checkpoint that was complete when it was written cannot be read."""


WEIGHT_PARTS = {"last": "model", "average": "average"}
"""The name in a checkpoint of each kind of weights."""


def checkpoint_name(step: int) -> str:
    """ckpt-{step}."""
    return f"ckpt-{step}"


def checkpoint_path(model_dir: str, step: int) -> str:
    """The common prefix of the paths of a checkpoint's files, by which TensorFlow names it."""
    return tf.io.gfile.join(model_dir, checkpoint_name(step))


def checkpoint_files(model_dir: str) -> dict[int, list[str]]:
    """The names of the files of checkpoints: {step: [name, ..]}; empty if there is no model_dir yet."""
    files: dict[int, list[str]] = {}
    for name in listed(model_dir) if tf.io.gfile.isdir(model_dir) else ():
        if match := re.fullmatch(r"ckpt-(\d+)\.(index|data-.*)", name):
            files.setdefault(int(match[1]), []).append(name)
    return files


def checkpoint_steps(model_dir: str) -> list[int]:
    """The steps of complete checkpoints, in rising order: those with an index, which is written last."""
    return sorted(step for step, files in checkpoint_files(model_dir).items() if f"ckpt-{step}.index" in files)


def read_checkpoint(path: str, may_lack: str = "", /, **parts: dict[str, tf.Variable]) -> list[str]:
    """Assigns the values in a checkpoint to variables; the names of the variables that stayed as they were.

    Args:
        may_lack: the beginning of the names of variables that stay as they are if the checkpoint lacks them or has them
            in another shape; "": of none.
        parts: a part's name in the checkpoint -> {name: variable}; other parts of the checkpoint are not read.

    Raises:
        DamagedCheckpointError: a file is missing or too short, or a checksum is wrong; some variables may have been
            assigned.
        InputError: a file cannot be read, or TensorFlow does not find a file that exists; or the checkpoint lacks
            variables, or has them in other shapes or types.
    """
    if not tf.io.gfile.exists(f"{path}.index"):
        raise DamagedCheckpointError(f"{path} is damaged: it has no index")
    with _named_reasons(path):
        check_checkpoint(path)
        reader = checkpoint_reader(path)
        stored, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        problems, lacking = [], []
        for part, variables in parts.items():
            for name, variable in variables.items():
                escaped = name.replace(".", "..").replace("/", ".S")  # as tf.train.Checkpoint does
                key = f"{part}/{escaped}/.ATTRIBUTES/VARIABLE_VALUE"
                shape = stored.get(key)
                if may_lack and name.startswith(may_lack) and shape != variable.shape:
                    lacking.append(name)
                elif shape is None:
                    problems.append(f"{part}/{name} is missing")
                elif shape != variable.shape:
                    problems.append(f"{part}/{name} is {shape} instead of {list(variable.shape)}")
                elif types[key] != variable.dtype:
                    problems.append(f"{part}/{name} is {types[key].name} instead of {variable.dtype.name}")
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise InputError(f"{path} does not fit the model: {', '.join(problems[:3])}{more}")
        wanted = {
            part: {name: variable for name, variable in variables.items() if name not in lacking}
            for part, variables in parts.items()
        }
        with plain_prefix(path) as plain:
            tf.train.Checkpoint(**wanted).read(plain).expect_partial()
        return lacking


def stored_weights(path: str) -> dict[str, list[int]]:
    """The shapes of all weights in a checkpoint, by their Keras paths.

    DamagedCheckpointError if it is damaged, another InputError if a file of it cannot be read.
    """
    with _named_reasons(path):
        check_checkpoint(path)
        shapes = checkpoint_reader(path).get_variable_to_shape_map()
    part, end = f"{WEIGHT_PARTS['last']}/", "/.ATTRIBUTES/VARIABLE_VALUE"
    return {
        name[len(part) : -len(end)].replace(".S", "/").replace("..", "."): shapes[name]
        for name in sorted(shapes)
        if name.startswith(part)
    }


_DAMAGE = (IndexError, tf.errors.OpError, tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)


@contextlib.contextmanager
def _named_reasons(path: str) -> Iterator[None]:
    """Turns errors of TensorFlow's reader into DamagedCheckpointError for damage, and InputError for the rest."""
    try:
        yield
    except (tf.errors.OpError, IndexError) as error:
        # For a truncated file TensorFlow's reader raises OpError or IndexError; other errors are not caught.
        if type(error) not in _DAMAGE:
            raise
        for file in files_of(path):
            try:
                digest(file)
            except (tf.errors.OpError, OSError) as unread:  # then nothing is known about its content
                raise InputError(f"{file} cannot be read ({one_line(unread)}): nothing was changed") from unread
        if isinstance(error, tf.errors.NotFoundError) and not lacks_files(path):
            raise InputError(f"{path} cannot be read ({one_line(error)}): nothing was changed") from error
        raise DamagedCheckpointError(f"{path} is damaged: {one_line(error)}") from error


def refuse_not_finite(variables: Mapping[str, tf.Variable | tf.Tensor], where: str) -> None:
    """Raises InputError if a variable, by its name, has a NaN or infinite value; `where` is the weights' place."""
    bad = [name for name, variable in variables.items() if not np.isfinite(variable.numpy()).all()]
    if bad:
        listed = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        raise InputError(f"{where} has weights that are not finite ({listed}): use an earlier checkpoint")


def variables_by_path(keras_object: keras.Model) -> dict[str, tf.Variable]:
    """The variables of a model or optimizer by their Keras path: {"transformer_xl/layer_0/attention/..": variable}.

    Checkpoints hold these. Keras objects cannot be used directly: tf.train.Checkpoint does not track their lists of
    layers (Keras 3.15), and saves and restores the other variables without an error.
    """
    named = {variable.path: variable.value for variable in keras_object.variables}
    if len(named) != len(keras_object.variables):
        raise ValueError(f"{keras_object.name}: two variables have the same path")
    return named
