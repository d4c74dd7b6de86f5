"""A set of examples whose features have fixed shapes: in memory, or encoded once into a file of NumPy's."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.counted import counted
from txl_tf.data.examples.layout import PADDING, SECOND, join, pad_left
from txl_tf.data.records import smallest_dtype
from txl_tf.data.tables.columns import Columns
from txl_tf.data.vocabularies import SubwordVocabulary, Vocabulary
from txl_tf.errors import InputError, one_line
from txl_tf.progress import progress_bar
from txl_tf.storage.files import atomic_writer, read_bytes

_ABOUT = ("origin", "labels", "meta", "timed", "padded")
"""The attributes of a set that are written beside its features."""
SMALL = 20_000
"""A set of at most this many examples is encoded at every start, and not written."""

Features = dict[str, np.ndarray]
Chunk = tuple[Features, Sequence[Any]]
"""Features of some examples, [n, ..] each, and a JSON value for each example, or no values."""


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """n examples.

    Attributes:
        features: by name, arrays [n, ..]. "padding", bool, is true where there is no token.
        origin: their source and how they were made, as JSON: equal for equal examples.
        labels: the names of the classes, in the order of their numbers; () where there are none.
        meta: a JSON value for each example, kept beside; () if there is none.
        timed: the features whose last axis is time, [n, .., T].
        padded: the side of an example on which padding is: "left" or "right".
        remarks: for the user, as sentences.
        weights: how much each counts in training, [n]; None: all count 1, or, if there is a feature "learned", those
            that it names.
    """

    features: Features
    origin: dict[str, Any]
    labels: tuple[str, ...] = ()
    meta: Sequence[Any] = ()
    timed: tuple[str, ...] = ("tokens", "segments", "padding")
    padded: str = "left"
    remarks: tuple[str, ...] = ()
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.features.values()), ()))

    @property
    def t_len(self) -> int:
        """T."""
        return self.features["padding"].shape[-1]

    @property
    def learned(self) -> int:
        """How many of them are learned from: those that count in training."""
        weights = self.training_weights
        return len(self) if weights is None else int(np.count_nonzero(weights))

    @property
    def training_weights(self) -> np.ndarray | None:
        """How much each counts in training, [n]; None: all count 1."""
        return self.features.get("learned") if self.weights is None else self.weights

    def known_labels(self) -> np.ndarray:
        """The numbers of all labels, int [m]: one for each example, or for each labelled word."""
        label = self.features["label"].ravel()
        return label[label >= 0]

    def lengths(self) -> np.ndarray:
        """How many columns of the time axis each example needs, int [n]: those of its longest sequence."""
        padding = self.features["padding"].reshape(len(self), -1, self.t_len)
        real = np.logical_not(padding if self.padded == "left" else padding[..., ::-1])
        firsts = np.where(real.any(axis=2), real.argmax(axis=2), self.t_len)
        return self.t_len - firsts.min(axis=1)

    def fingerprint(self) -> str:
        """A short hash of the features."""
        found = hashlib.sha256(json.dumps([*self.labels, self.timed, self.padded]).encode())
        weights = {} if self.weights is None else {"weight of an example": self.weights}
        for name, array in sorted((self.features | weights).items()):
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class ExamplePlan:
    """How rows become examples.

    Attributes:
        config: a Config of their task, for its settings of data and evaluation.
        vocabulary: of the model, with SEP and CLS.
        origin: what identifies the vocabulary; the rows and their layout are added.
        labels: the names of the classes; None: those that occur in the rows.
        file: for encoded examples, .npz; None: they stay in memory.
        labelled: whether the examples have labels; if not, those of the rows are ignored.
        scheme: of tags.
    """

    config: Any
    vocabulary: Vocabulary
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] | None = None
    file: str | None = None
    labelled: bool = True
    scheme: str = ""

    def subwords(self) -> SubwordVocabulary:
        """The vocabulary, if its tokens have places in texts; else InputError."""
        if isinstance(self.vocabulary, SubwordVocabulary):
            return self.vocabulary
        raise InputError(
            f"{self.config.task} needs a vocabulary of subwords, and this one is of {self.vocabulary.unit}s"
        )

    def make(
        self, chunks: Callable[[], Iterable[Chunk]], count: int, layout: Mapping[str, Any], **about: Any
    ) -> ExampleSet:
        """Encodes examples, or reads those that were encoded before; InputError if these are damaged.

        Args:
            chunks: encodes; called only if the examples were not written before.
            count: about how many examples there are; up to SMALL they stay in memory.
            layout: the settings that the examples depend on, besides the vocabulary.
            about: attributes of the ExampleSet besides features, origin and meta.
        """
        origin = {**self.origin, **layout}

        def encoded() -> ExampleSet:
            parts: collections.defaultdict[str, list[np.ndarray]] = collections.defaultdict(list)
            meta: list[Any] = []
            with progress_bar("encoding", count, " examples") as bar:
                for features, own in chunks():
                    meta.extend(own)
                    for name, array in features.items():
                        parts[name].append(array)
                    bar.update(len(array))
            whole = {name: np.concatenate(arrays) for name, arrays in parts.items()}
            return ExampleSet(whole, origin, meta=meta, **about)

        if self.file is None or count <= SMALL:
            return encoded()
        found = read_examples(self.file)
        if found is None or found.origin != json.loads(json.dumps(origin)):
            found = encoded()
            write_examples(found, self.file)
        return found


def cut_remarks(cut: Sequence[bool], most: int, what: str = "", setting: str = "tgt_len") -> tuple[str, ...]:
    """A remark on the examples, or what they are called, that a setting cuts at `most` tokens; () if none was cut."""
    count = sum(cut)
    if not count:
        return ()
    share = f"{count:,} of {len(cut):,} {what}".rstrip() + f" ({count / len(cut):.1%})"
    return (f"{share} {'is' if count == 1 else 'are'} cut at {counted(most, 'token')} ({setting})",)


class _Target(io.RawIOBase):
    """A file of TensorFlow's as a file of Python that cannot seek: so a zip file is written from front to back."""

    def __init__(self, file: tf.io.gfile.GFile):
        self._file = file

    def write(self, data: Any) -> int:
        """Writes bytes; returns their number."""
        self._file.write(bytes(data))
        return len(data)


