"""Prepares a corpus: reads text; writes TFRecord shards, vocabulary and manifest."""

from __future__ import annotations

import dataclasses
import logging as python_logging
import os
import re
import shutil
import tempfile
import types
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from txl_tf.counted import counted
from txl_tf.data import encoders, manifest, records, staging
from txl_tf.data.request import Settings
from txl_tf.data.text import sources
from txl_tf.data.threads import REQUESTS, in_order
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError, one_line
from txl_tf.storage.files import digest, joined
from txl_tf.storage.lock import Lock


def prepare(
    dataset: str,
    data_dir: str,
    *,
    overwrite: bool = False,
    download_dir: str | None = None,
    beam_args: Sequence[str] | None = None,
    **settings: Any,
) -> manifest.Corpus:
    """Prepares a corpus in `data_dir`, unless it is there already.

    The manifest is written last: a preparation that fails or is killed leaves the earlier corpus, or none. The next
    preparation removes the files of a killed one, except its downloads, which it uses.

    Args:
        dataset, **settings: the fields of Settings.
        data_dir: local or gs://.
        overwrite: whether to replace another corpus in `data_dir`.
        download_dir: local; None: data_dir/downloads, or ~/.cache/txl_tf where data_dir is not local.
        beam_args: flags of Apache Beam, which then does the work on many machines; None: this process does it.

    InputError if the source is missing or wrong, settings contradict each other, `data_dir` holds another corpus or
    files that do not belong to one, or the files of the source have changed since.
    """
    wanted = Settings(dataset, **settings)
    wanted.check()
    request = dataclasses.asdict(wanted)
    if manifest.has_corpus(data_dir) and not overwrite:
        corpus = manifest.load_corpus(data_dir)
        defaults = dataclasses.asdict(Settings(dataset))  # of settings that are newer than the corpus
        said = defaults | corpus.request
        if differing := [name for name, value in request.items() if said.get(name) != value]:
            what = ", ".join(f"{name}={corpus.request.get(name)}" for name in differing)
            raise InputError(f"{data_dir} holds a corpus made with {what}: give another --data_dir, or --overwrite")
        files = _named_files(wanted, data_dir) if corpus.sources else []
        if files and (other := _changed(corpus.sources, files)):
            raise InputError(
                f"{counted(len(other), 'file has', 'files have')} changed, come or gone since {data_dir} was prepared "
                f"({', '.join(other[:3])}{', ..' if len(other) > 3 else ''}): --overwrite prepares again"
            )
        if staging.is_left(data_dir):
            with Lock(data_dir):
                staging.clean_up(data_dir)
        logging.info("%s is prepared already", data_dir)
        return corpus
    own = wanted.source if wanted.dataset == "text" else None
    if own and os.path.realpath(data_dir).startswith(os.path.join(os.path.realpath(own), "")):
        raise InputError(
            f"--data_dir={data_dir} is inside --source={own}, so the corpus would be read as text: give another one"
        )
    try:
        tf.io.gfile.makedirs(data_dir)
    except tf.errors.OpError as error:
        raise InputError(f"--data_dir={data_dir} cannot be made: {one_line(error)}") from error
    local = "://" not in data_dir
    download_dir = download_dir or (os.path.join(data_dir, "downloads") if local else "~/.cache/txl_tf")
    with Lock(data_dir):
        folder = staging.begin(data_dir)
        work_dir = os.path.join(data_dir, staging.WORK) if local else tempfile.mkdtemp()
        shutil.rmtree(work_dir, ignore_errors=True)  # of an earlier version that was killed
        os.makedirs(work_dir)
        try:
            return _build(wanted, data_dir, folder, os.path.expanduser(download_dir), work_dir, beam_args)
        finally:
            shutil.rmtree(work_dir)
            staging.clean_up(data_dir)


def _build(
    settings: Settings,
    data_dir: str,
    folder: str,
    download_dir: str,
    work_dir: str,
    beam_args: Sequence[str] | None,
) -> manifest.Corpus:
    """Writes a corpus into a folder of data_dir, "" for data_dir itself; then its manifest."""
    place = joined(data_dir, folder)
    files = _named_files(settings, data_dir)
    about_files = in_order(
        lambda path: (*_size_and_time(path), None if "://" in path else digest(path)), files, REQUESTS
    )
    known = dict(zip(files, about_files, strict=True))  # before they are read
    text = settings.text(download_dir, work_dir)
    for remark in text.remarks:
        print(remark, flush=True)
    encoder = settings.encoder()
    if beam_args is None:
        vocabulary, chunks = encoders.encode(encoder, text, work_dir, settings.written_passes, settings.seed)
        streams, sizes = _write(place, vocabulary, chunks), text.split_sizes()
    else:
        shared_dir = tf.io.gfile.join(data_dir, staging.WORK)
        pipelines = _beam_pipelines(settings, encoder, text, work_dir)
        vocabulary, streams, sizes = pipelines.write(settings, encoder, text, place, shared_dir, beam_args)
    about = {
        "document_ends": text.document_ends if encoder.reading.get("marked") else "",
        "texts": sources.split_contents(sizes),
        "split_rule": text.split_rule,
        "vocabulary_note": encoder.note,
        "sources": known,
    }
    manifest.write_manifest(_described(settings, data_dir, folder, vocabulary, streams, about))
    return manifest.load_corpus(data_dir)


