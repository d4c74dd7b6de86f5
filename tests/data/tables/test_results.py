"""Tables with results in further columns, in every form; workbooks; parts that are held out."""

import bz2
import csv
import datetime
import io
import json
import sys
import zipfile

import openpyxl
import pandas
import pytest

from txl_tf.data.tables import frames, workbooks
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.results import as_columns, is_table, require_room, with_results, write_results
from txl_tf.errors import InputError
from txl_tf.tasks.classification import Classification
from txl_tf.tasks.texts import read_table

HEAD = ["id", "text", "note", "prediction"]
ROWS = [["7", "one, two", "Müller", "old"], ["", "", "", ""], ["8", 'say "a"', "=1+1", ""]]
FOUND = [{"prediction": "yes", "probability": 0.75}, {"prediction": "no", "probability": 0.5}]
WANTED = [
    [*HEAD, "prediction_2", "probability"],
    [*ROWS[0], "yes", "0.75"],
    ["", "", "", "", "", ""],
    [*ROWS[2], "no", "0.5"],
]


def results_for(path, columns=Columns()):  # noqa: B008
    rows = read_table(str(path), columns, labelled=False)
    own = (Classification().cells(row, found) for row, found in zip(rows, FOUND, strict=True))
    return {line: found for one in own for line, found in one.items()}


def written(path, output, columns=Columns()):  # noqa: B008
    content = with_results(str(output), str(path), columns, results_for(path, columns))
    return content if isinstance(content, bytes) else content.encode()


