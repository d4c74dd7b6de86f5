"""Tables: their forms, what is wrong with them, and their labels."""

import gzip
import json
import time

import pytest
import tensorflow as tf

from txl_tf.data.examples.layout import encode
from txl_tf.data.tables.columns import Columns
from txl_tf.data.vocabularies import ByteVocabulary
from txl_tf.errors import FaultsError, InputError
from txl_tf.tasks.classification import Classification
from txl_tf.tasks.regression import Regression
from txl_tf.tasks.texts import Row, read_table


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def test_the_three_forms_of_a_table_are_one(tmp_path):
    rows = [("a, b", "x", "yes"), ('say "hi"', "", "no")]
    columns = Columns(text_column="sentence", text_b_column="other")
    tsv = write(tmp_path / "t.tsv.gz", 'label\tsentence\tother\r\nyes\ta, b\tx\r\nno\tsay "hi"\t\r\n')
    csv = write(tmp_path / "t.csv", 'sentence,other,label\n"a, b",x,yes\n"say ""hi""",,no\n')
    lines = [dict(zip(("sentence", "other", "label"), row, strict=True)) for row in rows]
    jsonl = write(tmp_path / "t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for path, places in ((tsv, (2, 3)), (csv, (2, 3)), (jsonl, (1, 2))):
        wanted = [Row(*row, f"{path}, line {place}") for row, place in zip(rows, places, strict=True)]
        assert read_table(path, columns) == wanted
    unlabelled = write(tmp_path / "u.tsv", "text\nonly this\n")
    assert read_table(unlabelled, Columns(), labelled=False) == [Row("only this", "", "", f"{unlabelled}, line 2")]


@pytest.mark.parametrize(
    ("first", "second"), [("sentence1", "sentence2"), ("premise", "hypothesis"), ("text", "text2")]
)
def test_a_second_text_that_is_not_read_is_said(tmp_path, first, second):
    table = write(tmp_path / "t.csv", f"{first},{second},label\na,b,yes\nc,d,no\n")
    said = f"{second!r} is not read: --text_b_column={second} reads it as the second text"
    assert read_table(table, Columns(text_column=first)).remarks == (said,)
    assert not read_table(table, Columns(text_column=first, text_b_column=second)).remarks
    assert not read_table(table, Columns(text_column=first, label_column=second)).remarks


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "x", "name ends in .*tsv"),
        ("a.tsv", "text\tlabel\nfine\t1\n\nno label\n", "a.tsv, line 4 has 1 column, but line 1 has 2"),
        ("a.tsv", "text\tlabel\nfine\t1\n \t1\n", "a.tsv, line 3 has no text in column 'text'"),
        ("a.tsv", "text\tlabel\nfine\t \n", "a.tsv, line 2 has no label in column 'label'"),
        ("a.tsv", "sentence\tlabel\nfine\t1\n", "a.tsv, line 1 has no column 'text' but 'sentence', 'label'"),
        ("a.tsv", "text\ttext\nfine\t1\n", "a.tsv, line 1 names the column 'text' twice"),
        ("a.csv", "|text|label|\n|a|b|\n", "a.csv, line 1 has several columns without a name: name them"),
        ("a.tsv", "text\tlabel\n", "a.tsv has no rows"),
        ("a.csv", 'text,label\n"a\nb",1\n"c" d,1\n', "a.csv, line 4 is not CSV"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text"',
            "a.jsonl, line 2 is not JSON .*: give a JSON object in each line",
        ),
        ("a.jsonl", "[1]\n", "a.jsonl, entry 1 must be a JSON object"),
        (
            "a.jsonl",
            '{"text": ["a"], "label": 1}\n',
            r"a.jsonl, line 1: 'text' must be a text or a number, not \[\"a\"\]",
        ),
        ("a.json", '[{"id": 1, "data": {"text": "a"}, "annotations": []}]', "tasks of Label Studio: .* as JSON-MIN"),
        (
            "a.json",
            '{"tags": ["x"], "rows": [{"text": "a"}]}',
            "'tags', 'rows': if its rows are in 'rows', give that",
        ),
        ("a.tsv.gz", None, "a.tsv.gz is damaged"),
        ("a.tsv", b"text\tlabel\n\xff\t1\n", "a.tsv, line 2 is not UTF-8"),
    ],
)
def test_a_malformed_row_names_file_and_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(b"no gzip" if text is None else text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        read_table(str(path), Columns())


def test_a_fault_of_most_rows_is_one_message(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\ngood,a\n" + "\n".join(f"bad,b,{'x' * i}" for i in range(8)))
    with pytest.raises(InputError, match=r"line 3 has 3 columns.*the same in 8 of 9 lines") as raised:
        read_table(str(tmp_path / "t.csv"), Columns())
    assert not isinstance(raised.value, FaultsError)
    path = write(tmp_path / "a.csv", "text;label\ngood;1\n" + "bad;0,5\n" * 8)
    with pytest.raises(InputError, match=r"line 3 has the label '0,5', .*the same in 8 of 9 lines"):
        Regression().read(path, Columns())


def test_all_faults_of_a_table_are_said_at_once_in_the_order_of_lines(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\ngreat,good\n,bad\nfine\nlovely,\n")
    with pytest.raises(FaultsError, match=rf"^3 faults in {path}") as raised:
        read_table(path, Columns())
    assert [fault.split(" has ")[0].removeprefix(f"{path}, ") for fault in raised.value.faults] == [
        "line 3",
        "line 4",
        "line 5",
    ]
    assert str(raised.value).splitlines() == [f"3 faults in {path}:", *raised.value.faults]
    path = write(tmp_path / "b.csv", "text,label\n" + ",bad\n" * 13 + "fine,good\n" * 14)
    with pytest.raises(FaultsError, match=r"^13 faults in ") as raised:
        read_table(path, Columns())
    assert len(raised.value.faults) == 11 and raised.value.faults[-1] == "and 3 more"


@pytest.mark.parametrize(
    ("name", "data", "columns"),
    [
        ("a.csv", b"text;label\na, b;yes\nc;no\n", Columns()),
        ("a.csv", b"sep=;\r\ntext;label\r\na, b;yes\r\nc;no\r\n", Columns()),
        ("a.csv", b"text|label\na, b|yes\nc|no\n", Columns()),
        ("a.csv", b'text\tlabel\n"a, b"\tyes\nc\tno\n', Columns()),
        ("a.csv", b"text#label\na, b#yes\nc#no\n", Columns(delimiter="#")),
        ("a.tsv", b"text;label\na, b;yes\nc;no\n", Columns()),
        ("a.tsv", b"text\tlabel\ra, b\tyes\rc\tno\r", Columns()),
        ("a.csv", "text;label\na, b;yes\nc;no\n".encode("utf-16"), Columns()),
        ("a.csv", "text;label\na, b;yes\nc;no\n".encode("utf-32"), Columns()),
        ("a.csv", "text;label\na, b;yes\nc;no\n".encode("utf-16-be"), Columns(encoding="utf-16-be")),
        ("a.tsv", b"1\tx\tyes\ta, b\n2\tx\tno\tc\n", Columns("4", label_column="3", no_header=True)),
        ("a.csv", b"yes;a, b\nno;c\n", Columns("2", label_column="1", no_header=True)),
    ],
)
def test_separators_and_encodings_of_spreadsheet_programs(tmp_path, name, data, columns):
    (tmp_path / name).write_bytes(data)
    rows = read_table(str(tmp_path / name), columns)
    assert [(row.text, row.label) for row in rows] == [("a, b", "yes"), ("c", "no")]


def test_an_encoding_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\ncaf\u00e9 \u2013,1\n".encode("cp1252"))
    assert read_table(str(path), Columns(encoding="cp1252"))[0].text == "caf\u00e9 \u2013"
    with pytest.raises(InputError, match=r"a\.csv, line 2 is not UTF-8 text .* --encoding=cp1252"):
        read_table(str(path), Columns())
    with pytest.raises(InputError, match=r"--encoding=base65 is unknown"):
        Columns(encoding="base65")


@pytest.mark.parametrize(
    ("columns", "labelled", "message"),
    [
        (Columns("Text"), True, r"line 1 has no column 'Text' but 'text', 'label': give --text_column='text'"),
        (Columns("text", label_column="LABEL "), False, r"no column 'LABEL ' .* give --label_column='label'"),
        (Columns(text_b_column="misspelt"), False, r"no column 'misspelt' .* name one of them with --text_b_column"),
        (Columns("3", no_header=True), False, r"line 1 has 2 columns: --text_column must be a number from 1 to 2"),
        (Columns("1", no_header=True), True, r"line 1 has 2 columns: --label_column must be a number .* not 'label'"),
    ],
)
def test_a_column_that_is_named_must_be_there(tmp_path, columns, labelled, message):
    with pytest.raises(InputError, match=message):
        read_table(write(tmp_path / "a.csv", "text,label\na,b\n"), columns, labelled)
    lines = write(tmp_path / "a.jsonl", '{"text": "a", "label": "b"}\n')
    with pytest.raises(
        InputError, match="omit --no_header" if columns.no_header else message.replace("line 1", "jsonl")
    ):
        read_table(lines, columns, labelled)


def test_a_file_without_header_is_told(tmp_path):
    path = write(tmp_path / "a.tsv", "g\t1\t\tgreat day\ng\t0\t\twhat a mess\n")
    with pytest.raises(
        InputError, match=r"line 1 has no column 'text' but 'g', .*if this line is not a header.*--no_header"
    ):
        read_table(path, Columns())


def test_columns_that_cannot_be():
    for given, message in (
        ({"label_column": "text"}, "--label_column and --text_column are both 'text'"),
        ({"delimiter": "ab"}, "--delimiter=ab must be one character"),
        ({"no_header": True}, "--no_header needs the numbers"),
        ({"no_header": True, "text_column": "0"}, "--text_column=0 must be a number from 1 on"),
    ):
        with pytest.raises(InputError, match=message):
            Columns(**given)


@pytest.mark.parametrize(("name", "kind"), [("a.xlsx", "CSV"), ("a.csv", "CSV"), ("a.ods", "CSV")])
def test_files_of_other_programs_are_told_how_to_convert(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"PK\x03\x04\x00")
    with pytest.raises(InputError, match=f"{name} is .*{kind}"):
        read_table(str(tmp_path / name), Columns())


def test_rows_without_content_or_text(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\na,1\n,\n" ",2\n\nb,2\n,\n\n')
    with pytest.raises(InputError, match=r"line 4 has no text in column 'text': .*--skip_empty"):
        read_table(path, Columns())
    rows = read_table(path, Columns(skip_empty=True))
    assert [row.text for row in rows] == ["a", "b"]
    assert rows.remarks == (
        "2 rows without any content left out (lines 3, 5)",
        "1 row without text left out (line 4)",
    )
    path = write(tmp_path / "a.jsonl", '{"text": null, "label": null}\n{"text": "a", "label": "b"}\n')
    rows = read_table(path, Columns())
    assert len(rows) == 1 and rows.remarks == ("1 row without any content left out (line 1)",)


def test_letters_that_were_lost_and_totals_are_said(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nna\ufffdve,1.5\nb,2\nTotal,3.5\n")
    remedy = "save the file again as UTF-8 from its source"
    lost = f"1 text such as 'na\ufffdve' (line 2) may have lost letters (U+FFFD): {remedy}"
    assert read_table(path, Columns()).remarks == (lost,)
    total = f"{path}, line 4 has the sum of all other scores: remove it if it is a total"
    assert Regression().read(path, Columns()).remarks == (lost, total)


def test_texts_in_a_wrong_encoding_and_bytes_in_writing_are_said(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nsch\u00c3\u00b6n,x\nsch\u00f6n \u2019,y\nb is,y\n")
    (twice,) = read_table(path, Columns()).remarks
    assert twice.startswith("1 text such as 'sch\u00c3\u00b6n' (line 2) may be UTF-8 that was read as cp1252: save the")
    path = write(tmp_path / "b.csv", "text,label\n\"b'it, too'\",x\nb is,y\n")
    (of_bytes,) = read_table(path, Columns()).remarks
    assert of_bytes.startswith("1 text such as \"b'it, too'\" (line 2) may be bytes of Python in writing: write")


@pytest.mark.parametrize("rows", ['"so,x\nbad,y\nthe end",x\nb,y\n', 'x,"so\ny,bad\nx,the end"\ny,b\n'])
def test_rows_inside_of_a_text_are_said(tmp_path, rows):
    names = "text,label" if rows[0] == '"' else "label,text"
    found = Classification().read(write(tmp_path / "a.csv", f"{names}\n{rows}"), Columns())
    assert len(found) == 2 and found.remarks == (
        "2 lines inside of texts end like rows (line 2): a quote may be missing",
    )
    found = Classification().read(write(tmp_path / "b.csv", 'text,label\n"so,\nx or y",x\nb,y\n'), Columns())
    assert not found.remarks


def test_texts_that_are_lists_are_said(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\n\"['so', 'it']\",x\n\"['is']\",y\n")
    assert read_table(path, Columns()).remarks == (
        "texts such as \"['so', 'it']\" are read as they stand, not as lists",
    )
    assert not read_table(write(tmp_path / "b.csv", "text,label\n[gone],x\n['is'],y\n"), Columns()).remarks


def test_empty_columns_without_names_are_left_out(tmp_path):
    path = write(tmp_path / "a.csv", "text,label,,\na,x,,\nb,y, ,\n")
    assert [(row.text, row.label) for row in read_table(path, Columns())] == [("a", "x"), ("b", "y")]
    path = write(tmp_path / "b.csv", "text,label,,\na,x,,\nb,y,,note\n")
    with pytest.raises(InputError, match=r"b\.csv, line 3 has 4 columns, but line 1 has 2 with names: correct the row"):
        read_table(path, Columns())


def test_many_empty_lines_of_json_take_no_time(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": ""}\n' * 40_000 + '{"text": "a"}\n' * 40_000)
    began = time.process_time()
    assert len(read_table(path, Columns(), labelled=False)) == 40_000
    assert time.process_time() - began < 10  # one set for each row takes minutes


def test_values_of_json(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "text_b": null, "label": null}\n{"text": "b", "label": ["x"]}\n')
    assert [(row.text, row.text_b, row.label) for row in read_table(path, Columns(), labelled=False)] == [
        ("a", "", ""),
        ("b", "", ""),
    ]
    with pytest.raises(InputError, match="line 1 has no label"):
        read_table(path, Columns())
    path = write(tmp_path / "one.jsonl", '{"text": "a", "label": ["x"]}\n{"text": "b", "label": "y"}\n')  # Doccano
    assert [row.label for row in read_table(path, Columns())] == ["x", "y"]
    path = write(tmp_path / "b.jsonl", '{"text": "a", "label": true}\n{"text": 7, "label": false}\n')
    assert [row.label for row in read_table(path, Columns())] == ["true", "false"]
    for label in ("NaN", '"nan"'):
        path = write(tmp_path / "c.jsonl", f'{{"text": "a", "label": "x"}}\n{{"text": "a", "label": {label}}}\n')
        with pytest.raises(InputError, match=r"line 2 has the label 'nan', which stands for a missing value"):
            read_table(path, Columns())
    path = write(tmp_path / "several.jsonl", '{"text": "a", "label": ["x", "y"]}\n')
    with pytest.raises(
        InputError, match="line 1 has a list of labels, and a text has one class here: give one, or --task=multi_label"
    ):
        read_table(path, Columns())
    path = write(tmp_path / "d.jsonl", '{"text": "half \\ud83d", "label": "x"}\n')
    assert read_table(path, Columns())[0].text == "half \ufffd"


def test_white_space_inside_a_text_is_one_space():
    texts = ["so one. the River, a dash", "so one.\nthe River,\ta dash", "so one.\r\nthe  River, a dash\n"]
    first, *others = encode(ByteVocabulary(), tf.constant(texts)).to_list()
    assert bytes(first).decode() == texts[0] and others == [first, first]
