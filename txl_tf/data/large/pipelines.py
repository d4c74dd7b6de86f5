"""Prepares a corpus with Apache Beam: the same shards as in one process, written by many machines.

Three pipelines run, the first two only if they are needed:

1. documents: how many documents begin in each unit, because the split of a document is drawn by its number
2. symbols: how often each symbol occurs, and where it occurs first; the vocabulary follows from it
3. shards: units to ids, and ids to shards. The place of a unit's ids in its split is the sum of the lengths before it.

Between them this process reads rows of JSON in the job's work_dir: a number for each unit, the symbols of the
vocabulary, and the list of shards. It trains a subword vocabulary itself, on the same sample as without Beam.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from absl import logging as absl_logging
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineState

from txl_tf.data import manifest, records
from txl_tf.data.encoders import TokenKind
from txl_tf.data.large.job import Job, bytes_done, input_error, read_rows, worker_of, write_rows
from txl_tf.data.request import Settings
from txl_tf.data.text.sources import SPLITS, TextSource, grouped
from txl_tf.data.vocabularies import Vocabulary
from txl_tf.errors import InputError, one_line
from txl_tf.progress import every, progress_bar
from txl_tf.storage.literal_paths import files_named

_NOWHERE = 1 << 62
_FILES = 64  # files of rows


def write(
    settings: Settings, encoder: TokenKind, text: TextSource, data_dir: str, shared_dir: str, beam_args: Sequence[str]
) -> tuple[Vocabulary, manifest.Streams, Iterable[tuple[str, str, int]]]:
    """Writes the vocabulary and the shards of a corpus. All workers must be able to read the text and write data_dir.

    `shared_dir` is another folder that they can write, for temporary files; `beam_args` are flags of Apache Beam.
    Without --runner its runner for one machine works.

    Returns (vocabulary, streams, sizes): sizes for `sources.split_contents`. InputError if the text cannot be read,
    Beam fails, or its runner is one that loses data.
    """
    runner = PipelineOptions(list(beam_args)).view_as(StandardOptions).runner or ""
    if runner.rpartition(".")[2].lower().removesuffix("runner") == "dask":
        raise InputError(
            f"--runner={runner} of Beam loses data without a word: it drops what a worker passes on at the end of its "
            "work, and mixes outputs. Use DataflowRunner, FlinkRunner, or none for this machine"
        )
    job = Job(
        work_dir=tf.io.gfile.join(shared_dir, uuid.uuid4().hex),
        data_dir=data_dir,
        settings=settings,
        pieces=tuple(
            piece if piece.column else dataclasses.replace(piece, stop=piece.start + size)
            for piece, size in zip(text.pieces, text.sizes, strict=True)
        ),
        reading=text.reading(**encoder.reading),
    )
    tf.io.gfile.makedirs(tf.io.gfile.join(job.work_dir, "progress"))
    run = functools.partial(_run, beam_args=beam_args, size=sum(text.sizes))
    try:
        if text.documents == "blank_line":
            rows = run(job, "documents", _documents)
            before, first = job.first_units, np.cumsum([0, *(count for _, count in rows)])[:-1]
            piece_of = np.searchsorted(before, np.arange(job.units), side="right") - 1
            numbers = first - first[before[piece_of]]
            job = dataclasses.replace(job, first_documents=tuple(numbers.tolist()))
        seen, totals = _symbols_in_order(job, run) if encoder.counted else ([], np.zeros(0, np.int64))
        vocabulary = encoder.vocabulary(text, seen, totals)
        vocabulary.save(data_dir)
        job = dataclasses.replace(job, vocabulary=vocabulary.spec)
        streams: dict[str, list[manifest.Shard]] = {}
        rows = run(job, "shards", _shards)
        for split, number, shard in (row[1:] for row in rows if row[0] == "shard"):
            if number != len(streams.setdefault(split, [])):
                raise RuntimeError(f"shard {len(streams[split])} of {split} is missing")
            streams[split].append(manifest.Shard(**shard))
        drawn = (row[1:] for row in rows if row[0] == "text")
        sizes = [(split, job.pieces[job.piece_of(unit)].shown, size) for split, unit, size in drawn]
        return vocabulary, {split: tuple(shards) for split, shards in streams.items()}, sizes or text.split_sizes()
    finally:
        tf.io.gfile.rmtree(job.work_dir)
        for path in files_named(data_dir, "*.tfrecord.partial-*"):
            tf.io.gfile.remove(path)


def _run(
    job: Job, name: str, build: Callable[[beam.PCollection, str], beam.PCollection], beam_args: Sequence[str], size: int
) -> list[Any]:
    """Runs a pipeline that reads `size` bytes to its end, shows its progress, and gives the rows that it wrote."""
    job_path = job.save(name)
    folder = tf.io.gfile.join(job.work_dir, f"{name}-rows")
    tf.io.gfile.makedirs(folder)
    options = PipelineOptions(list(beam_args))
    own = options.view_as(StandardOptions).runner
    # By default Beam's DirectRunner downloads a program. This one is in the package.
    pipeline = beam.Pipeline(runner=FnApiRunner() if own in (None, "DirectRunner") else own, options=options)
    units = (
        pipeline
        | "ranges" >> beam.Create(range(0, job.units, 1000))
        | "units" >> beam.FlatMap(lambda start, units: range(start, min(start + 1000, units)), job.units)
        | "to all workers" >> beam.Reshuffle()
    )
    rows = build(units, job_path)
    _ = (
        rows
        | "group rows" >> beam.GroupBy(lambda row: zlib.crc32(repr(row).encode()) % _FILES)
        | "write rows" >> beam.MapTuple(lambda _, group: write_rows(folder, group))
    )
    try:
        with _quiet(), _progress(name, job.work_dir, size):
            result = pipeline.run()
            try:
                state = result.wait_until_finish()
            except KeyboardInterrupt:
                result.cancel()
                raise
            if state != PipelineState.DONE:
                raise RuntimeError(f"the job ended as {state}")
    except Exception as error:
        raise input_error(job.work_dir) or InputError(
            f"Apache Beam could not finish ({one_line(error)[-300:]}): -v=1 shows everything"
        ) from error
    return read_rows(folder)


@contextlib.contextmanager
def _progress(name: str, work_dir: str, size: int) -> Iterator[None]:
    before = bytes_done(work_dir)
    with progress_bar(name, size, "B") as bar:

        def look() -> None:
            with contextlib.suppress(tf.errors.OpError, InputError):
                bar.update(bytes_done(work_dir) - before - bar.n)

        with every(1 if "://" not in work_dir else 10, look):
            yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides Beam's messages, unless -v=1 was given; commands hide those of its worker processes in any case."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    if absl_logging.get_verbosity() < absl_logging.INFO:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _documents(units: beam.PCollection, job: str) -> beam.PCollection:
    """Rows (unit, documents that begin in it)."""
    return units | "count documents" >> beam.Map(lambda unit: (unit, worker_of(job).texts(unit)[1]))


def _symbols(units: beam.PCollection, job: str) -> beam.PCollection:
    """Rows ("symbol", symbol, count, first places by split) and, where texts are grouped, ("size", unit, ..)."""
    counted = units | "count" >> beam.FlatMap(_counted, job).with_outputs("sizes", main="symbols")
    symbols = (
        counted.symbols
        | "add up" >> beam.CombinePerKey(_added)
        | "frequent" >> beam.Filter(lambda item: item[1][0] >= worker_of(job).encoder.min_count)
        | "symbol rows" >> beam.MapTuple(lambda symbol, value: ("symbol", symbol, *value))
    )
    return (symbols, counted.sizes) | "all rows" >> beam.Flatten()


def _counted(unit: int, job: str) -> Iterator[Any]:
    """The symbols of a unit, each with its count and, for each split, the place where it occurs first there."""
    worker = worker_of(job)
    for order, (split, symbols, counts, size) in enumerate(worker.count(unit)):
        if worker.job.reading.documents != "joined":
            yield beam.pvalue.TaggedOutput("sizes", ("size", unit, order, split, size))
        before, after = [_NOWHERE] * SPLITS.index(split), [_NOWHERE] * (len(SPLITS) - 1 - SPLITS.index(split))
        is_counted = split in worker.encoder.counted
        for rank, (symbol, count) in enumerate(zip(symbols, counts.tolist(), strict=True)):
            yield symbol, (count if is_counted else 0, *before, (unit << 32) + rank, *after)


def _added(values: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The sum of the counts, and the first of the places."""
    total = [0, _NOWHERE, _NOWHERE, _NOWHERE]
    for value in values:
        total = [total[0] + value[0], *map(min, total[1:], value[1:])]
    return tuple(total)


