"""Apache Beam writes the shards that one process writes: any kind of token, any documents, also if workers fail."""

import filecmp
import os
import pathlib
import signal
import subprocess
import sys
import time

import engine_runs
import numpy as np
import pytest
from pair_corpus import small_model

from txl_tf.data import manifest, records
from txl_tf.data.prepare import prepare
from txl_tf.data.text import blocks
from txl_tf.errors import InputError

pytest.importorskip("apache_beam", reason="Apache Beam is not installed: make test-beam")

from txl_tf.data.large import job, pipelines

ROOT = pathlib.Path(__file__).parents[2]
TWO_PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
RETRYING = ["--runner=apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"]


@pytest.fixture
def small(monkeypatch):
    """Small blocks, records and shards, so that there are many of each."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(pipelines, "_SHARD_TOKENS", 1 << 10)
    monkeypatch.setattr(records, "RECORD_TOKENS", 1 << 8)
    monkeypatch.setattr(records, "SHARD_RECORDS", 4)


def write_text(folder, seed=0, paragraphs=400):
    """Forty files and one, with paragraphs, long lines, rare and frequent words. Returns the folder's path."""
    draw = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(300)] + ["naïve", "日本", "lambda", "return"])
    (folder / "files").mkdir()
    texts = []
    for _ in range(paragraphs):
        lines = [" ".join(draw.choice(words, draw.integers(1, 40))) for _ in range(draw.integers(1, 4))]
        texts.append("\n".join(lines) + "\n" * int(draw.integers(1, 4)))
    texts[7] = texts[7].replace("\n", " ").strip() * 30 + "\n"
    for i, part in enumerate(np.array_split(np.array(texts, dtype=object), 41)):
        (folder / "files" / f"{i}.txt").write_text("".join(part))
    (folder / "one.txt").write_text("".join(texts))
    (folder / "own.model").write_bytes(small_model())
    return folder


def both(folder, beam_args=(), dataset="text", **settings):
    """Prepares in one process and with Beam; the same files must result. Returns (corpus, other)."""
    corpora = []
    for name, arguments in (("alone", None), ("beam", beam_args)):
        corpora.append(prepare(dataset, str(folder / name), beam_args=arguments, overwrite=True, **settings))
    alone, other = corpora
    files = sorted(os.listdir(alone.data_dir))
    assert files == sorted(os.listdir(other.data_dir)) and "manifest.json" in files
    assert filecmp.cmpfiles(alone.data_dir, other.data_dir, files, shallow=False)[0] == files
    other.check_content()
    return alone, other


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        ("files", {"vocab": "words"}),
        ("files", {"vocab": "chars"}),
        ("files", {"vocab": "sentencepiece", "vocab_size": 340}),
        ("one.txt", {"vocab": "words", "documents": "blank_line", "min_count": 2}),
        ("one.txt", {"vocab": "sentencepiece", "vocab_file": "own.model"}),
        ("one.txt", {"vocab": "xlnet", "vocab_file": "own.model", "documents": "blank_line"}),
        ("one.txt", {"dataset": "enwik8"}),
        ("one.txt", {"vocab": "bytes"}),
    ],
)
def test_the_files_are_those_of_one_process(tmp_path, small, source, settings):
    write_text(tmp_path)
    if "vocab_file" in settings:
        settings = settings | {"vocab_file": str(tmp_path / settings["vocab_file"])}
    alone, _ = both(tmp_path, source=str(tmp_path / source), **settings)
    assert len(alone.splits["train"].passes[0]) > 3


@pytest.mark.parametrize("settings", [{"vocab": "words"}, {"vocab": "xlnet", "vocab_file": "own.model"}])
def test_groups_of_rows_are_those_of_one_process(tmp_path, small, settings):
    """The rows of Parquet files, whose splits are drawn."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = (write_text(tmp_path) / "one.txt").read_text().split("\n\n")
    (tmp_path / "rows").mkdir()
    for i, part in enumerate((texts[:100], texts[100:])):
        parquet.write_table(pyarrow.table({"text": part}), tmp_path / "rows" / f"{i}.parquet", row_group_size=13)
    if "vocab_file" in settings:
        settings = settings | {"vocab_file": str(tmp_path / settings["vocab_file"])}
    alone, _ = both(tmp_path, source=str(tmp_path / "rows"), **settings)
    assert len(alone.splits["train"].passes[0]) > 3


def test_words_of_several_splits(tmp_path, small):
    for split, count in (("train", 300), ("valid", 20), ("test", 20)):
        lines = [f" the word{i % 40} of {split} {i % 7}" for i in range(count)]
        (tmp_path / f"wiki.{split}.tokens").write_text("\n".join(lines))  # and no newline at the end
    both(tmp_path, dataset="wt2", source=str(tmp_path))


def test_two_processes_write_what_one_writes(tmp_path):
    write_text(tmp_path, paragraphs=9000)
    alone, _ = both(tmp_path, TWO_PROCESSES, source=str(tmp_path / "one.txt"), vocab="bytes")
    assert len(alone.splits["train"].passes[0]) > 2


def test_a_killed_process_ends_it_in_one_line_and_the_next_run_writes_the_same(tmp_path):
    """In the middle of its work; if it is killed while it starts, Beam's runner for one machine waits for ever."""
    write_text(tmp_path, paragraphs=9000)
    source, data_dir = f"{tmp_path / 'one.txt'}", tmp_path / "beam"
    command = [
        sys.executable,
        ROOT / "scripts/prepare_data.py",
        "--dataset=text",
        "--vocab=words",
        f"--source={source}",
    ]
    command += [f"--data_dir={data_dir}", "--runner=beam", f"--beam_args={' '.join(TWO_PROCESSES)}"]

    def working():
        return (
            engine_runs.process_named("sdk_worker_main") if list(data_dir.glob(".txl_tf_work/*/progress/*")) else None
        )

    log = tmp_path / "log"
    assert engine_runs.run(command, engine_runs.environment(), log, kill=working) == 1
    assert log.read_text().splitlines()[-1].startswith("error: Apache Beam could not finish (")
    assert os.listdir(data_dir) == []
    both(tmp_path, TWO_PROCESSES, source=source, vocab="words")