def _write(place: str, vocabulary: Vocabulary, chunks: encoders.Chunks) -> manifest.Streams:
    dtype, writers = records.smallest_dtype(vocabulary.vocab_size), {}
    for stream, ids in chunks:
        if stream not in writers:
            writers[stream] = records.ShardWriter(place, stream, dtype, unknown=vocabulary.special.unknown)
        writers[stream].add(ids)
    vocabulary.save(place)
    return {stream: writer.close() for stream, writer in writers.items()}


def _beam_pipelines(
    settings: Settings, encoder: encoders.TokenKind, text: sources.TextSource, work_dir: str
) -> types.ModuleType:
    """The module `large.pipelines`, after a check that it can write this corpus."""
    if settings.written_passes > 1:
        raise InputError("--runner=beam does not shuffle lines: give --passes=1, or omit --runner")
    if encoder.trim:
        raise InputError(f"--runner=beam does not know the vocabulary of {settings.dataset}: omit --runner")
    if any(piece.path.startswith(work_dir) for piece in text.pieces):
        raise InputError("--runner=beam reads files where they are: unpack or convert them and give --source=FOLDER")
    python_logging.disable(python_logging.WARNING)  # at import Beam warns about missing parts for other clouds
    try:
        from txl_tf.data.large import pipelines
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "apache_beam":
            raise
        raise InputError("--runner=beam needs Apache Beam: run python -m pip install 'txl_tf[beam]'") from error
    finally:
        python_logging.disable(python_logging.NOTSET)
    return pipelines


def _described(
    settings: Settings,
    data_dir: str,
    folder: str,
    vocabulary: Vocabulary,
    streams: manifest.Streams,
    about: dict[str, Any],
) -> manifest.Corpus:
    """The Corpus of shards that are complete; `about`: further fields of it."""
    splits = {}
    for split in sources.SPLITS:
        passes = [shards for stream, shards in streams.items() if stream == split or stream.startswith(split + "-")]
        tokens = sum(shard.tokens for shard in passes[0]) if passes else 0
        if tokens < 2:
            raise InputError(f"there is no {split} text: give more documents, or files named train.., valid.., test..")
        splits[split] = manifest.Split(tokens, tuple(passes))
    names = [vocabulary.spec["file"]] if "file" in vocabulary.spec else []
    corpus = settings.corpus
    if corpus and settings.vocab is None and vocabulary.vocab_size != corpus.vocab_size:
        logging.warning(
            "the vocabulary has %d entries, that of the complete %s has %d: published models do not fit",
            *(vocabulary.vocab_size, settings.dataset, corpus.vocab_size),
        )
    cutoffs = corpus.cutoffs if corpus and vocabulary.unit == "word" else ()
    return manifest.Corpus(
        data_dir=data_dir,
        dataset=settings.dataset,
        unit=vocabulary.unit,
        vocab_size=vocabulary.vocab_size,
        cutoffs=tuple(cutoff for cutoff in cutoffs if cutoff < vocabulary.vocab_size),
        vocabulary_spec=vocabulary.spec,
        dtype=records.smallest_dtype(vocabulary.vocab_size),
        record_tokens=records.RECORD_TOKENS,
        shard_records=records.SHARD_RECORDS,
        splits=splits,
        files={name: digest(joined(data_dir, folder, name)) for name in names},
        request=dataclasses.asdict(settings),
        folder=folder,
        **about,
    )


def _named_files(settings: Settings, data_dir: str) -> list[str]:
    """The files that the settings name, but for those in data_dir; [] if there are none, or not any more.

    In a directory with a published corpus these are the files with its members' names, and archives.
    """
    try:
        found = sources.find_files(settings.source) if settings.source and "hf://" not in settings.source else []
    except InputError:
        return []
    if settings.corpus and settings.source and tf.io.gfile.isdir(settings.source):
        members = "|".join(settings.corpus.members.values())
        found = [path for path in found if path.endswith(".gz") or re.fullmatch(members, os.path.basename(path))]
    if settings.vocab_file:
        if not tf.io.gfile.exists(settings.vocab_file):
            return []
        found.append(settings.vocab_file)
    own = os.path.join(os.path.realpath(data_dir), "")
    return [path for path in found if not os.path.realpath(path).startswith(own)]


def _size_and_time(path: str) -> tuple[int, int]:
    if "://" in path:
        about = tf.io.gfile.stat(path)
        return about.length, about.mtime_nsec
    local = os.stat(path)  # TensorFlow's time of a local file has no parts of a second
    return local.st_size, local.st_mtime_ns


def _changed(known: Mapping[str, Sequence[Any]], files: Sequence[str]) -> list[str]:
    """The files that have changed, come or gone since `known`. A sum is compared if only the time differs."""

    def differs(path: str) -> bool:
        if path not in known:
            return True
        (size, time, sha256), (new_size, new_time) = known[path], _size_and_time(path)
        return new_size != size or (new_time != time and (sha256 is None or digest(path) != sha256))

    found = [path for path, new in zip(files, in_order(differs, files, REQUESTS), strict=True) if new]
    return sorted({*found, *(set(known) - set(files))})
