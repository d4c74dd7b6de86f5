"""Workbooks as spreadsheet programs leave them: merged cells, formulas, errors, hidden sheets and rows."""

import io
import re
import warnings
import zipfile

import openpyxl
import pytest
from openpyxl.chart import BarChart, Reference

from txl_tf.data.tables.workbooks import BadCell, new_workbook, read_cells, require_room, with_columns
from txl_tf.errors import InputError

HEAD = ["text", "label"]


def book_of(rows, merged=()):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cells in merged:
        book.active.merge_cells(cells)
    return book


def data_of(book, change=None):
    """The file of a workbook; `change` edits the XML of its first sheet."""
    file = io.BytesIO()
    book.save(file)
    if not change:
        return file.getvalue()
    changed = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, change(text.decode()) if name.endswith("/sheet1.xml") else text)
    return changed.getvalue()


def cells_of(data, name="", header=True):
    cells, remarks = read_cells("t.xlsx", data, name, header)
    return {number: row for number, row in cells if row != [None] * len(row)}, remarks


def sheet_of(data, number=0, **options):
    return openpyxl.load_workbook(io.BytesIO(data), **options).worksheets[number]


def values_of(data, **options):
    return [list(row) for row in sheet_of(data, **options).iter_rows(values_only=True)]


def test_merged_rows_share_a_value_and_merged_columns_do_not():
    rows = [HEAD, ["a", "x"], ["b"], ["Part two"], ["c", "y"], [None, "z"], [None, None]]
    data = data_of(book_of(rows, ["B2:B3", "A4:B4", "A5:A7"]))
    read, remarks = cells_of(data)
    assert read == {1: HEAD, 2: ["a", "x"], 3: ["b", "x"], 4: ["Part two", None], 5: ["c", "y"], 6: ["c", "z"]}
    assert remarks == []
    both = data_of(book_of([HEAD, ["a"], ["b", None, "more"]], ["A2:B3"]))
    assert cells_of(both)[0] == {1: HEAD, 2: ["a", None], 3: ["a", None, "more"]}


def test_a_header_over_two_rows_is_no_example():
    data = data_of(book_of([[*HEAD, "notes"], [None, None, "by"], ["a", "x", "me"]], ["A1:A2", "B1:B2"]))
    assert cells_of(data)[0][2] == [None, None, "by"]
    assert cells_of(data, header=False)[0][2] == ["text", "label", "by"]


def test_values_of_covered_cells_do_not_count():
    """Some programs keep what a cell held before it was merged."""
    data = data_of(
        book_of([HEAD, ["a", "x"], ["b", "old"], ["old", "old"]]),
        lambda xml: xml.replace(
            "</sheetData>", '</sheetData><mergeCells><mergeCell ref="B2:B3"/><mergeCell ref="A3:A4"/></mergeCells>'
        ),
    )
    assert cells_of(data)[0] == {1: HEAD, 2: ["a", "x"], 3: ["b", "x"], 4: ["b", "old"]}


def test_errors_and_formulas_without_values_name_their_cell():
    book = book_of([[*HEAD, "n"], ["a", "#N/A", "=1/0"], ["=A2", "x"]])
    stored = {"<f>1/0</f><v />": "<f>1/0</f><v>#DIV/0!</v>", 'r="C2"': 'r="C2" t="e"'}
    data = data_of(book, lambda xml: re.sub("|".join(map(re.escape, stored)), lambda one: stored[one[0]], xml))
    read, _ = cells_of(data)
    assert [str(cell) for cell in read[2]] == ["a", "#N/A", "#DIV/0!"]
    assert read[2][1].fault == "B2 has the error #N/A: correct the cell"
    assert read[2][2].fault == "C2 has the error #DIV/0!: correct the cell"
    assert isinstance(read[3][0], BadCell) and read[3][0].fault.startswith("A3 has a formula without a stored value: ")
    assert str(read[3][0]) == ""


def test_a_formula_with_an_empty_text_is_an_empty_cell_and_beyond_the_columns_nothing_counts():
    book = book_of([HEAD, ["a", '=IF(A2="","x","")', "=A2"], ["b", "y"]])
    data = data_of(book, lambda xml: xml.replace('<c r="B2">', '<c r="B2" t="str">'))
    assert cells_of(data)[0] == {1: HEAD, 2: ["a", ""], 3: ["b", "y"]}
    written = with_columns("o.xlsx", data, "", {1: ["p"], 2: [1], 3: [2]})  # and the formula in C2 stays
    assert sheet_of(written)["C2"].value == "=A2" and sheet_of(written)["D1"].value == "p"


def test_escapes_of_control_characters():
    data = data_of(book_of([["text"], ["one_x000D_\ntwo _x005F_x000D_"]]))
    assert cells_of(data)[0][2] == ["one\r\ntwo _x000D_"]
    text = "a\rb\x01 _x000D_ =1 é\ud800 <&>\ufffe"
    assert cells_of(new_workbook("o.xlsx", [["text"], [text]]))[0][2] == [text]


def test_the_first_visible_sheet_or_the_named_one():
    book = book_of([HEAD, ["old", "x"]])
    book.active.title = "Old"
    book.active.sheet_state = "hidden"
    more = book.create_sheet("Current")
    for row in (HEAD, ["new", "y"], ["newer", "y"], ["newest", "z"], []):
        more.append(row)
    for number in (3, 4, 9):
        more.row_dimensions[number].hidden = True
    data = data_of(book)
    read, remarks = cells_of(data)
    assert read[2] == ["new", "y"]
    assert remarks == [
        "sheet 'Current' is read, for 'Old' (hidden) give --sheet",
        "2 hidden rows read, too (3, 4)",
    ]
    read, (remark,) = cells_of(data, "old")
    assert read[2] == ["old", "x"] and remark == "sheet 'Old' is read, for 'Current' give --sheet"
    with pytest.raises(
        InputError, match=r"t\.xlsx has no sheet 'New' but 'Old' \(hidden\), 'Current': correct --sheet"
    ):
        cells_of(data, "New")
    written = with_columns("o.xlsx", data, "Current", {2: ["p"]})
    assert sheet_of(written, 1)["C2"].value == "p" and sheet_of(written)["C2"].value is None


