"""A set of examples whose features have fixed shapes: in memory, or encoded once into TFRecord shards.

A directory of shards has a manifest, which is written last: if it exists, all files are complete. A record is one
example: the little-endian bytes of its features, in the manifest's order. In use all examples are in memory, each
feature as one array in a small type, so that any example can be read at any time.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.counted import counted
from txl_tf.data.vocabularies import SubwordVocabulary, Vocabulary
from txl_tf.errors import InputError
from txl_tf.progress import progress_bar
from txl_tf.storage.files import digest, read_bytes, read_json, read_record, write_atomically
from txl_tf.storage.literal_paths import listed

MANIFEST = "manifest.json"
META = "meta.json"
FORMAT = "txl_tf examples"
VERSION = 1
SHARD_EXAMPLES = 1 << 15
_OWN = re.compile(rf"({re.escape(MANIFEST)}|{re.escape(META)})(\.partial)?|examples-\d{{5,}}\.tfrecord")
"""The names of the files of a set of examples."""
SMALL = 20_000
"""A set of at most this many examples is encoded at every start, and not written into shards."""

Features = dict[str, np.ndarray]
Chunk = tuple[Features, Sequence[Any]]
"""Features of some examples, [n, ..] each, and a JSON value for each example, or no values."""


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """n examples.

    Attributes:
        features: by name, arrays [n, ..]. "padding", bool, is true where there is no token.
        origin: their source and how they were made, as JSON: equal for equal examples.
        labels: the names of the classes, in the order of their numbers; () where there are no classes.
        meta: a JSON value for each example, kept beside; () if there is none.
        timed: the features whose last axis is time, [n, .., T].
        padded: the side of an example on which padding is: "left" or "right".
        remarks: notes about the examples for the user, as sentences.
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
        return len(next(iter(self.features.values())))

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
        directory: for shards; None: examples stay in memory.
        labelled: whether the examples have labels; if not, those of the rows are ignored.
        scheme: of tags, see `tagged.schemes`.
    """

    config: Any
    vocabulary: Vocabulary
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] | None = None
    directory: str | None = None
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
        """Encodes examples, or reads them from shards where they were encoded before.

        Args:
            chunks: encodes; called only if there are no shards yet.
            count: about how many examples there are; up to SMALL they stay in memory.
            layout: the settings that the examples depend on, besides the vocabulary.
            about: attributes of the ExampleSet besides features, origin and meta.

        Raises:
            InputError: shards are damaged.
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

        if self.directory is None or count <= SMALL:
            return encoded()
        found = read_examples(self.directory)
        if found is None or found.origin != json.loads(json.dumps(origin)):
            found = write_examples(encoded, self.directory)
        return found


def cut_remarks(cut: Sequence[bool], most: int, what: str = "", setting: str = "tgt_len") -> tuple[str, ...]:
    """A remark on the examples that a setting cuts at `most` tokens; () if none was cut, or if it is not known.

    `what` is the examples' name; "": examples.
    """
    count = sum(cut)
    if not count:
        return ()
    share = f"{count:,} of {len(cut):,} {what}".rstrip() + f" ({count / len(cut):.1%})"
    return (f"{share} {'is' if count == 1 else 'are'} cut at {counted(most, 'token')} ({setting})",)


def write_examples(make: Callable[[], ExampleSet], directory: str, shard_examples: int = SHARD_EXAMPLES) -> ExampleSet:
    """Makes examples, and writes them: shards examples-00000.tfrecord, .., and then the manifest.

    An older set in the directory is replaced. InputError, before they are made, if the directory has files that do not
    belong to such a set.
    """
    tf.io.gfile.makedirs(directory)
    manifest_path = tf.io.gfile.join(directory, MANIFEST)
    foreign = [name for name in listed(directory) if not _OWN.fullmatch(name)]
    if tf.io.gfile.exists(manifest_path) and FORMAT.encode() not in read_bytes(manifest_path)[:1000]:
        foreign.append(MANIFEST)
    if foreign:
        raise InputError(
            f"{directory} holds {foreign[0]}, which does not belong to a set of examples: give a new directory"
        )
    if tf.io.gfile.exists(manifest_path):
        tf.io.gfile.remove(manifest_path)
    made = make()
    arrays = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in made.features.items()}
    shards: list[dict[str, Any]] = []
    for start in range(0, len(made), shard_examples):
        file, end = f"examples-{len(shards):05d}.tfrecord", min(start + shard_examples, len(made))
        path = tf.io.gfile.join(directory, file)
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(start, end):
                writer.write(b"".join(array[i].tobytes() for array in arrays.values()))
        shards.append({"file": file, "examples": end - start, "sha256": digest(path)})
    if made.meta:
        write_atomically(tf.io.gfile.join(directory, META), json.dumps(made.meta))
    kinds = {name: {"dtype": array.dtype.str, "shape": array.shape[1:]} for name, array in arrays.items()}
    about = {name: getattr(made, name) for name in ("labels", "timed", "padded")}
    manifest = {"format": FORMAT, "version": VERSION, "examples": len(made), "features": kinds, "origin": made.origin}
    manifest |= {"about": about, "meta": bool(made.meta), "shards": shards}
    write_atomically(manifest_path, json.dumps(manifest, indent=1) + "\n")
    return made


def read_examples(directory: str) -> ExampleSet | None:
    """The examples that `write_examples` wrote; None if there are none, or if they are of another version.

    InputError if a shard is damaged.
    """
    path = tf.io.gfile.join(directory, MANIFEST)
    if not tf.io.gfile.exists(path):
        return None
    remedy = f"remove {directory}, and the examples are encoded again"
    manifest = read_record(path, {}, remedy)
    if (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
        return None
    try:
        return _read_shards(directory, manifest, remedy)
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {error}): {remedy}") from error


def _read_shards(directory: str, manifest: dict[str, Any], remedy: str) -> ExampleSet:
    layout = np.dtype(
        [("head", "V12")]
        + [(name, kind["dtype"], tuple(kind["shape"])) for name, kind in manifest["features"].items()]
        + [("foot", "V4")]  # TFRecord: length and its checksum, the record, its checksum
    )
    parts = []
    for shard in manifest["shards"]:
        file = tf.io.gfile.join(directory, shard["file"])
        data = read_bytes(file, remedy)
        if hashlib.sha256(data).hexdigest() != shard["sha256"]:
            raise InputError(f"{file} is damaged (its sha256 differs): {remedy}")
        parts.append(np.frombuffer(data, layout))
    features = {name: np.concatenate([part[name] for part in parts]) for name in manifest["features"]}
    meta = read_json(tf.io.gfile.join(directory, META), remedy) if manifest["meta"] else ()
    about: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in manifest["about"].items()
    }
    return ExampleSet(features, manifest["origin"], meta=meta, **about)
