"""Text for language models in the rows of Parquet and Arrow files."""

import itertools
import pathlib

import hub_server
import pyarrow as pa
import pytest
from pyarrow import parquet

from txl_tf.data.prepare import prepare
from txl_tf.data.tables.arrow import Groups
from txl_tf.data.text import corpora, rows, sources
from txl_tf.errors import InputError

NAMES = {"train": "train", "valid": "validation", "test": "test"}


def wiki(split):
    """Lines as WikiText's files have them, with articles; files of the Hub cut them anywhere."""
    lines = [" \n"]
    for i in range(30):
        lines += [f" = {split} {i} = \n", " \n", f" the town of {split} é @-@ {i} . \n", " was = a \n", " \n"]
    return lines


def write(folder, rows_of, column="text"):
    folder.mkdir(parents=True)
    for split, name in NAMES.items():
        rows = rows_of(split)
        middle = len(rows) // 2 + 1 if split == "train" else 0
        for i, part in enumerate(filter(None, (rows[:middle], rows[middle:]))):
            path = folder / f"{name}-{i:05}-of-00002.parquet"
            parquet.write_table(pa.table({"id": list(range(len(part))), column: part}), path, row_group_size=7)
    return str(folder)


def files_of(folder):
    """The content of a corpus."""
    paths = [path for path in pathlib.Path(folder).iterdir() if path.is_file() and path.name != "manifest.json"]
    return {path.name: path.read_bytes() for path in paths}


def wikitext(tmp_path):
    (tmp_path / "tokens").mkdir()
    for split in NAMES:
        (tmp_path / "tokens" / f"wiki.{split}.tokens").write_text("".join(wiki(split)))
    return str(tmp_path / "tokens"), write(
        tmp_path / "copy", lambda split: [line if line.strip() else "" for line in wiki(split)]
    )


@pytest.mark.parametrize("vocab", [None, "bytes", "sentencepiece"])
def test_a_copy_of_wikitext_gives_the_same_corpus(tmp_path, vocab):
    for name, source in zip(("a", "b"), wikitext(tmp_path), strict=True):
        prepare(
            "wt2",
            str(tmp_path / name),
            source=source,
            vocab=vocab,
            vocab_size=320 if vocab == "sentencepiece" else None,
        )
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") and len(files_of(tmp_path / "a")) >= 3


def test_a_copy_of_ptb_gives_the_same_corpus(tmp_path):
    lines = {split: [f"the <unk> of {split} N {i}" for i in range(20)] for split in NAMES}
    (tmp_path / "txt").mkdir()
    for split in NAMES:
        (tmp_path / "txt" / f"ptb.{split}.txt").write_text("".join(f" {line} \n" for line in lines[split]))
    copy = write(tmp_path / "copy", lines.get, column="sentence")
    for name, source in (("a", str(tmp_path / "txt")), ("b", copy)):
        prepare("ptb", str(tmp_path / name), source=source)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_the_hub_is_the_second_source(tmp_path, monkeypatch):
    """If the first address fails, the copy is taken, if it has as many tokens as the published text."""
    tokens, copy = wikitext(tmp_path)
    files = {f"cfg/{path.name}": path.read_bytes() for path in pathlib.Path(copy).iterdir()}
    count = {split: sum(len(line.split()) + 1 for line in wiki(split)) for split in NAMES}
    for name, tokens_there in (("wt2", count), ("wt103", count | {"test": 5})):
        gone = corpora.PublishedFile(("http://127.0.0.1:9/x.zip",), 1, "md5:0")
        changed = {"published": gone, "copy": "hf://datasets/own/wiki/cfg", "tokens": tokens_there}
        monkeypatch.setitem(corpora.CORPORA, name, corpora.dataclasses.replace(corpora.CORPORA[name], **changed))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with hub_server.running() as server:
        server.used_here(monkeypatch, tmp_path / "home")
        server.add("own/wiki", files, kind="datasets")
        prepare("wt2", str(tmp_path / "a"))
        with pytest.raises(InputError, match=r"is not the published wt103: test has \d+ tokens, not 5"):
            prepare("wt103", str(tmp_path / "c"))
        prepare("wt2", str(tmp_path / "d"), source="hf://datasets/own/wiki/cfg")
    prepare("wt2", str(tmp_path / "b"), source=tokens)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b") == files_of(tmp_path / "d")


