"""What SavedModels have in common: signatures, and how they are written; those of XLNets also a few row lengths."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.ops.gradients import without_custom_gradients
from txl_tf.ops.platform import for_saved_model
from txl_tf.progress import progress_bar
from txl_tf.storage.files import complete_directory, write_atomically

FIRST_CALL = """
TensorFlow optimizes the graph of a signature at its first call. On the CPUs where this was measured, later calls are as
fast without that, and the first one comes 0.4 to 3.5 s sooner:

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})  # before the first call
"""
"""The end of each README.md."""


def by_length(longest: tf.Tensor, lengths: Sequence[int], function: Callable[[int], Any]) -> Any:
    """function(n) for the smallest n of `lengths`, ascending, that is not below `longest`; all are in the graph.

    An InvalidArgumentError at run time if `longest`, int64, is above all of them.
    """
    fits = tf.debugging.assert_less_equal(
        longest, tf.constant(lengths[-1], tf.int64), f"a text has more tokens than the {lengths[-1]} it may have"
    )
    with tf.control_dependencies([fits]):
        branch = tf.reduce_sum(tf.cast(longest > tf.constant(lengths, tf.int64), tf.int32))
    return tf.switch_case(branch, [lambda n=n: function(n) for n in lengths])


def in_groups(
    function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]], rows: dict[str, tf.Tensor], size: int
) -> dict[str, tf.Tensor]:
    """function(rows) for at most `size` rows at a time, so that memory does not grow with their number.

    Args:
        function: a tf.function with an input signature.
        rows: by name, [n, ..].
        size: of a group.

    Returns:
        By name, [n, ..].
    """
    count = tf.shape(next(iter(rows.values())))[0]
    steps = tf.maximum((count + size - 1) // size, 1)
    specs = function.get_concrete_function().structured_outputs  # type: ignore[attr-defined]
    arrays = {
        name: tf.TensorArray(spec.dtype, steps, infer_shape=False, element_shape=spec.shape)
        for name, spec in specs.items()
    }

    def step(i: tf.Tensor, arrays: dict[str, tf.TensorArray]) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
        found = function({name: tensor[i * size : (i + 1) * size] for name, tensor in rows.items()})
        return i + 1, {name: array.write(i, found[name]) for name, array in arrays.items()}

    _, arrays = tf.while_loop(lambda i, _: i < steps, step, (0, arrays), parallel_iterations=1)
    return {name: array.concat() for name, array in arrays.items()}


@contextlib.contextmanager
def traced_to_be_saved() -> Iterator[None]:
    """In this context functions are traced for a SavedModel.

    Without gradients: TensorFlow would trace them once more when it writes the SavedModel, and write them.
    """
    with without_custom_gradients(), for_saved_model():
        yield


def signatures_of(
    inputs: Mapping[Callable[..., Any], Mapping[str, tf.TensorSpec]],
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    """Functions with the specs of their arguments -> signatures by the functions' names.

    Without autograph: the loops are explicit while loops, and the SavedModel needs no Python source.
    """
    signatures = {}
    with progress_bar("tracing signatures", len(inputs), "", leave=False) as bar, traced_to_be_saved():
        for function, specs in inputs.items():
            signatures[function.__name__] = tf.function(function, autograph=False).get_concrete_function(
                **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
            )
            bar.update()
    return signatures


def write_saved_model(
    export_dir: str,
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
    model: keras.Model,
    vocabulary: Vocabulary,
    readme: str,
) -> None:
    """Writes a SavedModel and its README.md.

    Args:
        export_dir: local or gs://.
        signatures: of `signatures_of`.
        model, vocabulary: what they use.
        readme: in which {name} is the directory's name.
    """
    root = tf.Module()
    # Saves only what the functions use. Keras layers would be saved together with their Python configuration.
    root.weights = [variable.value for variable in model.variables]
    root.vocabulary = vocabulary
    readme = readme.replace("{name}", export_dir.rstrip("/").rpartition("/")[2])
    with complete_directory(export_dir) as folder:
        tf.saved_model.save(root, folder, signatures=dict(signatures))
        write_atomically(tf.io.gfile.join(folder, "README.md"), readme + FIRST_CALL)
