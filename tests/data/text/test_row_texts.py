"""Language models' text in JSON lines, CSV and TSV: the texts are read, not the letters around them."""

import gzip
import json

import pytest

from txl_tf.data.text import blocks, rows
from txl_tf.data.text.sources import text_files
from txl_tf.errors import InputError

TEXTS = [f'Book {i} says:\nhello, {i}; "quoted"' for i in range(60)]


def written(folder, name):
    """A file with the texts in the form that its name says."""
    if name.startswith("list"):
        content = json.dumps([{"id": i, "text": text} for i, text in enumerate(TEXTS)])
    elif "json" in name or name == "lines.txt":
        content = "".join(json.dumps({"id": i, "text": text}) + "\n\n" for i, text in enumerate(TEXTS))
    elif name.endswith("tsv"):
        content = "id\ttext\n" + "".join(f"{i}\t{text}\n".replace("\n", " ", 1) for i, text in enumerate(TEXTS))
    else:
        quoted = ('"' + text.replace('"', '""') + '"' for text in TEXTS)
        content = "id;text\r\n" + "".join(f"{i};{text}\r\n" for i, text in enumerate(quoted))
    data = b"\xef\xbb\xbf" + content.encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return str(folder / name)


def read(path, tmp_path, **options):
    source = text_files(path, work_dir=str(tmp_path / "work"), **options)
    return source, b"".join(block for _, block in source.blocks()).decode()


@pytest.mark.parametrize("name", ["a.jsonl", "lines.txt", "list.json", "a.csv", "a.jsonl.gz"])
def test_a_row_is_a_document(tmp_path, monkeypatch, name):
    monkeypatch.setattr(rows.RowTexts, "GROUP_BYTES", 300)  # several groups
    source, text = read(written(tmp_path, name), tmp_path)
    assert source.document_ends == "row"
    assert sorted(text.removesuffix("\n\n").split("\n\n")) == sorted(TEXTS)
    assert source.remarks[-1].endswith(f"text in 'text': {len(TEXTS)} rows")
    shares = [split for split, _ in source.blocks()]
    assert set(shares) <= set(blocks_splits())


def blocks_splits():
    return {blocks.drawn_split(str(i)) for i in range(200)}


def test_tsv_has_no_quotes(tmp_path):
    _, text = read(written(tmp_path, "a.tsv"), tmp_path)
    assert sorted(text.removesuffix("\n\n").split("\n\n")) == sorted(one.replace("\n", " ") for one in TEXTS)


def test_as_is_reads_the_letters(tmp_path):
    path = written(tmp_path, "a.jsonl")
    source, text = read(path, tmp_path, as_is=True)
    assert '"text": "Book 0' in text
    assert not source.remarks


def test_code_in_json_is_text(tmp_path):
    (tmp_path / "package.json").write_text('{\n  "name": "a"\n}\n')
    source, text = read(str(tmp_path / "package.json"), tmp_path)
    assert '"name": "a"' in text
    assert source.document_ends != "row"