def test_a_row_is_a_document(tmp_path):
    """Also with empty lines inside; the splits are said by names, or drawn for each row, however rows are grouped."""
    texts = [f"row {i}\n\n\nends here\n" if i % 9 else None for i in range(300)]
    source = write(tmp_path / "named", lambda split: texts)
    text = sources.text_files(source)
    found = dict.fromkeys(NAMES, b"")
    for split, block in text.blocks(marked=True):
        found[split] += block
    wanted = b"".join(row.strip("\n").encode() + b"\n\n\xff" for row in texts if row)
    assert set(found.values()) == {wanted} and (text.split_rule, text.document_ends) == ("names", "row")
    drawn = []
    for size in (3, 1000):
        path = tmp_path / str(size) / "train.parquet"
        path.parent.mkdir()
        parquet.write_table(pa.table({"text": texts}), path, row_group_size=size)
        text = sources.text_files(str(path.parent))
        assert text.split_rule == "documents"
        drawn.append({split: b"".join(one for name, one in text.blocks() if name == split) for split in NAMES})
    assert drawn[0] == drawn[1] and all(drawn[0].values()) and len(drawn[0]["train"]) > 10 * len(drawn[0]["test"])


def test_the_column_of_the_text(tmp_path):
    numbers = itertools.count()

    def found(table, column=None):
        path = tmp_path / f"{next(numbers)}-t.parquet"
        parquet.write_table(pa.table(table), path)
        text = sources.text_files(str(path), text_column=column)
        return {piece.column for piece in text.pieces}

    assert found({"x": ["a"], "n": [1]}) == {"x"} and found({"x": ["a"], "sentence": ["b"], "y": ["c"]}) == {"sentence"}
    assert found({"x": ["a"], "text": ["b"]}, "x") == {"x"}
    for table, column, fault in [
        ({"x": ["a"], "y": ["b"]}, None, "has no column text or sentence, .* but 'x', 'y': name .*--text_column"),
        ({"id": ["a"], "turns": [[{"by": "b"}]]}, None, "has no column text or sentence, .* but 'id', 'turns': name "),
        ({"text": ["a"]}, "z", "has no column 'z', but 'text'"),
        ({"text": [b"a"]}, None, "has bytes in the column 'text'"),
        ({"text": [["a"]]}, None, "has no texts in the column 'text'"),
    ]:
        with pytest.raises(InputError, match=rf"t\.parquet {fault}"):
            found(table, column)
    (tmp_path / "notes.txt").write_text("a")
    with pytest.raises(InputError, match=r"notes\.txt is no Parquet or Arrow file, but .*t\.parquet is"):
        sources.text_files(str(tmp_path))
    with pytest.raises(InputError, match="--text_column is for tables"):
        sources.text_files(str(tmp_path / "notes.txt"), text_column="x")


def test_groups_without_rows(tmp_path):
    schema = pa.schema([("text", pa.string())])
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for texts in ([], ["a", "b"], [], [], ["c"], []):
            stream.write_batch(pa.record_batch({"text": pa.array(texts, pa.string())}))
    text = sources.text_files(str(tmp_path / "t.arrow"))
    assert [rows.texts_of(piece) for piece in text.pieces] == [["a", "b"], ["c"]]


def test_files_that_tensorflow_opens(tmp_path):
    parquet.write_table(pa.table({"text": ["a", "b", "c"]}), tmp_path / "t.parquet", row_group_size=2)
    groups = Groups("t", rows.RemoteFile(str(tmp_path / "t.parquet"), "rb"))
    assert [groups.read(i, ["text"])["text"] for i in range(2)] == [["a", "b"], ["c"]]


def test_parts_that_are_missing(tmp_path):
    write(tmp_path / "copy", wiki)
    for path in (tmp_path / "copy").glob("validation-*"):
        path.unlink()
    with pytest.raises(InputError, match=r"has no valid text of wt2: no Parquet or Arrow file is named valid-\.\."):
        prepare("wt2", str(tmp_path / "a"), source=str(tmp_path / "copy"))
