import json
import os

import pytest

from txl_tf.data import manifest
from txl_tf.data.prepare import prepare
from txl_tf.errors import InputError

TEXT = "the cat sat on the mat\nand the dog sat on the log\n" * 40


@pytest.fixture
def words(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return prepare("text", str(tmp_path / "corpus"), source=str(tmp_path / "text.txt"), vocab="words")


def edit(corpus, change):
    path = corpus.path("manifest.json")
    with open(path) as file:
        content = json.load(file)
    change(content)
    with open(path, "w") as file:
        json.dump(content, file)


def refused(corpus, match):
    with pytest.raises(InputError, match=match) as error:
        manifest.load_corpus(corpus.data_dir).check_content()
    assert "\n" not in str(error.value)


def test_what_is_written_is_read(words):
    again = manifest.load_corpus(words.data_dir)
    assert again == words
    assert again.fingerprint == words.fingerprint
    again.check_content()


def test_the_fingerprint_follows_the_content_and_not_the_place(words, tmp_path):
    moved = str(tmp_path / "elsewhere")
    os.rename(words.data_dir, moved)
    assert manifest.load_corpus(moved).fingerprint == words.fingerprint
    (tmp_path / "text.txt").write_text(TEXT.replace("dog", "hog"))
    other = prepare("text", str(tmp_path / "other"), source=str(tmp_path / "text.txt"), vocab="words")
    assert other.fingerprint != words.fingerprint


def test_no_corpus(tmp_path):
    with pytest.raises(InputError, match=r"manifest.json not found: .*prepare_data"):
        manifest.load_corpus(str(tmp_path))


def test_a_missing_shard(words):
    os.remove(words.path("valid-00000.tfrecord"))
    refused(words, "valid-00000.tfrecord is missing")


def test_a_truncated_shard(words):
    with open(words.path("train-00000.tfrecord"), "r+b") as file:
        file.truncate(100)
    refused(words, "train-00000.tfrecord has 100 bytes, not")


def test_a_damaged_shard_of_the_right_length(words):
    with open(words.path("test-00000.tfrecord"), "r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff")
    refused(words, "test-00000.tfrecord is damaged")


def test_another_vocabulary(words):
    with open(words.path("vocab.txt"), "a") as file:
        file.write("zebra\n")
    refused(words, "vocab.txt is not the vocabulary that belongs here")
    os.remove(words.path("vocab.txt"))
    refused(words, "vocab.txt is missing")


def test_another_version(words):
    edit(words, lambda content: content.update(version=2))
    refused(words, "has version 2, this code reads 1: prepare the corpus again")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("splits"),
        lambda content: content.update(splits=[]),
        lambda content: content["splits"]["train"].update(tokens=7),
        lambda content: content["splits"]["train"]["passes"][0][0].update(sha256="0"),
        lambda content: content["vocabulary_spec"].update(line_end="the"),
        lambda content: content.update(record_tokens=1000),
    ],
)
def test_an_edited_manifest(words, change):
    edit(words, change)
    refused(words, "manifest.json.* run prepare_data --overwrite")


def test_a_manifest_cut_short_and_one_of_something_else(words):
    path = words.path("manifest.json")
    with open(path) as file:
        content = file.read()
    with open(path, "w") as file:
        file.write(content[:200])
    refused(words, "manifest.json is not JSON")
    with open(path, "w") as file:
        file.write('{"name": "something else"}')
    refused(words, "is not the manifest of a txl_tf corpus")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"unit": "syllable"}, "unit is 'syllable', and its vocabulary is of words"),
        ({"unit": "byte"}, "unit is 'byte', and its vocabulary is of words"),
        ({"cutoffs": [4, 2]}, r"cutoffs \[4, 2\] must rise"),
        ({"cutoffs": [0]}, r"cutoffs \[0\] must rise"),
        ({"cutoffs": [2, 1000]}, r"cutoffs \[2, 1000\] must rise, from above 0 to below"),
        ({"folder": "../elsewhere"}, "folder is '../elsewhere'"),
        ({"files": {"../vocab.txt": "0"}}, "'../vocab.txt' is not a file of the corpus"),
        ({"cutoffs": [2]}, "its checksum differs"),
        ({"cutoffs": None}, "'cutoffs' must be a list, not None"),
        ({"cutoffs": [None]}, "manifest.json is damaged"),
        ({"files": []}, r"'files' must be an object, not \[\]"),
        ({"files": {"vocab.txt": None}}, "manifest.json is damaged"),
        ({"document_ends": []}, "its checksum differs"),
        ({"dataset": "enwik8"}, "its checksum differs"),
    ],
)
def test_what_the_fingerprint_does_not_cover(words, change, match):
    edit(words, lambda content: content.update(change))
    refused(words, match)


def test_a_manifest_of_an_earlier_version_has_no_checksum(words):
    edit(words, lambda content: [content.pop(name) for name in ("checksum", "folder", "document_ends")])
    again = manifest.load_corpus(words.data_dir)
    assert again.fingerprint == words.fingerprint and again.document_ends is None
    again.check_content()
