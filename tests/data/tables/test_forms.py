"""The forms of files: each is told by its content, read or refused, and stands in the documentation."""

import bz2
import gzip
import importlib.util
import io
import json
import lzma
import pathlib
import subprocess
import sys

import openpyxl
import pandas
import pytest

from txl_tf.data.tables import forms
from txl_tf.data.tables.columns import Columns
from txl_tf.errors import Faults, InputError

ROOT = pathlib.Path(__file__).parents[3]
ROWS = [{"text": "a b", "label": "x"}, {"text": "c", "label": "y"}]
FRAME = pandas.DataFrame(ROWS)


def workbook():
    book = openpyxl.Workbook()
    for row in (["text", "label"], *([one["text"], one["label"]] for one in ROWS)):
        book.active.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def saved(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


SAMPLES = {
    "a workbook": workbook,
    "Parquet": lambda: saved(FRAME.to_parquet),
    "Arrow": lambda: saved(FRAME.to_feather),
    "JSON": lambda: json.dumps(ROWS).encode(),
    "CoNLL": lambda: b"a x\nb x\n\nc y\n",
    "TSV": lambda: FRAME.to_csv(sep="\t", index=False).encode(),
    "CSV": lambda: FRAME.to_csv(index=False).encode(),
    "lines": lambda: b"a b\n\nc\n",
}
"""For each form that is read, a file with the same two rows."""


def read(path, **options):
    faults = Faults(str(path))
    table = forms.read_rows(str(path), Columns(), faults, **options)
    faults.raise_any()
    return table


def test_every_form_has_a_sample():
    assert set(SAMPLES) == {form.name for form in forms.TABLES if form.reads}


@pytest.mark.parametrize("form", [form for form in forms.TABLES if form.reads], ids=lambda form: form.name)
def test_a_form_is_read(tmp_path, form):
    options = {"tags": ()} if form.name == "CoNLL" else {"tags": (), "labelled": False} if form.name == "lines" else {}
    for end in form.ends or ("txt",):
        path = tmp_path / f"a.{end}"
        path.write_bytes(SAMPLES[form.name]())
        found = [
            {name: value for name, value in row.items() if name != "line"} for _, row in read(path, **options).rows
        ]
        if form.name == "CoNLL":
            assert found == [{"1": ["a", "b"], "2": ["x", "x"]}, {"1": ["c"], "2": ["y"]}]
        elif form.name == "lines":
            assert [row["text"] for row in found] == ["a b", "c"]
        else:
            assert found == ROWS


@pytest.mark.parametrize("form", ["a workbook", "Parquet", "Arrow", "JSON"])
def test_content_tells_more_than_a_name(tmp_path, form):
    (tmp_path / "a.csv").write_bytes(SAMPLES[form]())
    assert [values for _, values in read(tmp_path / "a.csv").rows] == ROWS


@pytest.mark.parametrize(
    ("end", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("", gzip.compress)]
)
def test_packed_files_are_unpacked(tmp_path, end, pack):
    path = tmp_path / f"a.csv.{end}".rstrip(".")
    path.write_bytes(pack(SAMPLES["CSV"]()))
    assert [values for _, values in read(path).rows] == ROWS


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"%PDF-1.7", r"a\.csv is a PDF: save"),
        ("a.csv", b"{\\rtf1", r"a\.csv is RTF: save it as plain text"),
        ("a.csv", b"Rar!..", r"a\.csv is rar: unpack it"),
        ("a.pkl", b"\x80\x04\x95..", r"a\.pkl is a pickle: save it as Parquet or JSON lines"),
        ("a.csv", b"version https://git-lfs.github.com/spec/v1", "is a pointer of Git LFS: fetch"),
        ("a.xls", b"\xd0\xcf\x11\xe0..", r"a\.xls is an old workbook: save it .* \.xlsx"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0.." + "EncryptedPackage".encode("utf-16-le"), "with a password: save it without"),
        ("a.csv", b"\x78\x9c\x01\xff\x02\x05", r"a\.csv, line 1 is not UTF-8 .*: it may be a binary file, "),
        ("a.ods", b"PK\x03\x04..mimetypeapplication/vnd.oasis.opendocument.spreadsheet", "OpenDocument"),
        ("a.csv", b"PK\x03\x04..a.csv", r"a\.csv is a zip archive"),
        ("a.ann", b"T1\tPER 0 4\tAnna\n", r"a\.ann is a file of annotations of brat, .*: give the text with its spans"),
        ("a.ann", b"#1\tAnnotatorNotes T1\tsure\nT1\tPER 0 4\tAnna\n", "of annotations of brat"),
        ("a.txt", b"9|t|Pain\n9|a|It hurts.\n9\t0\t4\tPain\tDisease\tD1\n", "of annotations of brat, PubTator"),
        (
            "a.tsv",
            b"#FORMAT=WebAnno TSV 3.3\n\n1-1\t0-4\tAnna\tPER\t\n1-2\t5-8\tist\t_\t\n",
            "of annotations of .* WebAnno",
        ),
        ("a.con", b'c="pain" 1:0 1:1||t="problem"\n', "of annotations of .* i2b2"),
        (
            "a.txt",
            b"__label__good A fine film.\n",
            r"a\.txt is fastText's lines: give a table with the columns text and",
        ),
        ("a.doc", b"text", r"a\.doc: give a table whose name ends in"),
        (
            "a.json",
            b'{"data": [{"text": "a"}], "dev": [{"text": "b"}]}',
            "has rows in 'data' and in 'dev'",
        ),
        ("a.json", b'{"columns": ["a", "a"], "data": [["b", "c"]]}', r"a\.json, columns names the column 'a' twice"),
        ("a.json", b'{"columns": [["a", "b"]], "data": [["c"]]}', r"a\.json, entry 1 must be a JSON object"),
    ],
)
def test_other_forms_are_refused_with_what_to_do(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        read(tmp_path / name)


def test_folders_of_other_texts_are_refused(tmp_path):
    (tmp_path / "notes.csv").write_text("text,label\na,b\n")
    with pytest.raises(InputError, match="has no file that is read: a folder holds"):
        read(tmp_path)
    (tmp_path / "pos").mkdir()
    (tmp_path / "pos" / "0_9.txt").write_text("A fine film.")
    with pytest.raises(InputError, match=r"0_9\.txt is not JSON .*: a folder holds .* give other texts as one table"):
        read(tmp_path)


def test_a_named_column_of_webanno_and_tables_with_bars_are_read(tmp_path):
    (tmp_path / "a.tsv").write_text("#FORMAT=WebAnno TSV 3.3\n\n1-1\t0-4\tAnna\tNN\n1-2\t5-8\tist\tVB\n")
    columns = Columns(text_column="3", label_column="4")
    ((_, values),) = forms.read_rows(str(tmp_path / "a.tsv"), columns, Faults("a"), tags=()).rows
    assert values["3"] == ["Anna", "ist"] and values["4"] == ["NN", "VB"]
    (tmp_path / "a.csv").write_text("id|own|text\n1|t|a\n2|t|b\n")
    assert [values["text"] for _, values in read(tmp_path / "a.csv").rows] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "text,label\na,x\ntext,label\nb,y\n", "line 3 has the names of the columns again: remove it"),
        ("a.csv", "text,label\na,x\n\ufefftext,label\nb,y\n", "line 3 has the names"),
        ("a.jsonl", '{"text": "a", "n": "x"}\n{"text": "text", "n": "n"}\n', "line 2 has the names"),
    ],
)
def test_a_header_inside_of_a_joined_file_is_a_fault(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        read(tmp_path / name)


def test_a_text_that_is_its_columns_name_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("text\ntext\n")
    assert read(tmp_path / "a.csv").rows == [(2, {"text": "text"})]
    (tmp_path / "b.csv").write_text("text,label\ntext,x\n")
    assert read(tmp_path / "b.csv").rows == [(2, {"text": "text", "label": "x"})]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('{"text": "a"}', [{"text": "a"}]),
        ('{"data": [{"text": "a"}]}', [{"text": "a"}]),
        ('{"text": {"0": "a", "1": "b"}}', [{"text": "a"}, {"text": "b"}]),
        ('{"0": {"text": "a"}, "7": {"text": "b"}}', [{"text": "a"}, {"text": "b"}]),
        ('{"columns": ["text"], "index": [0, 1], "data": [["a"], ["b"]]}', [{"text": "a"}, {"text": "b"}]),
        ('{"x1": {"text": "a"}, "x2": {"text": "b"}}', [{"text": "a"}, {"text": "b"}]),
        ('{"classes": ["PER"], "annotations": [["a b", {"entities": []}]]}', [{"text": "a b", "entities": []}]),
        ('["a b", {"entities": []}]', [{"text": "a b", "entities": []}]),
        ('{"tokens": ["a"], "tags": ["O"]}', [{"tokens": ["a"], "tags": ["O"]}]),
        ('[["a b", {"entities": []}]]', [{"text": "a b", "entities": []}]),
        ('{\n"data": [\n{"text": "a"}]}', [{"text": "a"}]),
        ('{"text": "a"}\r{"text": "b"}\r', [{"text": "a"}, {"text": "b"}]),
    ],
)
def test_json_in_its_shapes(tmp_path, content, rows):
    (tmp_path / "a.json").write_text(content)
    assert [values for _, values in read(tmp_path / "a.json").rows] == rows


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_text_without_a_mark_is_refused(tmp_path, encoding):
    (tmp_path / "a.tsv").write_bytes("text\tlabel\ngröße Ā\tx\n".encode(encoding))
    with pytest.raises(InputError, match=f"looks like {encoding.upper()} text without .* --encoding={encoding}"):
        read(tmp_path / "a.tsv")
    assert len(forms.read_rows(str(tmp_path / "a.tsv"), Columns(encoding=encoding), Faults("a")).rows) == 1
    with pytest.raises(InputError, match="convert the file to UTF-8"):
        forms.read_text(str(tmp_path / "a.tsv"))


