"""Writes a SavedModel with its README.md; and the common parts of all graphs: signatures, a few row lengths."""

from __future__ import annotations

import abc
import bisect
import contextlib
import json
import pathlib
import string
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from txl_tf.data.vocabularies import Vocabulary
from txl_tf.ops.gradients import without_custom_gradients
from txl_tf.ops.platform import for_saved_model
from txl_tf.progress import progress_bar
from txl_tf.storage.files import complete_directory, require_new_directory, write_atomically

READMES = pathlib.Path(__file__).parent / "readmes"
ROOM = 6
"""The tokens of a row that are not the long text's: its marks, and those of a short text beside it."""


class Served(abc.ABC):
    """The contents of a SavedModel and of the files beside it, and how they are written.

    Attributes:
        readme: name of a file in readmes/, which describes the signatures; it has $placeholders.
        model, vocabulary: used by the signatures.
        kept: further variables and resources that they use.
        lengths: of rows in tokens, ascending, for which the model is traced; (): for any.
        dev: metrics of a fine-tuned model on dev.
    """

    readme: str
    model: keras.Model
    vocabulary: Vocabulary
    kept: Sequence[Any] = ()
    lengths: Sequence[int] = ()
    dev: Mapping[str, float] = types.MappingProxyType({})

    @abc.abstractmethod
    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The functions by name, as `tf.saved_model.save` takes them; each call traces them."""

    @abc.abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """The values of the README's placeholders, except $name, which is the directory's name."""

    def tokenized(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The tokens of strings [B], as `with_lengths`, the start token, and the unknown token, -1: none."""
        unknown = self.vocabulary.special.unknown
        single = {"start_token": self.vocabulary.start_token, "unknown_token": -1 if unknown is None else unknown}
        numbers = {name: tf.constant(token, tf.int32) for name, token in single.items()}
        return with_lengths(self.vocabulary.encode_tensor(texts)) | numbers

    def sizes(self) -> str:
        """A model's sizes as JSON, for `facts`."""
        config = self.model.config
        facts = {"vocabulary": config.vocab_size, "unit": self.vocabulary.unit}
        return json.dumps(facts | {"layers": config.n_layer, "width": config.d_model})

    def words(self) -> list[int]:
        """How many words "a" need each of `lengths`: a server runs such texts before it is ready."""

        def tokens(words: int) -> int:
            return len(self.vocabulary.encode(" ".join(["a"] * words)))

        counts, shorter = set(), 0
        for length in self.lengths:
            most = max(length - ROOM, shorter - 1)
            counts.add(max(0, bisect.bisect_right(range(length), most, key=tokens) - 1))
            shorter = length
        return sorted(counts)

    def files(self) -> dict[str, str]:
        """The texts to write beside the SavedModel and README.md, by file name."""
        return {}

    def description(self, name: str) -> str:
        """The text of README.md in a directory of this name."""
        return f"{filled(self.readme, name=name, **self.facts())}\n{filled('first_call')}"

    def save(self, export_dir: str, files: Mapping[str, str] | None = None) -> None:
        """Writes the SavedModel, its README.md and further files: texts by file name, beside those of `files`.

        InputError if export_dir, local or gs://, is not empty.
        """
        require_new_directory(export_dir, "export_dir")
        root = tf.Module()
        # Saves only the weights that the functions use. Keras layers would be saved with their Python configuration.
        root.weights = [variable.value for variable in self.model.variables]
        root.kept = self.kept
        root.vocabulary = self.vocabulary
        readme = self.description(export_dir.rstrip("/").rpartition("/")[2])
        with complete_directory(export_dir) as folder:
            tf.saved_model.save(root, folder, signatures=self.signatures())
            for file_name, text in {"README.md": readme, **self.files(), **(files or {})}.items():
                write_atomically(tf.io.gfile.join(folder, file_name), text)


def filled(readme: str, **facts: Any) -> str:
    """The text of a file in readmes/, with facts in place of its $placeholders."""
    return string.Template((READMES / f"{readme}.md").read_text("utf-8")).substitute(facts)


def with_lengths(ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
    """The outputs "tokens", int32 [B, P], -1 after a text's end, and "lengths", from ids [B, None]."""
    return {"tokens": ids.to_tensor(-1), "lengths": tf.cast(ids.row_lengths(), tf.int32)}


def with_total(log_probs: tf.Tensor) -> dict[str, tf.Tensor]:
    """The outputs "log_probs", float32 [B, P], and "total", their sums."""
    total = tf.reduce_sum(tf.cast(log_probs, tf.float64), axis=1)
    return {"log_probs": tf.cast(log_probs, tf.float32), "total": tf.cast(total, tf.float32)}


def require_tokens(tokens: tf.Tensor, vocab_size: int) -> tf.Operation:
    """An assertion that tokens of any shape are in a vocabulary."""
    within = (tokens >= 0) & (tokens < vocab_size)
    return tf.debugging.assert_equal(within, True, f"tokens must be from 0 to {vocab_size - 1}")


def by_length(longest: tf.Tensor, lengths: Sequence[int], function: Callable[[int], Any]) -> Any:
    """function(n) for the smallest n of `lengths`, ascending, that is at least `longest`; the graph has all of them.

    An InvalidArgumentError at run time if `longest`, int64, is above all of them.
    """
    fits = tf.debugging.assert_less_equal(
        longest, tf.constant(lengths[-1], tf.int64), f"a text has more than {lengths[-1]} tokens"
    )
    with tf.control_dependencies([fits]):
        branch = tf.reduce_sum(tf.cast(longest > tf.constant(lengths, tf.int64), tf.int32))
    return tf.switch_case(branch, [lambda n=n: function(n) for n in lengths])


def in_groups(
    function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]], rows: dict[str, tf.Tensor], size: int
) -> dict[str, tf.Tensor]:
    """function(rows) for at most `size` rows at a time, so that memory does not grow with their number.

    Rows and results are given by name, [n, ..]; the function is a tf.function with an input signature.
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
