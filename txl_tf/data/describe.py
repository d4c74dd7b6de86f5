"""Describes a prepared corpus: counts, both ends of the vocabulary, tokens per cluster, an example of each split."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from txl_tf.counted import counted
from txl_tf.data import lanes
from txl_tf.data.manifest import Corpus

_ENDS = 12  # entries of the vocabulary shown at either end
_SAMPLE_TOKENS = 1 << 22
_DOCUMENT_ENDS = {
    "": "not marked",
    "file": "a token at the end of each file",
    "blank_line": "a token at blank lines",
    "row": "a token after each row",
    "article": "a token at the end of each article",
}


def describe(corpus: Corpus, example_tokens: int = 64) -> Iterator[str]:
    """Lines of text about a Corpus."""
    yield f"{corpus.dataset} in {corpus.data_dir}, fingerprint {corpus.fingerprint}"
    yield f"tokens are {corpus.unit}s, {corpus.dtype} in {counted(len(corpus.shards()), 'shard')}"
    if corpus.document_ends is not None:
        yield f"ends of documents: {_DOCUMENT_ENDS[corpus.document_ends]}"
    for name, split in corpus.splits.items():
        passes = f" in each of {len(split.passes)} passes" if len(split.passes) > 1 else ""
        yield f"{name:>6} {split.tokens:15,} tokens{passes}"
    vocabulary = corpus.vocabulary
    ids = list(range(corpus.vocab_size))
    yield f"vocabulary of {corpus.vocab_size:,}"
    yield "  first: " + " ".join(vocabulary.describe(token) for token in ids[:_ENDS])
    yield "  last:  " + " ".join(vocabulary.describe(token) for token in ids[-_ENDS:])
    bounds = [0, *corpus.cutoffs, corpus.vocab_size]
    for name in corpus.splits:
        tokens = _first_tokens(corpus, name)
        if corpus.cutoffs:
            ranges = itertools.pairwise(bounds)
            shares = np.histogram(tokens, bounds)[0] / len(tokens)
            clusters = [f"{low:,}-{high - 1:,} {s:.2%}" for (low, high), s in zip(ranges, shares, strict=True)]
            yield f"{name}: ids " + ", ".join(clusters) + f" of {len(tokens):,} tokens"
        yield f"{name} begins: " + repr(vocabulary.decode(tokens[:example_tokens]))


def _first_tokens(corpus: Corpus, split: str) -> np.ndarray:
    """Up to _SAMPLE_TOKENS tokens from the start of a split, [n]."""
    shards, start = lanes.Shards(corpus, split), tf.constant(0, tf.int64)
    with lanes.named_read_errors(corpus):
        return next(shards.window(start, start, min(shards.tokens, _SAMPLE_TOKENS)).as_numpy_iterator())
