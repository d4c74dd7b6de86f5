"""Prepares a corpus: reads text; writes TFRecord shards, vocabulary and manifest."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
from typing import Any

import tensorflow as tf
from absl import logging

from txl_tf.choices import DATASETS, VOCABULARIES
from txl_tf.data import encoding, manifest, records, sources
from txl_tf.data.corpora import CORPORA, PublishedCorpus
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError, one_line
from txl_tf.files import digest, read_bytes, read_lines

_WORK = ".txl_tf_work"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to prepare and how.

    Attributes:
        dataset: one of DATASETS.
        source: the published archive or its files; for dataset "text" a file, directory or glob. None: download.
        vocab: one of VOCABULARIES; None: the corpus's own, or bytes.
        vocab_size: of a SentencePiece model to train.
        vocab_file: a word list, one a line, a SentencePiece model (XLNet's spiece.model for "xlnet"), or for enwik8 and
            text8 their symbols as a model_dir has them: to use as it is.
        min_count: rarer words become the unknown token; None: the corpus's own rule.
        documents: "file" or "blank_line": what separates documents in dataset "text".
        passes: shuffled copies of the training text; None: the corpus's own number.
        seed: of the shuffling.
    """

    dataset: str
    source: str | None = None
    vocab: str | None = None
    vocab_size: int | None = None
    vocab_file: str | None = None
    min_count: int | None = None
    documents: str = "file"
    passes: int | None = None
    seed: int = 0

    @property
    def corpus(self) -> PublishedCorpus | None:
        """The PublishedCorpus, or None."""
        return CORPORA.get(self.dataset)

    def check(self) -> None:
        """Raises InputError if a setting is missing or would be ignored."""
        own_words = self.vocab is None and self.corpus is not None and self.corpus.words is not None
        words = self.vocab == "words" or own_words
        if self.dataset not in DATASETS or self.vocab not in (None, *VOCABULARIES):
            raise InputError(f"--dataset is one of {', '.join(DATASETS)} and --vocab of {', '.join(VOCABULARIES)}")
        if self.dataset == "text" and not self.source:
            raise InputError("--dataset=text needs --source: a file, a directory or a quoted glob")
        if self.dataset == "python_stdlib" and self.source:
            raise InputError("--dataset=python_stdlib reads this interpreter's own library: leave --source away")
        if self.vocab == "sentencepiece" and (self.vocab_size is None) == (self.vocab_file is None):
            raise InputError("--vocab=sentencepiece needs either --vocab_size, to train a model, or --vocab_file")
        if self.vocab == "xlnet" and self.vocab_file is None:
            raise InputError("--vocab=xlnet needs --vocab_file: the spiece.model that comes with XLNet's checkpoints")
        if self.vocab_size is not None and self.vocab != "sentencepiece":
            raise InputError("--vocab_size is for --vocab=sentencepiece: other vocabularies have the size they have")
        own_symbols = self.vocab is None and self.corpus is not None and self.corpus.encode is not None
        if self.vocab_file is not None and not (words or own_symbols or self.vocab in ("sentencepiece", "xlnet")):
            raise InputError("--vocab_file is for words (a list), sentencepiece and xlnet (a model), enwik8 and text8")
        if (self.min_count is not None or self.passes is not None) and not words:
            raise InputError("--min_count and --passes are for vocabularies of words")
        if self.documents != "file" and self.dataset != "text":
            raise InputError("--documents is for --dataset=text")


def prepare(
    dataset: str, data_dir: str, *, overwrite: bool = False, download_dir: str | None = None, **settings: Any
) -> manifest.Corpus:
    """Prepares a corpus in `data_dir`, unless it is there already.

    The manifest is written last, so a preparation that is killed leaves no corpus. The next one reuses its downloads.

    Args:
        dataset: one of DATASETS.
        data_dir: local or gs://.
        overwrite: whether to replace another corpus in `data_dir`.
        download_dir: local; None: data_dir/downloads, or ~/.cache/txl_tf where data_dir is not local.
        **settings: the other fields of Settings.

    Returns:
        Corpus.

    Raises:
        InputError: the source is missing or wrong, settings contradict each other, or `data_dir` holds another corpus.
    """
    wanted = Settings(dataset, **settings)
    wanted.check()
    request = dataclasses.asdict(wanted)
    if tf.io.gfile.exists(tf.io.gfile.join(data_dir, manifest.FILE_NAME)) and not overwrite:
        corpus = manifest.load_corpus(data_dir)
        if differing := [name for name, value in request.items() if corpus.request.get(name) != value]:
            what = ", ".join(f"{name}={corpus.request.get(name)}" for name in differing)
            raise InputError(f"{data_dir} holds a corpus made with {what}: give another --data_dir, or --overwrite")
        logging.info("%s is prepared already", data_dir)
        return corpus
    try:
        tf.io.gfile.makedirs(data_dir)
    except tf.errors.OpError as error:
        raise InputError(f"--data_dir={data_dir} cannot be made: {one_line(error)}") from error
    _remove_old(data_dir)
    local = "://" not in data_dir
    work_dir = os.path.join(data_dir, _WORK) if local else tempfile.mkdtemp()
    download_dir = download_dir or (os.path.join(data_dir, "downloads") if local else "~/.cache/txl_tf")
    shutil.rmtree(work_dir, ignore_errors=True)  # left by a preparation that was killed
    os.makedirs(work_dir)
    try:
        text = _text(wanted, os.path.expanduser(download_dir), work_dir)
        vocabulary, chunks = _encode(wanted, text, work_dir)
        return _write(wanted, data_dir, vocabulary, chunks)
    finally:
        shutil.rmtree(work_dir)


