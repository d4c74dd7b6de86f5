"""Small corpora that an XLNet can be pretrained on: pieces with SEP and CLS, in small shards."""

import functools
from unittest import mock

import numpy as np

from txl_tf.data import manifest, records
from txl_tf.data.vocabularies import SubwordVocabulary
from txl_tf.data.vocabularies.subword_training import train
from txl_tf.storage.files import digest

WORDS = ["lambda", "return", "import", "yield", "class", "while", "(", ")", "don't", "="]


@functools.cache
def small_model():
    """A serialised SentencePiece model with XLNet's special pieces."""
    return train({word: 50 - i for i, word in enumerate(WORDS)}, 312).model


def write(directory, tokens=5003, passes=1, learnable=False):
    """Writes a corpus of train, valid and test. Returns (corpus, {split: tokens of each pass}).

    Args:
        directory: an existing one.
        tokens: of each split.
        learnable: whether it is text, and not random pieces.
    """
    vocabulary, draw = SubwordVocabulary(small_model()), np.random.default_rng(0)
    vocabulary.save(directory)
    text = np.concatenate([np.arange(9, vocabulary.vocab_size), np.full(30, vocabulary.start_token)])
    if learnable:
        lines = [" ".join(draw.choice(WORDS[:6], 3)) for _ in range(tokens)]
        text = vocabulary.encode("\n".join(lines))
    dtype, splits, arrays = records.smallest_dtype(vocabulary.vocab_size), {}, {}
    for name in ("train", "valid", "test"):
        streams = [text[:tokens] if learnable else draw.choice(text, tokens) for _ in range(passes)]
        written = []
        for index, stream in enumerate(streams):
            with mock.patch.multiple(records, RECORD_TOKENS=50, SHARD_RECORDS=7):
                writer = records.ShardWriter(directory, f"{name}-{index}", dtype)
                writer.add(stream)
                written.append(writer.close())
        splits[name], arrays[name] = manifest.Split(tokens, tuple(written)), streams
    manifest.write_manifest(
        manifest.Corpus(
            data_dir=directory,
            dataset="text",
            unit="subword",
            vocab_size=vocabulary.vocab_size,
            cutoffs=(),
            vocabulary_spec=vocabulary.spec,
            dtype=dtype,
            record_tokens=50,
            shard_records=7,
            splits=splits,
            files={vocabulary.FILE: digest(f"{directory}/{vocabulary.FILE}")},
            request={},
        )
    )
    return manifest.load_corpus(directory), arrays
