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

    Call `add` with arrays of any length in order, then `close`. `unknown` is the id to count in each shard; None: there
    is no unknown token. Tests use smaller records and shards.
    """

    def __init__(
        self,
        data_dir: str,
        name: str,
        dtype: str,
        record_tokens: int = RECORD_TOKENS,
        shard_records: int = SHARD_RECORDS,
        unknown: int | None = None,
    ):
        self._data_dir, self._name, self._unknown = data_dir, name, unknown
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._record_tokens, self._shard_tokens = record_tokens, record_tokens * shard_records
        self._pending: list[np.ndarray] = []
        self._pending_tokens = 0
        self._shards: list[manifest.Shard] = []

    @property
    def tokens(self) -> int:
        """Number of tokens added so far."""
        return sum(shard.tokens for shard in self._shards) + self._pending_tokens

    def add(self, tokens: np.ndarray) -> None:
        """Appends an array of ids [n]."""
        self._pending.append(np.asarray(tokens).astype(self._dtype))
        self._pending_tokens += len(tokens)
        if self._pending_tokens >= self._shard_tokens:
            stream = np.concatenate(self._pending)
            whole = len(stream) - len(stream) % self._shard_tokens
            for start in range(0, whole, self._shard_tokens):
                self._write(stream[start : start + self._shard_tokens])
            self._pending, self._pending_tokens = [stream[whole:]], len(stream) - whole

    def close(self) -> tuple[manifest.Shard, ...]:
        """Writes the remaining tokens. Returns the shards, a tuple of manifest.Shard."""
        if self._pending_tokens:
            self._write(np.concatenate(self._pending))
            self._pending, self._pending_tokens = [], 0
        return tuple(self._shards)

    def _write(self, tokens: np.ndarray) -> None:
        file = shard_name(self._name, len(self._shards))
        path = tf.io.gfile.join(self._data_dir, file)
        self._shards.append(write_shard(path, file, tokens, self._record_tokens, unknown=self._unknown))


def shard_name(stream: str, number: int) -> str:
    """The name of a shard's file."""
    return f"{stream}-{number:05d}.tfrecord"


def write_shard(
    path: str, file: str, tokens: np.ndarray, record_tokens: int = RECORD_TOKENS, unknown: int | None = None
) -> manifest.Shard:
    """Writes the tokens [n] of a shard to `path`; returns its Shard, in which it has the name `file`."""
    with tf.io.TFRecordWriter(path) as writer:
        for start in range(0, len(tokens), record_tokens):
            writer.write(tokens[start : start + record_tokens].tobytes())
    counted = 0 if unknown is None else int(np.count_nonzero(tokens == unknown))
    return manifest.Shard(file, len(tokens), tf.io.gfile.stat(path).length, digest(path), counted)