def test_another_column(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"n": 1, "body": "x"}\n{"n": 2, "body": null}\n')
    source, text = read(str(tmp_path / "a.jsonl"), tmp_path)
    assert text == "x\n\n"
    assert source.remarks == (f"{tmp_path}/a.jsonl: JSON lines, text in 'body': 2 rows",)
    (tmp_path / "b.jsonl").write_text('{"title": "t", "body": "x"}\n')
    with pytest.raises(InputError, match=r"no column text or sentence, .* 'title', 'body': name .* --text_column"):
        text_files(str(tmp_path / "b.jsonl"), work_dir=str(tmp_path / "work2"))
    assert read(str(tmp_path / "b.jsonl"), tmp_path / "3", text_column="title")[1] == "t\n\n"
    (tmp_path / "c.jsonl").write_text('{"id": "Qx_0", "messages": [{"content": "So it is."}]}\n')
    with pytest.raises(InputError, match=r"no column text or sentence, .* 'id', 'messages': name .* --text_column"):
        text_files(str(tmp_path / "c.jsonl"), work_dir=str(tmp_path / "work4"))
    (tmp_path / "d.jsonl").write_text('{"tags": ["x"], "body": "So it is."}\n')
    assert read(str(tmp_path / "d.jsonl"), tmp_path / "5")[1] == "So it is.\n\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": 3}\n{"text"\n', "2 faults"),
        ("a.jsonl", '{"text": "a"}\n{"text": ["b"]}\n', "line 2: 'text' must be a text"),
        ("a.csv", "text,n\na,1\nb\n", "line 3 has 1 column, but line 1 has 2"),
        ("a.csv", "n,text\n1,a\n\ufeffn,text\n", "line 3 has the names of the columns again: remove it"),
        ("a.csv", "text\n1,a\n", "if its first column has the rows' numbers, as R writes them, name that column, too"),
        ("a.csv", 'text,n\n"a,1\n', "is not CSV"),
        ("a.csv", "text\n" + "so, it is\n" * 9, "line 2 has 2 columns, but line 1 has 1: .*the same in 9 of 9 lines"),
        ("a.csv", "", "no rows"),
        ("a.csv", "text,text,,\na,b,,\n", "line 1 names the column 'text' twice: rename one"),
        ("a.jsonl", '{"text": "a", "text": "b"}\n', "line 1 is not JSON .* the key 'text' twice"),
    ],
)
def test_faults_are_said(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        text_files(str(tmp_path / name), work_dir=str(tmp_path / "work"))


def test_tables_beside_text_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    written(tmp_path / "a", "a.csv")
    (tmp_path / "a" / "b.txt").write_text("text\n")
    with pytest.raises(InputError, match=r"a\.csv is CSV, and .*b\.txt is text: .* --as_is"):
        text_files(str(tmp_path / "a"), work_dir=str(tmp_path / "work"))


def test_returns_alone_are_ends_of_lines(tmp_path):
    (tmp_path / "mac.txt").write_bytes(b"one\rtwo\r")
    source, text = read(str(tmp_path / "mac.txt"), tmp_path)
    assert text == "one\ntwo\n\n"
    assert source.remarks == (r"1 file with \r as the end of its lines, read as \n",)


def test_marked_up_text_is_counted(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.html").write_text("<!DOCTYPE html><p>text")
    (tmp_path / "a" / "b.ipynb").write_text('{\n "cells": []\n}')
    (tmp_path / "a" / "c.conllu").write_text("1\tAnna\tAnna\tPROPN\n")
    source, _ = read(str(tmp_path / "a"), tmp_path)
    assert source.remarks == (
        "1 file of HTML, read with its marks",
        "1 file of notebooks, read with their JSON",
        "1 file of CoNLL, read with its tags",
    )


def test_lost_letters_are_said(tmp_path):
    (tmp_path / "a.txt").write_text("caf\ufffd\n")
    source, text = read(str(tmp_path / "a.txt"), tmp_path)
    assert text == "caf\ufffd\n\n"
    assert source.remarks == ("1 file that may have lost letters (U+FFFD), read as they are",)
    (tmp_path / "b.txt").write_text("café\n")
    assert not read(str(tmp_path / "b.txt"), tmp_path)[0].remarks


def test_markup_after_a_prolog_is_counted(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.xhtml").write_text('\ufeff<?xml version="1.0"?>\n<html><p>text')
    (tmp_path / "a" / "b.htm").write_text("<!-- saved --><html>text")
    (tmp_path / "a" / "c.xml").write_text('<?xml version="1.0"?>\n<page>text</page>')
    (tmp_path / "a" / "c2.tmx").write_text('<tmx version="1.4">\n<seg>text</seg></tmx>')
    (tmp_path / "a" / "c3.txt").write_text("<unk> is a word")
    (tmp_path / "a" / "d.ipynb").write_text('{"cells": []}')
    (tmp_path / "a" / "e.jsonl").write_text('"a text"\n"another"\n')
    source, _ = read(str(tmp_path / "a"), tmp_path)
    assert source.remarks == (
        "2 files of HTML, read with its marks",
        "2 files of XML, read with its marks",
        "1 file of notebooks, read with their JSON",
        "1 file of JSON without an object in each line, read with all marks",
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "sep=;\nid;text\n1;one\n2;two\n", "CSV, text in 'text': 2 rows"),
        ("a.tsv", '"id"\t"text"\n"1"\t"one"\n"2"\t"two"\n', "TSV, text in 'text': 2 rows"),
        ("a.tab", "id\ttext\n1\tone\n2\ttwo\n", "TSV, text in 'text': 2 rows"),
        ("a.txt", '[{"text": "one"},\n{"text": "two"}]', "JSON, text in 'text': 2 rows"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two"}\n{"body": 1}\n', "text in 'text': 3 rows, 1 without it"),
    ],
)
def test_other_tables(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    source, text = read(str(tmp_path / name), tmp_path)
    assert sorted(text.split()) == ["one", "two"] and source.remarks[0].endswith(said)


def test_quotes_that_stay_are_counted(tmp_path):
    (tmp_path / "a.tsv").write_text('id\ttext\n1\t"one"\n2\ttwo\n')
    source, text = read(str(tmp_path / "a.tsv"), tmp_path)
    assert '"one"' in text and source.remarks[0].endswith("2 rows, the quotes around 1 text kept")


def test_rtf_is_no_text(tmp_path):
    (tmp_path / "a.rtf").write_bytes(b"{\\rtf1 text}")
    with pytest.raises(InputError, match=r"a\.rtf is RTF, not text"):
        read(str(tmp_path / "a.rtf"), tmp_path)
