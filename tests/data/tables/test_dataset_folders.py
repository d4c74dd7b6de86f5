"""Folders of a data set, as `datasets` saves them and as the Hub has them."""

import hub_server
import pyarrow as pa
import pytest
from pyarrow import parquet

from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.dataset_folders import local, parts, split_of
from txl_tf.data.tables.forms import read_rows
from txl_tf.errors import Faults, InputError
from txl_tf.tasks.texts import read_table


def write(path, *texts):
    """A file of these texts, as Parquet or as the stream of Arrow that `datasets` writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": texts})
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)


def texts(path):
    return [row.text for row in read_table(str(path), Columns(), labelled=False)]


def downloaded(folder):
    write(folder / "train-00000-of-00002.parquet", "a", "b")
    write(folder / "train-00001-of-00002.parquet", "c")
    write(folder / "validation-00000-of-00001.parquet", "d")
    write(folder / "test.parquet", "e")
    return folder


def saved(folder):
    write(folder / "train" / "data-00000-of-00002.arrow", "a", "b")
    write(folder / "train" / "data-00001-of-00002.arrow", "c")
    write(folder / "train" / "cache-12ab.arrow", "no")
    write(folder / "validation" / "data-00000-of-00001.arrow", "d")
    write(folder / "test" / "dataset.arrow", "e")
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    (folder / "train" / "state.json").write_text("{}")
    return folder


@pytest.mark.parametrize("make", [downloaded, saved])
def test_the_parts_of_a_folder(tmp_path, make):
    folder = make(tmp_path / "set")
    assert list(parts(str(folder))) == ["test", "train", "validation"]
    assert texts(folder / "train") == ["a", "b", "c"] and texts(f"{folder}/test/") == ["e"]
    with pytest.raises(InputError, match=r"set has the parts test, train, validation: name one, such as .*set/test"):
        texts(folder)
    for split, wanted in (("train", ["a", "b", "c"]), ("valid", ["d"]), ("test", ["e"])):
        assert texts(split_of(str(folder), split)) == wanted
    assert split_of(str(folder / "train"), "valid") == str(folder / "train") and split_of(None, "train") is None


def test_rows_of_several_files_are_counted_on(tmp_path):
    write(tmp_path / "x" / "0000.parquet", "a", "")
    write(tmp_path / "x" / "0001.parquet", "b", "c")
    found = read_rows(str(tmp_path / "x"), Columns(), Faults("x"))
    assert [line for line, _ in found.rows] == [1, 3, 4] and found.empty == [2]


def test_files_of_the_hub(tmp_path, monkeypatch):
    folder = downloaded(tmp_path / "set")
    files = {f"cfg/{path.name}": path.read_bytes() for path in folder.iterdir()}
    with hub_server.running() as server:
        server.used_here(monkeypatch, tmp_path / "home")
        server.add("own/set", files | {"README.md": b"#", "other/train.csv": b"text,label\nf,x\n"}, kind="datasets")
        assert texts("hf://datasets/own/set/cfg/train-00001-of-00002.parquet") == ["c"]
        assert texts("hf://datasets/own/set/cfg/train") == ["a", "b", "c"]
        assert texts(split_of("hf://datasets/own/set/cfg", "valid")) == ["d"]
        assert texts("hf://datasets/own/set/other/train.csv") == ["f"]
        with pytest.raises(InputError, match=r"set/none: the Hub has no such file or folder there, but cfg, other"):
            texts("hf://datasets/own/set/none")
    assert texts("hf://datasets/own/set/cfg/train") == ["a", "b", "c"]  # the server is gone: from the cache
    assert local("plain/path") == "plain/path"