def _text(settings: Settings, download_dir: str, work_dir: str) -> sources.TextSource:
    if settings.dataset == "python_stdlib":
        return sources.standard_library()
    corpus = settings.corpus
    if corpus is None:
        return sources.text_files(settings.source or "", settings.documents)
    at_lines = settings.vocab not in (None, "bytes")
    return corpus.text(settings.dataset, settings.source, download_dir, work_dir, at_lines)


def _encode(settings: Settings, text: sources.TextSource, work_dir: str) -> tuple[Vocabulary, encoding.Chunks]:
    """(vocabulary, chunks), see encoding.py."""
    corpus, vocab = settings.corpus, settings.vocab
    if vocab is None and corpus and corpus.encode:
        return corpus.encode(text, vocab_file=settings.vocab_file)
    if vocab == "sentencepiece":
        model = read_bytes(settings.vocab_file) if settings.vocab_file else None
        return encoding.subword_pieces(text, settings.vocab_size, model)
    if vocab == "xlnet":
        return encoding.xlnet_pieces(text, read_bytes(settings.vocab_file or ""))
    if vocab == "chars":
        return encoding.seen_chars(text)
    if vocab == "words" or (vocab is None and corpus):
        options = dict(corpus.words if corpus and corpus.words else {})
        if settings.min_count is not None:
            options["min_count"] = settings.min_count
        if settings.vocab_file:
            lines = read_lines(settings.vocab_file)
            options["word_list"] = [line.split()[0] for line in lines if line.strip()]
        passes = settings.passes or (corpus.passes if corpus else 1)
        return encoding.seen_words(text, work_dir, passes=passes, seed=settings.seed, **options)
    return encoding.all_bytes(text)


def _write(settings: Settings, data_dir: str, vocabulary: Vocabulary, chunks: encoding.Chunks) -> manifest.Corpus:
    dtype, writers = records.smallest_dtype(vocabulary.vocab_size), {}
    for stream, ids in chunks:
        if stream not in writers:
            writers[stream] = records.ShardWriter(data_dir, stream, dtype)
        writers[stream].add(ids)
    splits = {}
    for split in sources.SPLITS:
        passes = [writer for stream, writer in writers.items() if stream == split or stream.startswith(split + "-")]
        if not passes or passes[0].tokens < 2:
            raise InputError(f"there is no {split} text: give more documents, or files named train.., valid.., test..")
        splits[split] = manifest.Split(passes[0].tokens, tuple(writer.close() for writer in passes))
    vocabulary.save(data_dir)
    names = [vocabulary.spec["file"]] if "file" in vocabulary.spec else []
    corpus = settings.corpus
    if corpus and settings.vocab is None and vocabulary.vocab_size != corpus.vocab_size:
        logging.warning(
            "the vocabulary has %d entries, that of the complete %s has %d: published models do not fit",
            *(vocabulary.vocab_size, settings.dataset, corpus.vocab_size),
        )
    cutoffs = corpus.cutoffs if corpus and vocabulary.unit == "word" else ()
    manifest.write_manifest(
        manifest.Corpus(
            data_dir=data_dir,
            dataset=settings.dataset,
            unit=vocabulary.unit,
            vocab_size=vocabulary.vocab_size,
            cutoffs=tuple(cutoff for cutoff in cutoffs if cutoff < vocabulary.vocab_size),
            vocabulary_spec=vocabulary.spec,
            dtype=dtype,
            record_tokens=records.RECORD_TOKENS,
            shard_records=records.SHARD_RECORDS,
            splits=splits,
            files={name: digest(tf.io.gfile.join(data_dir, name)) for name in names},
            request=dataclasses.asdict(settings),
        )
    )
    return manifest.load_corpus(data_dir)


def _remove_old(data_dir: str) -> None:
    """Removes the files of an earlier preparation, the manifest first, since without it nothing else is read."""
    path = tf.io.gfile.join(data_dir, manifest.FILE_NAME)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
    for name in tf.io.gfile.listdir(data_dir):
        if re.fullmatch(r"(train(-\d+)?|valid|test)-\d{5}\.tfrecord", name):
            tf.io.gfile.remove(tf.io.gfile.join(data_dir, name))