def write_examples(made: ExampleSet, path: str) -> None:
    """Writes examples as one file of NumPy's, an array for each feature."""
    about = json.dumps({name: getattr(made, name) for name in _ABOUT}).encode()
    arrays: dict[str, Any] = {**made.features, "about": np.frombuffer(about, np.uint8)}
    with atomic_writer(path) as file:
        np.savez(_Target(file), **arrays)


def read_examples(path: str) -> ExampleSet | None:
    """The examples that `write_examples` wrote; None if there is no file. InputError if it is damaged."""
    if not tf.io.gfile.exists(path):
        return None
    remedy = "remove it, and the examples are encoded again"
    try:
        with np.load(io.BytesIO(read_bytes(path, remedy)), allow_pickle=False) as arrays:
            features = dict(arrays)
        about = json.loads(features.pop("about").tobytes())
        return ExampleSet(features, **about | {name: tuple(about[name]) for name in ("labels", "timed")})
    except InputError:
        raise
    except Exception as error:  # NumPy and zipfile raise errors of many kinds
        raise InputError(f"{path} is not a whole set of examples ({one_line(error)[:100]}): {remedy}") from error


CHUNK = 1_000  # rows that are encoded at once

Pair = tuple[tf.RaggedTensor, tf.RaggedTensor]
"""Ids of the first and the second text of each sequence."""


def pair_examples(
    rows: Sequence[Any],
    plan: ExamplePlan,
    label: np.ndarray | None,
    encoded: Callable[[Sequence[Any]], tuple[Pair, Pair]],
    shape: Sequence[int],
    layout: Mapping[str, Any],
    labels: tuple[str, ...] = (),
) -> ExampleSet:
    """Examples whose sequences are pairs of texts; `encoded` gives those of some rows, whole and cut to their length.

    Features are of this shape, whose last axis is time. Remarks say how many examples were cut, and `meta` which.
    """

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(rows), CHUNK):
            some = slice(start, start + CHUNK)
            whole, kept = encoded(rows[some])
            laid_out = pad_left(*join(plan.vocabulary, *kept), shape[-1])
            arrays = {name: feature.numpy().reshape(-1, *shape) for name, feature in laid_out.items()}
            arrays["tokens"] = arrays["tokens"].astype(smallest_dtype(plan.vocabulary.vocab_size))
            arrays["segments"] = arrays["segments"].astype(np.uint8)
            lost = [old.row_lengths() > new.row_lengths() for old, new in zip(whole, kept, strict=True)]
            cut = np.any(lost, axis=0).reshape(len(arrays["tokens"]), -1)
            yield arrays | ({} if label is None else {"label": label[some]}), [bool(row.any()) for row in cut]

    made = plan.make(chunks, len(rows), {"rows": _digest_of(rows, label), **layout}, labels=labels)
    return dataclasses.replace(made, remarks=cut_remarks(made.meta, shape[-1]))


def _digest_of(rows: Sequence[Any], label: np.ndarray | None) -> str:
    """A checksum of dataclasses with their labels; `where` and fields that are not compared do not count."""
    found = hashlib.sha256(b"" if label is None else label.tobytes())
    fields = dataclasses.fields(rows[0]) if len(rows) else ()
    names = [field.name for field in fields if field.compare and field.name != "where"]
    for row in rows:
        found.update(json.dumps([getattr(row, name) for name in names]).encode())
    return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class TaskCorpus:
    """The examples of a run, with the attributes that the training loop needs from a Corpus.

    Attributes:
        train, dev: ExampleSets.
        files: the sha256 of the vocabulary's files, by name.
        data_dir: where the examples are from, for messages.
        columns: how their table is read; None: they are not from a table.
    """

    train: ExampleSet
    dev: ExampleSet
    vocabulary: Vocabulary
    vocabulary_spec: dict[str, Any]
    files: dict[str, str]
    dataset: str = "text"
    data_dir: str = ""
    columns: Columns | None = None

    @property
    def unit(self) -> str:
        """The kind of token: "byte", "char", "word" or "subword"."""
        return self.vocabulary.unit

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; () if there are none."""
        return self.train.labels

    @property
    def pairs(self) -> bool:
        """Whether an example to learn from has a second text."""
        return bool(np.any(self.train.features.get("segments", PADDING) == np.uint8(SECOND)))

    @functools.cached_property
    def fingerprint(self) -> str:
        """A short hash of all examples."""
        prints = self.train.fingerprint() + self.dev.fingerprint()
        return hashlib.sha256(prints.encode()).hexdigest()[:16]

    def check_content(self) -> None:
        """Does nothing: examples are checked when they are read."""
