"""Writes tokens into TFRecord shards whose records are contiguous tokens, in the smallest integer type that fits.

A record is the little-endian bytes of RECORD_TOKENS tokens, and a shard is SHARD_RECORDS records. Only the last
record and the last shard of a stream are shorter. So token p is in record p // RECORD_TOKENS, and the reader computes
where to seek. TFRecord adds a checksum to every record.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from txl_tf.data import manifest
from txl_tf.storage.files import digest

RECORD_TOKENS = 1 << 14
SHARD_RECORDS = 32


def smallest_dtype(vocab_size: int) -> str:
    """The name of the smallest type for ids below `vocab_size` among those that tf.io.decode_raw reads."""
    if vocab_size <= 1 << 8:
        return "uint8"
    return "uint16" if vocab_size <= 1 << 16 else "int32"


class ShardWriter:
    """Cuts a stream of tokens into shards, see `shard_name`.

    Call `add` with arrays of any length in order, then `close`. `unknown` is the id to count in each shard; None: the
    vocabulary has no such token.
    """

    def __init__(self, data_dir: str, name: str, dtype: str, unknown: int | None = None):
        self._data_dir, self._name, self._unknown = data_dir, name, unknown
        self._pending = np.zeros(0, np.dtype(dtype).newbyteorder("<"))
        self._shards: list[manifest.Shard] = []

    def add(self, tokens: np.ndarray) -> None:
        """Appends an array of ids [n]."""
        stream = np.concatenate([self._pending, tokens], dtype=self._pending.dtype, casting="unsafe")
        size = RECORD_TOKENS * SHARD_RECORDS
        *complete, self._pending = np.split(stream, range(size, len(stream) + 1, size))
        for shard in complete:
            self._write(shard)

    def close(self) -> tuple[manifest.Shard, ...]:
        """Writes the remaining tokens. Returns the shards, a tuple of manifest.Shard."""
        if len(self._pending):
            self._write(self._pending)
        return tuple(self._shards)

    def _write(self, tokens: np.ndarray) -> None:
        file = shard_name(self._name, len(self._shards))
        self._shards.append(write_shard(tf.io.gfile.join(self._data_dir, file), file, tokens, self._unknown))


def shard_name(stream: str, number: int) -> str:
    """The name of a shard's file."""
    return f"{stream}-{number:05d}.tfrecord"


def write_shard(path: str, file: str, tokens: np.ndarray, unknown: int | None = None) -> manifest.Shard:
    """Writes the tokens [n] of a shard to `path`; returns its Shard, in which it has the name `file`."""
    with tf.io.TFRecordWriter(path) as writer:
        for start in range(0, len(tokens), RECORD_TOKENS):
            writer.write(tokens[start : start + RECORD_TOKENS].tobytes())
    counted = 0 if unknown is None else int(np.count_nonzero(tokens == unknown))
    return manifest.Shard(file, len(tokens), tf.io.gfile.stat(path).length, digest(path), counted)
