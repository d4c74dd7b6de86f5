"""Damaged and hostile JSON: every reader of JSON gives one line that names the file."""

import datetime
import json
import math

import pytest

from txl_tf import families
from txl_tf.data.manifest import load_corpus
from txl_tf.data.vocabularies import CharVocabulary
from txl_tf.errors import InputError
from txl_tf.published.huggingface.files import read_config
from txl_tf.published.tensor_files import open_safetensors
from txl_tf.runs import model_dir
from txl_tf.storage import files
from txl_tf.storage.strict_json import NUMBER, check_record, json_line, parse_json

HOSTILE = {
    "empty": b"",
    "cut": b'{"step": 1, "loss',
    "not UTF-8": b'{"step": "\xff"}',
    "nested lists": b"[" * 100_000,
    "nested and complete": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "nul": b"\0",
    "list": b"[1]",
    "null": b"null",
    "number": b"5",
    "text": b'"text"',
    "record of a list": b'{"step": [1], "loss": {}, "unit": 1, "vocabulary": []}',
}
READERS = {
    "config.json": lambda path: families.config_from_json(files.read_text(path), path),
    "corpus.json": lambda path: files.read_record(path, {"unit": str, "vocabulary": dict}),
    "evaluations.jsonl": lambda path: model_dir.read_log(path, model_dir.EVALUATION),
    "metrics.jsonl": model_dir.read_log,
    "manifest.json": lambda path: load_corpus(path.rpartition("/")[0]),
    "vocab.txt": lambda path: CharVocabulary.load(path.rpartition("/")[0], {"file": "vocab.txt"}),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_every_reader_refuses_hostile_json(name, kind, tmp_path):
    end = b"\n" if name.endswith(("jsonl", "txt")) else b""
    (tmp_path / name).write_bytes(HOSTILE[kind] + end)
    with pytest.raises(InputError, match=name.replace(".", r"\.")) as raised:
        READERS[name](f"{tmp_path}/{name}")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 600


def test_two_values_of_one_key_are_refused():
    assert parse_json('{"a": [{"b": 1, "b": 1}]}', "f") == {"a": [{"b": 1}]}
    with pytest.raises(
        InputError, match=r"f is not JSON \(an object has the key 'b' twice, with different values\): do"
    ):
        parse_json('{"a": [{"b": 1, "c": 3, "b": 2}]}', "f", "do")


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "record of a list"])
def test_config_of_hugging_face(kind, tmp_path):
    (tmp_path / "config.json").write_bytes(HOSTILE[kind])
    with pytest.raises(InputError, match=r"config\.json"):
        read_config(str(tmp_path))


@pytest.mark.parametrize("kind", HOSTILE)
def test_header_of_safetensors(kind, tmp_path):
    header = HOSTILE[kind]
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_safetensors(str(tmp_path / "model.safetensors"))


def test_record():
    fields = {"step": int, "loss": NUMBER}
    assert check_record({"step": 1, "loss": 2.5, "more": None}, "here", fields) == {
        "step": 1,
        "loss": 2.5,
        "more": None,
    }
    for value, message in [
        ({"step": 1}, "here has no 'loss': mend it"),
        ({"step": True, "loss": 1}, "here: 'step' must be an integer, not True: mend it"),
        ({"step": 1, "loss": "1"}, "here: 'loss' must be an integer or a number, not '1': mend it"),
        (["x" * 100], "here must be a JSON object, not ['xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...: mend it"),
    ]:
        with pytest.raises(InputError) as raised:
            check_record(value, "here", fields, "mend it")
        assert str(raised.value) == message


def test_an_incomplete_last_line_is_ignored(tmp_path):
    (tmp_path / "log").write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert model_dir.read_log(str(tmp_path / "log")) == [{"step": 1}, {"step": 2}]
    (tmp_path / "log").write_bytes(b'{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(InputError, match="log, line 2 is not JSON"):
        model_dir.read_log(str(tmp_path / "log"))


def test_values_are_those_of_json():
    value = {"a": [1, 2.5, None, True, "ü"]}
    assert parse_json(json.dumps(value), "here") == parse_json(json.dumps(value).encode(), "here") == value


def test_a_line_of_json_has_no_nan():
    value = {"a": [1, math.nan, {"b": -math.inf, "c": (math.inf, 0.5)}], "ü": "NaN"}
    assert json_line(value) == '{"a": [1, null, {"b": null, "c": [null, 0.5]}], "ü": "NaN"}\n'
    assert json_line({"day": datetime.date(2024, 5, 1), "x": math.nan}, str) == '{"day": "2024-05-01", "x": null}\n'