def test_quotes_in_tsv(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('"text"\t"label"\n"a\tb ""c"""\tx\n"d\ne"\t"y"\n')
    assert [values for _, values in read(path).rows] == [
        {"text": 'a\tb "c"', "label": "x"},
        {"text": "d\ne", "label": "y"},
    ]
    path.write_text('text\tlabel\n"a ""b"" c"\tx\nsaid "d"\ty\n"e\tx\n')  # as in GLUE's files
    table = read(path)
    assert [values["text"] for _, values in table.rows] == ['"a ""b"" c"', 'said "d"', '"e']
    assert table.remarks == ("the quotes around 1 cell kept (they go if the file's name ends in .csv)",)


def test_the_page_has_the_table_of_forms():
    spec = importlib.util.spec_from_file_location("forms_page", ROOT / "docs/forms.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    text = program.PAGE.read_text()
    assert program.page(text) == text, "run python docs/forms.py"


def test_reading_loads_no_tensorflow(tmp_path):
    (tmp_path / "a.csv").write_bytes(SAMPLES["CSV"]())
    code = (
        "import sys; from txl_tf.tasks import TASKS; from txl_tf.data.tables.columns import Columns;"
        f"print(TASKS[0].read({str(tmp_path / 'a.csv')!r}, Columns()).understood, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "CSV, text in 'text', label in 'label': 2 rows, 2 classes False\n"