def workbook(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize(
    ("separator", "encoding"), [(",", "utf-8"), (";", "utf-8-sig"), (";", "cp1252"), ("\t", "utf-16")]
)
def test_a_csv_keeps_columns_rows_separator_and_encoding(tmp_path, separator, encoding):
    path, text = tmp_path / "t.csv", io.StringIO()
    csv.writer(text, delimiter=separator).writerows([HEAD, *ROWS])
    path.write_bytes(text.getvalue().encode(encoding))
    columns = Columns(encoding=encoding if encoding == "cp1252" else "")
    content = written(path, tmp_path / "out.csv", columns).decode(encoding)
    assert encoding != "utf-8" or not content.startswith("\ufeff")
    assert list(csv.reader(io.StringIO(content), delimiter=separator)) == WANTED
    assert content.startswith(separator.join(HEAD))


def test_every_form_becomes_every_other(tmp_path):
    source = tmp_path / "t.csv"
    text = io.StringIO()
    csv.writer(text).writerows([HEAD, *ROWS])
    source.write_text(text.getvalue())
    tsv = written(source, tmp_path / "o.tsv").decode()
    assert [line.split("\t") for line in tsv.splitlines()] == WANTED
    lines = [json.loads(line) for line in written(source, tmp_path / "o.jsonl").decode().splitlines()]
    assert lines[0] == dict(zip(WANTED[0], [*ROWS[0], "yes", 0.75], strict=True)) and lines[1] == dict.fromkeys(HEAD)
    book = openpyxl.load_workbook(io.BytesIO(written(source, tmp_path / "o.xlsx"))).active
    rows = [["" if value is None else str(value) for value in row] for row in book.iter_rows(values_only=True)]
    assert rows == WANTED and book["C4"].data_type == "s"  # no formula
    (tmp_path / "o.jsonl").write_bytes(written(source, tmp_path / "o.jsonl"))
    again = written(tmp_path / "o.jsonl", tmp_path / "p.csv").decode()
    assert again.splitlines()[0].endswith("prediction_2,probability,prediction_3,probability_2")


def test_a_packed_workbook_gets_columns(tmp_path):
    packed = tmp_path / "T.XLSX.BZ2"
    packed.write_bytes(bz2.compress(workbook(tmp_path / "t.xlsx", [["text"], ["a"]]).read_bytes()))
    content = with_results("o.xlsx", str(packed), Columns(), {2: {"prediction": "yes"}})
    assert [cell.value for cell in openpyxl.load_workbook(io.BytesIO(content)).active[2]] == ["a", "yes"]


def test_labels_have_the_separator_of_the_table(tmp_path):
    path, columns = tmp_path / "t.csv", Columns(label_separator=";")
    path.write_text("text,label\none,a;b\n")
    found = with_results(str(tmp_path / "o.csv"), str(path), columns, {2: {"prediction": ["b", "c"]}})
    assert found == b"text,label,prediction\none,a;b,b;c\n"
    path.write_text("text,label\none,low; high\ntwo,high\n")  # not the alphabet's order, and with spaces
    found = with_results(str(tmp_path / "o.csv"), str(path), columns, {2: {"prediction": ["a", "high", "low"]}})
    assert found.splitlines()[1] == b"one,low; high,low; high; a"
    path.write_text("text,low,high\none,1,1\n")
    columns = Columns(label_columns="low,high", label_separator="\\n")
    found = with_results(str(tmp_path / "o.csv"), str(path), columns, {2: {"prediction": ["high", "low"]}})
    assert found.endswith(b'one,1,1,"low\nhigh"\n')


def test_new_numbers_of_a_workbook_are_shown_with_two_digits(tmp_path):
    """The cells hold them exactly, and keep a format that they had; other numbers are shown as before."""
    path, exact = workbook(tmp_path / "t.xlsx", [["text", "price"], ["a", 1.2345], ["b", 2.5]]), 0.8994687795639038
    book = openpyxl.load_workbook(path)
    book.active["B2"].number_format, book.active["C3"].number_format = "0.000", "0%"
    book.active["D3"].font = openpyxl.styles.Font(bold=True)
    book.save(path)
    results = {line: {"probability": exact, "unsure": True} for line in (2, 3)}
    (tmp_path / "t.jsonl").write_text('{"text": "a", "price": 1.2345}\n{"text": "b", "price": 2}\n')
    for source, lines, formats in (
        (path, (2, 3), ["0.000", "General", "0.00", "0%"]),
        (tmp_path / "t.jsonl", (1, 2), ["General", "General", "0.00", "0.00"]),
    ):
        by_line = {line: results[line + 2 - lines[0]] for line in lines}
        found = openpyxl.load_workbook(io.BytesIO(with_results("o.xlsx", str(source), Columns(), by_line))).active
        assert [found[place].number_format for place in ("B2", "B3", "C2", "C3")] == formats
        assert found["C2"].value == found["C3"].value == exact and found["D2"].value is True
        assert found["B2"].value == 1.2345
    found = openpyxl.load_workbook(io.BytesIO(with_results("o.xlsx", str(path), Columns(), results))).active
    assert found["D3"].font.bold


def test_without_header_there_is_none(tmp_path):
    (tmp_path / "t.csv").write_text("one,x\ntwo,y\n")
    content = written(tmp_path / "t.csv", tmp_path / "o.csv", Columns("1", no_header=True)).decode()
    assert content == "one,x,yes,0.75\ntwo,y,no,0.5\n"


def test_a_workbook_stays_what_it_is(tmp_path):
    """Its formats, formulas, dates and other sheets; read it gives the values."""
    path = tmp_path / "t.xlsx"
    day = datetime.datetime(2024, 5, 1)
    workbook(path, [["day", "text", "label", "double"], [day, 12, True, "=A1"], [None] * 4, [day, "b", "no", None]])
    book = openpyxl.load_workbook(path)
    book.active["B1"].font = openpyxl.styles.Font(bold=True)
    book.create_sheet("more")["A1"] = "kept"
    book.save(path)
    rows = read_table(str(path), Columns(), labelled=True)
    assert [(row.text, row.label, row.where[-6:]) for row in rows] == [("12", "true", "line 2"), ("b", "no", "line 4")]
    assert rows.remarks == ("1 row without any content left out (line 3)",)
    found = openpyxl.load_workbook(io.BytesIO(written(path, tmp_path / "o.xlsx")))
    sheet = found.worksheets[0]
    assert sheet["B1"].font.bold and sheet["D2"].value == "=A1" and sheet["A4"].value == day
    assert found["more"]["A1"].value == "kept"
    assert [[cell.value for cell in row] for row in sheet["E1:F4"]] == [
        ["prediction", "probability"],
        ["yes", 0.75],
        [None, None],
        ["no", 0.5],
    ]
    lines = written(path, tmp_path / "o.csv").decode("utf-8-sig").splitlines()
    assert lines[0] == "day,text,label,double,prediction,probability" and lines[1].startswith("2024-05-01 00:00:00,12,")


def test_workbooks_that_cannot_be_read_or_written_are_one_line(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"text,label\n")
    with pytest.raises(InputError, match=r"t\.xlsx is not a workbook that can be read .*as CSV"):
        read_table(str(path), Columns())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(InputError, match=r"t\.xlsx is not a workbook"):
        read_table(str(path), Columns())
    workbook(path, [["text"], ["a"], ["b"]])
    with pytest.raises(InputError, match="row 1 has a text of 40,000 characters"):
        workbooks.new_workbook("o.xlsx", [["a" * 40_000]])
    monkeypatch.setattr(workbooks, "MOST_BYTES", 2)
    with pytest.raises(InputError, match=r"t\.xlsx is too large"):
        read_table(str(path), Columns(), labelled=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"o\.xlsx needs the package openpyxl: run .*pip install 'txl_tf\[tables\]'"):
        is_table("o.xlsx")


def test_results_that_a_workbook_cannot_hold_stand_beside_it(tmp_path):
    path, output = str(tmp_path / "t.csv"), str(tmp_path / "o.xlsx")
    long = "a" * 40_000
    (tmp_path / "t.csv").write_text(f"text\n{long}\n")
    (tmp_path / "o.xlsx.csv").write_text("mine")
    with pytest.raises(InputError, match=r"row 2 has a text of 40,000 .*; the results stand in .*/o\.xlsx_2\.csv$"):
        write_results(output, path, Columns(), {2: {"prediction": "yes"}})
    assert (tmp_path / "o.xlsx_2.csv").read_text() == f"text,prediction\n{long},yes\n"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["o.xlsx.csv", "o.xlsx_2.csv", "t.csv"]
    (tmp_path / "o").mkdir()
    with pytest.raises(InputError, match=r"/o cannot be written: .*; the results stand in .*/o\.csv$"):
        write_results(str(tmp_path / "o"), path, Columns(), {2: {"prediction": "yes"}})
    require_room(output, path, Columns(), 16_383)
    with pytest.raises(InputError, match="would have 16,385 columns"):
        require_room(output, path, Columns(), 16_384)


def test_names_of_results():
    assert is_table("a.CSV") and is_table("a.jsonl") and not is_table("a.txt") and not is_table("/dev/stdout")
    for name in ("a.csv.gz", "a.csv.bz2", "a.xlsx.XZ", "a.xls"):
        with pytest.raises(InputError, match="such a table cannot be written"):
            is_table(name)


def test_columns_of_classes_whose_names_look_alike_all_differ(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,probability a\none,1\n")
    found = as_columns({"label": "a", "probabilities": {"a": 0.5, "a_2": 0.25, "a_2_2": 0.125}}, all_probabilities=True)
    content = with_results(str(tmp_path / "o.csv"), str(path), Columns(), {2: found}).decode()
    (row,) = csv.DictReader(io.StringIO(content))
    assert row == {
        "text": "one",
        "probability a": "1",
        "prediction": "a",
        "probability a_3": "0.5",
        "probability a_2": "0.25",
        "probability a_2_2": "0.125",
    }


def test_a_table_that_cannot_be_written_stands_beside_as_csv(tmp_path, monkeypatch):
    """And as lines of JSON if the input is not there any more. No other file is replaced."""

    def fails(*_):
        raise AttributeError("of openpyxl,\nin two lines")

    monkeypatch.setattr(workbooks, "new_workbook", fails)
    path, output = tmp_path / "t.csv", tmp_path / "o.xlsx"
    path.write_text("text\none\n")
    (tmp_path / "o.xlsx.csv").write_text("mine")
    said = rf"^{output} cannot be written: of openpyxl, in two lines; the results stand in {output}"
    with pytest.raises(InputError, match=rf"{said}_2\.csv$"):
        write_results(str(output), str(path), Columns(), {2: FOUND[0]})
    assert (tmp_path / "o.xlsx_2.csv").read_text() == "text,prediction,probability\none,yes,0.75\n"
    path.unlink()
    with pytest.raises(InputError, match=rf"^{path} cannot be read .*; the results stand in {output}\.jsonl$"):
        write_results(str(output), str(path), Columns(), {2: FOUND[0]})
    assert json.loads((tmp_path / "o.xlsx.jsonl").read_text()) == {"line": 2} | FOUND[0]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["o.xlsx.csv", "o.xlsx.jsonl", "o.xlsx_2.csv"]


@pytest.mark.parametrize(
    "table",
    [
        {1: ["one"], "1": ["two"]},
        [{1: "one", "1": "two"}],
        pandas.DataFrame([["one", "two"]], columns=["1", 1]),
        pandas.DataFrame([["one", "two"]], columns=["1", "1"]),
    ],
)
def test_two_columns_of_one_name_are_refused(table):
    with pytest.raises(InputError, match="the table names the column '1' twice: rename one"):
        frames.table_of(table)