def test_what_fails_is_done_again(tmp_path, small, monkeypatch):
    """Two units fail once after they were encoded, and two shards once when half of each is written.

    This runner of Beam does a bundle again up to three times.
    """
    write_text(tmp_path)
    failed, complete = set(), records.write_shard
    broken = {"train-00002.tfrecord", "test-00000.tfrecord"}
    encode = job.Worker.encode

    def failing_encode(self, unit):
        found = list(encode(self, unit))
        if unit in (3, 20) and unit not in failed:
            failed.add(unit)
            raise OSError(f"the worker of unit {unit} is lost")
        return found

    def failing_write(path, file, ids, unknown):
        if ".partial-" in path and file in broken and file not in failed:
            failed.add(file)
            complete(path, file, ids[: len(ids) // 2], unknown)
            raise OSError(f"the worker of {file} is lost")
        return complete(path, file, ids, unknown)

    monkeypatch.setattr(job.Worker, "encode", failing_encode)
    monkeypatch.setattr(records, "write_shard", failing_write)
    both(tmp_path, RETRYING, source=str(tmp_path / "one.txt"), vocab="bytes")
    assert failed == {3, 20, *broken}


def test_an_error_is_one_line_and_leaves_no_corpus(tmp_path, monkeypatch):
    write_text(tmp_path)
    (tmp_path / "files" / "bad.txt").write_bytes(b"no\xff")
    with pytest.raises(
        InputError, match=r"bad.txt is not UTF-8 at byte 2: convert it or, with --dataset=text, give its --encoding"
    ):
        prepare("text", str(tmp_path / "beam"), source=str(tmp_path / "files"), vocab="words", beam_args=[])

    def full(path, file, ids, unknown):
        with open(path, "wb") as half:
            half.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(records, "write_shard", full)
    with pytest.raises(InputError, match=r"Apache Beam could not finish \(.*no space left.*-v=1") as error:
        prepare("text", str(tmp_path / "beam"), source=str(tmp_path / "one.txt"), vocab="bytes", beam_args=[])
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path / "beam") == []
    with pytest.raises(InputError, match=r"manifest.json not found"):
        manifest.load_corpus(str(tmp_path / "beam"))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"vocab": "words", "passes": 2}, "does not shuffle lines: give --passes=1"),
        ({"dataset": "text8"}, "does not know the vocabulary of text8"),
        *(
            (
                {"vocab": "words", "beam_args": [f"--runner={name}"]},
                f"^--runner={name} of Beam loses data .* drops what",
            )
            for name in ("DaskRunner", "dask", "apache_beam.runners.dask.dask_runner.DaskRunner")
        ),
    ],
)
def test_what_is_refused(tmp_path, settings, match):
    write_text(tmp_path)
    settings = {"dataset": "text", "source": str(tmp_path / "one.txt"), "beam_args": []} | settings
    with pytest.raises(InputError, match=match):
        prepare(data_dir=str(tmp_path / "beam"), **settings)
    assert os.listdir(tmp_path / "beam") == []


def heed_interrupts():
    """Called in the new process, which would ignore Ctrl-C if these tests are a job in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_no_corpus(tmp_path):
    (tmp_path / "one.txt").write_text("the cat sat on the mat\n" * 1_500_000)
    data_dir = tmp_path / "beam"
    command = [sys.executable, str(ROOT / "scripts" / "prepare_data.py"), "--dataset=text", "--vocab=words"]
    command += [f"--source={tmp_path / 'one.txt'}", f"--data_dir={data_dir}", "--runner=beam"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    deadline = time.monotonic() + 120
    while not list(data_dir.glob(".txl_tf_work/*/symbols-rows")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and errors.splitlines()[-1] == "interrupted"
    assert os.listdir(data_dir) == []
