"""The work of one worker: it reads, counts and encodes one unit of a text.

A unit is a block of a file (blocks.py) or a group of rows (rows.py), which any worker can read by itself. Units are
numbered in the order of the text.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from txl_tf.data import records
from txl_tf.data.request import Settings
from txl_tf.data.text import rows
from txl_tf.data.text.blocks import DOCUMENT_MARK, Piece, PieceBlocks, TextRules, block_count
from txl_tf.data.text.sources import waiting_size
from txl_tf.data.vocabularies import Vocabulary, load_vocabulary
from txl_tf.errors import InputError
from txl_tf.storage.files import read_json, read_text, write_atomically
from txl_tf.storage.literal_paths import files_named

_PROGRESS_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class Job:
    """A preparation, which workers read from a JSON file.

    Attributes:
        work_dir: a folder that all workers can read and write.
        data_dir: of the corpus.
        settings: Settings. Workers do not read its vocab_file.
        pieces: of the TextSource, all with their stop.
        reading: TextRules.
        first_documents: for each unit, how many documents of its piece begin in earlier units; (): not needed.
        vocabulary: the vocabulary's spec; its file is in data_dir. None: not known yet.
    """

    work_dir: str
    data_dir: str
    settings: Settings
    pieces: tuple[Piece, ...]
    reading: TextRules
    first_documents: tuple[int, ...] = ()
    vocabulary: dict[str, Any] | None = None

    @functools.cached_property
    def first_units(self) -> np.ndarray:
        """The number of each piece's first unit, and at the end the number of units: int64 [pieces + 1]."""
        counts = [1 if piece.column else block_count((piece.stop or 0) - piece.start) for piece in self.pieces]
        return np.cumsum([0, *counts])

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.first_units[-1])

    def piece_of(self, unit: int) -> int:
        """The number of the piece that a unit is in."""
        return int(np.searchsorted(self.first_units, unit, side="right")) - 1

    def save(self, name: str) -> str:
        """Writes the job into its work_dir; returns the path."""
        path = tf.io.gfile.join(self.work_dir, f"{name}.json")
        write_atomically(path, json.dumps(dataclasses.asdict(self)))
        return path


class Worker:
    """One process's part in a job; `worker_of` gives it."""

    def __init__(self, path: str):
        content = read_json(path)
        read = {
            "settings": Settings(**{**content["settings"], "vocab_file": None}),
            "pieces": tuple(Piece(**piece) for piece in content["pieces"]),
            "reading": TextRules(**content["reading"]),
            "first_documents": tuple(content["first_documents"]),
        }
        self.job = Job(**content | read)
        self.encoder = self.job.settings.encoder()
        self._progress_file = tf.io.gfile.join(self.job.work_dir, "progress", uuid.uuid4().hex)
        self._done, self._written = 0, 0.0

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The Vocabulary of the corpus."""
        return load_vocabulary(self.job.data_dir, self.job.vocabulary or {})

    @functools.cached_property
    def dtype(self) -> np.dtype:
        """The type of the ids in shards."""
        return np.dtype(records.smallest_dtype(self.vocabulary.vocab_size)).newbyteorder("<")

    def count(self, unit: int) -> Iterator[tuple[str, list[Any], np.ndarray, int]]:
        """Yields (split, symbols, counts, size for `sources.grouped`) of the texts of a unit, see `TokenKind.count`."""
        for split, text in self.texts(unit)[0]:
            yield split, *self.encoder.count(text), waiting_size(text)

    def encode(self, unit: int) -> Iterator[tuple[str, bytes, int]]:
        """Yields (split, ids as they stand in shards, bytes of text) of the texts of a unit."""
        for split, text in self.texts(unit)[0]:
            marks = text.count(DOCUMENT_MARK) if self.job.reading.marked else 0
            yield split, self.encoder.encode(self.vocabulary, text).astype(self.dtype).tobytes(), len(text) - marks

    def write_shard(self, split: str, number: int, ids: bytes) -> dict[str, Any]:
        """Writes a shard completely or not at all, even if several workers try; returns its Shard as a dict."""
        file = records.shard_name(split, number)
        path = tf.io.gfile.join(self.job.data_dir, file)
        partial = f"{path}.partial-{uuid.uuid4().hex}"
        shard = records.write_shard(partial, file, np.frombuffer(ids, self.dtype), self.vocabulary.special.unknown)
        tf.io.gfile.rename(partial, path, overwrite=True)
        return dataclasses.asdict(shard)

    def texts(self, unit: int) -> tuple[list[tuple[str, bytes]], int]:
        """The texts of a unit, and its number of documents, as `PieceBlocks.texts` has them."""
        job = self.job
        number = job.piece_of(unit)
        index = unit - int(job.first_units[number])
        try:
            if job.pieces[number].column:
                texts, documents = rows.documents(job.pieces[number], job.reading)
            else:
                with PieceBlocks(job.pieces[number], job.reading) as blocks:
                    texts, documents = blocks.texts(index, job.first_documents[unit] if job.first_documents else 0)
        except InputError as error:  # Beam wraps errors in traces; the process that waits for it reads this file
            write_atomically(_error_path(job.work_dir), str(error))
            raise
        self._done += sum(len(text) for _, text in texts)
        if time.monotonic() - self._written > _PROGRESS_SECONDS:
            self._written = time.monotonic()
            write_atomically(self._progress_file, str(self._done))
        return texts, documents


@functools.lru_cache(maxsize=1)
def worker_of(path: str) -> Worker:
    """This process's Worker in the job that is saved at `path`."""
    return Worker(path)


def bytes_done(work_dir: str) -> int:
    """How many bytes of text the workers have reported as read."""
    paths = files_named(tf.io.gfile.join(work_dir, "progress"), "*")
    return sum(int(read_text(path)) for path in paths if not path.endswith(".partial"))


def input_error(work_dir: str) -> InputError | None:
    """The InputError that a worker met, or None."""
    path = _error_path(work_dir)
    return InputError(read_text(path)) if tf.io.gfile.exists(path) else None


def _error_path(work_dir: str) -> str:
    return tf.io.gfile.join(work_dir, "error.txt")


def write_rows(folder: str, rows: Iterable[Any]) -> None:
    """Writes values as lines of JSON into a new file of a folder."""
    write_atomically(tf.io.gfile.join(folder, uuid.uuid4().hex), "".join(json.dumps(row) + "\n" for row in rows))


def read_rows(folder: str) -> list[Any]:
    """The values that `write_rows` wrote, sorted. Rows that were written twice, by a repeated bundle, come once."""
    paths = files_named(folder, "*")
    lines = {line for path in paths if not path.endswith(".partial") for line in read_text(path).splitlines()}
    return sorted(json.loads(line) for line in lines)