def test_empty_rows_and_columns_cost_nothing():
    book = book_of([HEAD, ["a", "x"]])
    bold = openpyxl.styles.Font(bold=True)
    book.active["XFD1048576"].font = bold
    book.active["C2"].font = bold
    data = data_of(book)
    cells, _ = read_cells("t.xlsx", data, "", True)
    assert list(cells) == [(1, HEAD), (2, ["a", "x"])]
    written = sheet_of(with_columns("o.xlsx", data, "", {1: ["p", "q"], 2: ["yes", None]}))
    assert [cell.value for cell in written[2]][:4] == ["a", "x", "yes", None]
    assert written["C2"].font.bold and written["XFD1048576"].font.bold  # formats stay


def test_only_the_new_cells_differ():
    """Values of formulas, a chart, a comment and formats stay; ranges that are in the way are merged no longer."""
    rows = [[*HEAD, "n"], ["a", "x", 1.5], ["b", "y", "=C2*2"], ["Part two"], ["c", "z", True]]
    book = book_of(rows, ["A4:E4", "B2:B3", "F9:G9"])
    book.active.add_chart(chart := BarChart(), "F2")
    chart.add_data(Reference(book.active, min_col=3, min_row=2, max_row=3))
    book.active["A2"].comment = openpyxl.comments.Comment("seen", "me")
    data = data_of(book, lambda xml: xml.replace("<f>C2*2</f><v />", "<f>C2*2</f><v>3</v>"))
    written = with_columns("o.xlsx", data, "", {1: ["p", "q"], 3: ["no", 0.25], 4: ["=1+1", False], 9: ["last", None]})
    assert [row[:5] for row in values_of(written, data_only=True)] == [
        ["text", "label", "n", "p", "q"],
        ["a", "x", 1.5, None, None],
        ["b", None, 3, "no", 0.25],
        ["Part two", None, None, "=1+1", False],
        ["c", "z", True, None, None],
        *[[None] * 5] * 3,
        [None, None, None, "last", None],
    ]
    sheet = sheet_of(written)
    assert sheet["C3"].value == "=C2*2" and sheet["D4"].data_type == "s" and sheet["A2"].comment.text == "seen"
    assert sorted(map(str, sheet.merged_cells.ranges)) == ["B2:B3", "F9:G9"]
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(io.BytesIO(written)) as new:
        assert old.namelist() == new.namelist() and any("chart" in name for name in new.namelist())
        changed = {name for name in old.namelist() if old.read(name) != new.read(name)}
        assert changed == {"xl/worksheets/sheet1.xml", "xl/styles.xml"}
        styles = [len(re.findall(r"<xf\b", one.read("xl/styles.xml").decode())) for one in (old, new)]
        assert styles[1] == styles[0] + 1
    alone = data_of(book_of([["text"], ["a"]], ["A2:C2"]))
    assert (
        "mergeCell"
        not in zipfile.ZipFile(io.BytesIO(with_columns("o", alone, "", {2: [1]})))
        .read("xl/worksheets/sheet1.xml")
        .decode()
    )  # an empty list of them would be damage


def test_xml_of_other_programs():
    """With a prefix, without numbers of rows and cells, and with attributes of other namespaces."""

    def change(xml):
        xml = re.sub(r' (r|spans)="\w+"', "", xml)
        xml = re.sub(r"<(/?)(\w)", r"<\1x:\2", xml).replace("xmlns=", "xmlns:x=")
        return xml.replace("<x:worksheet", '<x:worksheet xmlns:y="urn:y" y:uid="{1}"').replace("two", "t&#13;o")

    data = data_of(book_of([HEAD, ["one", "x"], ["two", "y"]]), change)
    written = with_columns("o.xlsx", data, "", {1: ["p"], 3: ["yes"], 5: ["end"]})
    assert values_of(written)[:3] == [[*HEAD, "p"], ["one", "x", None], ["t\ro", "y", "yes"]]
    assert sheet_of(written)["C5"].value == "end" and cells_of(written)[0][3] == ["t\ro", "y", "yes"]
    xml = zipfile.ZipFile(io.BytesIO(written)).read("xl/worksheets/sheet1.xml").decode()
    assert 'xmlns:y="urn:y" y:uid="{1}"' in xml and "<c" not in xml


def test_the_limits_of_a_sheet():
    with pytest.raises(InputError, match=r"o\.xlsx would have 1,048,577 rows, and .* at most 1,048,576: .*\.csv"):
        require_room("o.xlsx", 1_048_577, 3)
    wide = data_of(book_of([["text"] + [None] * 16_382 + ["last"], ["a"]]))
    with pytest.raises(InputError, match=r"o\.xlsx would have 16,385 columns"):
        with_columns("o.xlsx", wide, "", {1: ["p"]})


def test_openpyxl_does_not_warn():
    data = data_of(book_of([HEAD, ["a", "x"]]), lambda xml: xml.replace("</worksheet>", EXTENSION + "</worksheet>"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cells_of(with_columns("o.xlsx", data, "", {2: ["p"]}))[0][2] == ["a", "x", "p"]


EXTENSION = '<extLst><ext uri="{CCE6A557-97BC-4B89-ADB6-D9C93CAAB3DF}"/></extLst>'