def _symbols_in_order(job: Job, run: Callable[..., list[Any]]) -> tuple[list[Any], np.ndarray]:
    """The symbols in the order of their first appearance in `TextSource.blocks`, and their counts."""
    rows = run(job, "symbols", _symbols)
    order = {split: np.arange(job.units) for split in SPLITS}
    if job.reading.documents != "joined":
        items = [row[1:] for row in rows if row[0] == "size"]
        for place, (split, units) in enumerate(grouped((split, size, unit) for unit, _, split, size in items)):
            order[split][units] = place
    found = []
    for symbol, count, *places in (row[1:] for row in rows if row[0] == "symbol"):
        by_split = [(split, place) for split, place in zip(SPLITS, places, strict=True) if place != _NOWHERE]
        first = min((int(order[split][place >> 32]), place) for split, place in by_split)
        found.append((first, symbol, count))
    found.sort(key=lambda item: item[0])
    return [symbol for _, symbol, _ in found], np.array([count for _, _, count in found], np.int64)


def _shards(units: beam.PCollection, job: str) -> beam.PCollection:
    """Rows ("shard", split, number, Shard) and, where splits of documents are drawn, ("text", split, unit, bytes)."""
    encoded = units | "encode" >> beam.FlatMap(_encoded, job).with_outputs("sizes", main="ids")
    # Reshuffle keeps its input, so each unit is encoded once although its ids are needed twice.
    ids = encoded.ids | "keep ids" >> beam.Reshuffle()
    lengths = ids | "lengths" >> beam.Map(lambda item: (*item[0], len(item[1]) // worker_of(job).dtype.itemsize))
    layout = beam.pvalue.AsSingleton(lengths | "all lengths" >> beam.combiners.ToList() | "places" >> beam.Map(_places))
    shards = (
        ids
        | "cut" >> beam.FlatMap(_cut, job, layout)
        | "group shards" >> beam.GroupByKey()
        | "write shards" >> beam.Map(_write_shard, job, layout)
    )
    return (shards, encoded.sizes) | "all rows" >> beam.Flatten()


def _encoded(unit: int, job: str) -> Iterator[Any]:
    worker = worker_of(job)
    for split, ids, size in worker.encode(unit):
        yield (split, unit), ids
        if worker.job.reading.documents in ("blank_line", "row"):
            yield beam.pvalue.TaggedOutput("sizes", ("text", split, unit, size))


_Layout = dict[str, tuple[np.ndarray, np.ndarray]]


def _places(lengths: list[tuple[str, int, int]]) -> _Layout:
    """(split, unit, tokens) of all units -> {split: (units [n], where each begins in the split [n + 1])}."""
    places = {}
    for split in SPLITS:
        rows = np.array(sorted(row[1:] for row in lengths if row[0] == split), np.int64).reshape(-1, 2)
        places[split] = rows[:, 0], np.cumsum([0, *rows[:, 1]])
    return places


_SHARD_TOKENS = records.RECORD_TOKENS * records.SHARD_RECORDS


def _cut(
    item: tuple[tuple[str, int], bytes], job: str, layout: _Layout
) -> Iterator[tuple[tuple[str, int], tuple[int, bytes]]]:
    """The parts of a unit's ids that belong to each shard: ((split, shard), (place in the shard, ids))."""
    (split, unit), ids = item
    width = worker_of(job).dtype.itemsize
    units, places = layout[split]
    place, used, total = int(places[np.searchsorted(units, unit)]), 0, len(ids) // width
    while used < total:
        shard, inside = divmod(place + used, _SHARD_TOKENS)
        size = min(_SHARD_TOKENS - inside, total - used)
        yield (split, shard), (inside, ids[used * width : (used + size) * width])
        used += size


def _write_shard(
    group: tuple[tuple[str, int], Iterable[tuple[int, bytes]]], job: str, layout: _Layout
) -> tuple[str, str, int, dict[str, Any]]:
    (split, number), parts = group
    ids = b"".join(part for _, part in sorted(parts))
    worker, total = worker_of(job), int(layout[split][1][-1])
    expected = min(_SHARD_TOKENS, total - number * _SHARD_TOKENS) * worker.dtype.itemsize
    if len(ids) != expected:
        raise RuntimeError(f"shard {number} of {split} has {len(ids):,} bytes of ids, not {expected:,}")
    return "shard", split, number, worker.write_shard(split, number, ids)
