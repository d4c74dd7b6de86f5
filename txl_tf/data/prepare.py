"""Preparing a corpus: text in, TFRecord shards, vocabulary and manifest out."""

import re

import tensorflow as tf
from absl import logging

from txl_tf.data import manifest, records, sources
from txl_tf.data.vocab import ByteVocabulary
from txl_tf.errors import InputError


def prepare(dataset, data_dir, source=None, overwrite=False):
    """Prepares a corpus in `data_dir`, or finds that it is there already.

    Returns:
        Corpus.

    Raises:
        InputError: the source is missing or not what it should be, or `data_dir` holds another corpus.
    """
    request = {"dataset": dataset, "source": source}
    if tf.io.gfile.exists(tf.io.gfile.join(data_dir, manifest.FILE_NAME)) and not overwrite:
        corpus = manifest.load_corpus(data_dir)
        if corpus.request != request:
            raise InputError(f"{data_dir} holds {corpus.request}: give another --data_dir, or --overwrite")
        logging.info("%s is prepared already", data_dir)
        return corpus
    tf.io.gfile.makedirs(data_dir)
    _remove_old(data_dir)
    text = sources.standard_library() if dataset == "python_stdlib" else sources.text_files(source)
    vocabulary = ByteVocabulary()
    dtype = records.smallest_dtype(vocabulary.vocab_size)
    writers = {split: records.ShardWriter(data_dir, split, dtype) for split in sources.SPLITS}
    for split, block in text.blocks(utf8=False):
        writers[split].add(vocabulary.encode(block))
    splits = {split: manifest.Split(writer.tokens, (writer.close(),)) for split, writer in writers.items()}
    vocabulary.save(data_dir)
    corpus = manifest.Corpus(
        data_dir=data_dir,
        dataset=dataset,
        unit=vocabulary.unit,
        vocab_size=vocabulary.vocab_size,
        cutoffs=(),
        vocabulary_spec=vocabulary.spec,
        dtype=dtype,
        record_tokens=records.RECORD_TOKENS,
        shard_records=records.SHARD_RECORDS,
        splits=splits,
        files={},
        request=request,
    )
    manifest.write_manifest(corpus)
    return manifest.load_corpus(data_dir)


def _remove_old(data_dir):
    """Removes what an earlier preparation left, the manifest first: without it nothing reads the rest."""
    path = tf.io.gfile.join(data_dir, manifest.FILE_NAME)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
    for name in tf.io.gfile.listdir(data_dir):
        if re.fullmatch(r"(train|valid|test)\S*-\d{5}\.tfrecord", name):
            tf.io.gfile.remove(tf.io.gfile.join(data_dir, name))
