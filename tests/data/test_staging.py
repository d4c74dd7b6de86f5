"""A preparation that fails, or is killed anywhere, loses nothing; and files that are not its own stay as they are."""

import json
import os
import shutil

import pytest
import tensorflow as tf

from txl_tf.data import manifest, staging
from txl_tf.data.prepare import prepare
from txl_tf.errors import InputError
from txl_tf.storage.lock import LOCK_FILE, Lock

OPERATIONS = ("rename", "remove", "rmtree", "makedirs")


class KilledError(BaseException):
    """The process is dead: nothing that it would do at its end is done."""


@pytest.fixture
def texts(tmp_path):
    """Two texts, as arguments of `prepare`."""
    found = []
    for name, words in (("old", "the cat sat on the mat\n"), ("new", "a longer text about the other dog\n")):
        (tmp_path / f"{name}.txt").write_text(words * 60)
        found.append({"source": str(tmp_path / f"{name}.txt"), "vocab": "chars"})
    return found


def content(folder):
    """The content of every file below a folder, by its path in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LOCK_FILE
    }


def kill_at(monkeypatch, place):
    """The process dies before the file operation with this number; the number of operations is in the result."""
    count = [0]

    def dying(operation):
        def run(*arguments, **options):
            count[0] += 1
            if count[0] > place:
                raise KilledError
            return operation(*arguments, **options)

        return run

    for name in OPERATIONS:
        monkeypatch.setattr(tf.io.gfile, name, dying(getattr(tf.io.gfile, name)))
    return count


def test_killed_anywhere_the_old_or_the_new_corpus_is_whole(tmp_path, texts, monkeypatch):
    """And the next preparation leaves what it would have left without the kill, user's own files included."""
    old, new = texts
    start, whole = tmp_path / "start", tmp_path / "whole"
    prepare("text", str(start), **old)
    (start / "notes.txt").write_text("of the user")
    shutil.copytree(start, whole)
    prints = {
        manifest.load_corpus(str(start)).fingerprint,
        prepare("text", str(whole), overwrite=True, **new).fingerprint,
    }
    expected, left = content(whole), set()
    assert len(prints) == 2 and expected["notes.txt"] == b"of the user"
    place, done = 0, False
    while not done:
        data_dir = tmp_path / f"killed-{place}"
        shutil.copytree(start, data_dir)
        with monkeypatch.context() as patched:
            kill_at(patched, place)
            try:
                prepare("text", str(data_dir), overwrite=True, **new)
                done = True
            except KilledError:
                pass
        (data_dir / LOCK_FILE).unlink(missing_ok=True)  # the lock of a dead process
        corpus = manifest.load_corpus(str(data_dir))
        corpus.check_content()
        left.add(corpus.fingerprint)
        assert corpus.fingerprint in prints
        prepare("text", str(data_dir), overwrite=True, **new).check_content()
        names = {name.split("/")[-1] for name in content(data_dir)}
        assert names == {name.split("/")[-1] for name in expected}, place
        assert len(content(data_dir)) == len(expected) and not staging.is_left(str(data_dir))
        place += 1
    assert left == prints and place > 5


def test_killed_anywhere_the_first_corpus_is_whole_or_not_there(tmp_path, texts, monkeypatch):
    arguments = texts[0]
    prepare("text", str(tmp_path / "whole"), **arguments)
    expected, place, done = content(tmp_path / "whole"), 0, False
    while not done:
        data_dir = tmp_path / f"killed-{place}"
        with monkeypatch.context() as patched:
            kill_at(patched, place)
            try:
                prepare("text", str(data_dir), **arguments)
                done = True
            except KilledError:
                pass
        (data_dir / LOCK_FILE).unlink(missing_ok=True)
        if (data_dir / "manifest.json").exists():
            manifest.load_corpus(str(data_dir)).check_content()
        prepare("text", str(data_dir), **arguments)
        assert content(data_dir) == expected, place
        place += 1
    assert place > 5


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"source": "/nowhere/text.txt"}, "/nowhere/text.txt"),
        ({"source": "{folder}/binary.txt", "vocab": "chars"}, "UTF-8"),
        ({"source": "{folder}/new.txt", "vocab": "sentencepiece", "vocab_size": 5000}, "vocab_size"),
        ({"source": "{folder}/short.txt"}, "there is no (valid|test) text"),
    ],
)
def test_what_cannot_be_made_replaces_nothing(tmp_path, texts, arguments, match):
    (tmp_path / "binary.txt").write_bytes(b"\xfftext\n" * 50)
    (tmp_path / "short.txt").write_text("a")
    arguments = {name: str(value).format(folder=tmp_path) for name, value in arguments.items()}
    arguments |= {"vocab_size": int(arguments["vocab_size"])} if "vocab_size" in arguments else {}
    data_dir = tmp_path / "a"
    prepare("text", str(data_dir), **texts[0])
    before = content(data_dir)
    with pytest.raises(InputError, match=match):
        prepare("text", str(data_dir), overwrite=True, **arguments)
    assert content(data_dir) == before
    assert sorted(os.listdir(data_dir)) == sorted(before)


@pytest.mark.parametrize("name", ["vocab.txt", "train-00000.tfrecord", "test-00012.tfrecord", "manifest.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_files_stay(tmp_path, texts, name, overwrite):
    data_dir = tmp_path / "a"
    data_dir.mkdir()
    (data_dir / name).write_text('{"mine": true}')
    with pytest.raises(InputError, match=name) as error:
        prepare("text", str(data_dir), overwrite=overwrite, **texts[0])
    assert "\n" not in str(error.value)
    assert content(data_dir) == {name: b'{"mine": true}'}


def test_a_damaged_corpus_can_be_replaced(tmp_path, texts):
    data_dir = tmp_path / "a"
    prepare("text", str(data_dir), **texts[0])
    text = (data_dir / "manifest.json").read_text()
    (data_dir / "manifest.json").write_text(text[: len(text) // 2])
    corpus = prepare("text", str(data_dir), overwrite=True, **texts[1])
    corpus.check_content()
    assert {name.rpartition("/")[0] for name in content(data_dir)} == {"", "corpus-1"}
    assert [name for name in os.listdir(data_dir) if name.endswith(".tfrecord")] == []


def test_overwriting_again_and_again_leaves_one_corpus(tmp_path, texts):
    data_dir, sizes = tmp_path / "a", set()
    for turn in range(4):
        corpus = prepare("text", str(data_dir), overwrite=True, **texts[turn % 2])
        corpus.check_content()
        sizes.add(len(content(data_dir)))
    assert len(sizes) == 1


def test_two_preparations_of_one_directory(tmp_path, texts):
    with Lock(str(tmp_path)), pytest.raises(InputError, match="is in use by process"):
        prepare("text", str(tmp_path), **texts[0])


@pytest.mark.parametrize("record", [{"folder": "..", "old": []}, {"folder": "", "old": ["../old.txt"]}, {"folder": 1}])
def test_a_marker_removes_nothing_else(tmp_path, texts, record):
    data_dir = tmp_path / "a"
    prepare("text", str(data_dir), **texts[0])
    before = content(tmp_path)
    (data_dir / staging.MARKER).write_text(json.dumps(record))
    with pytest.raises(InputError, match=staging.MARKER):
        prepare("text", str(data_dir), **texts[0])
    (data_dir / staging.MARKER).unlink()
    assert content(tmp_path) == before
