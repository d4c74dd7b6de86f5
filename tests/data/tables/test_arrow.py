"""Parquet and Arrow files as tables: as the same rows in JSON lines, in every form that pyarrow writes."""

import decimal
import io
import json
import sys

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from txl_tf import families
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.forms import read_rows
from txl_tf.data.tables.results import is_table, with_results
from txl_tf.errors import Faults, InputError
from txl_tf.tasks.multi_label import MultiLabel
from txl_tf.tasks.texts import read_table

FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
    "tags": {"feature": {"names": ["O", "B-PER"], "_type": "ClassLabel"}, "_type": "Sequence"},
    "old": [{"names": ["x", "y"], "_type": "ClassLabel"}],
    "answers": {"feature": {"kind": {"dtype": "string", "_type": "Value"}}, "_type": "Sequence"},
}
META = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()}
ROWS = [
    {"text": "one", "label": "pos", "tags": ["O", "B-PER"], "old": ["y"], "answers": {"kind": ["b", "a"]}, "n": 1.5},
    {"text": "two", "label": None, "tags": None, "old": [], "answers": {"kind": []}, "n": None},
    {"text": "three\n", "label": "neg", "tags": [], "old": None, "answers": None, "n": -2.0},
]


def table():
    columns = {
        "text": pa.array(["one", "two", "three\n"]).dictionary_encode(),
        "label": pa.array([1, -1, 0], pa.int64()),
        "tags": pa.array([[0, 1], None, []], pa.list_(pa.int64())),
        "old": pa.array([[1], [], None], pa.list_(pa.int64())),
        "answers": pa.array([{"kind": ["b", "a"]}, {"kind": []}, None]),
        "n": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.00")]),
    }
    return pa.table(columns).replace_schema_metadata(META)


def write(path, rows):
    """Writes a table in the form that its name says; streams are what `datasets` writes."""
    if path.suffix == ".parquet":
        parquet.write_table(rows, path, row_group_size=2)
    elif path.suffix == ".feather":
        feather.write_feather(rows, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as stream:
            stream.write_table(rows, max_chunksize=2)
    return str(path)


@pytest.mark.parametrize("end", ["parquet", "feather", "arrow"])
def test_the_rows_are_those_of_json_lines(tmp_path, end):
    found = read_rows(write(tmp_path / f"t.{end}", table()), Columns(), Faults("t"))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert found.rows == read_rows(str(tmp_path / "t.jsonl"), Columns(), Faults("t")).rows
    assert found.names == [*FEATURES, "n"] and found.form == ("Parquet" if end == "parquet" else "Arrow")
    (tmp_path / "named_wrongly.csv").write_bytes((tmp_path / f"t.{end}").read_bytes())
    assert read_rows(str(tmp_path / "named_wrongly.csv"), Columns(), Faults("t")).rows == found.rows


def test_labels_of_tasks(tmp_path):
    path = write(tmp_path / "t.parquet", table().slice(0, 1))
    assert [(row.text, row.label) for row in read_table(path, Columns())] == [("one", "pos")]
    sets = MultiLabel().read(path, Columns(label_column="tags"))
    assert [row.label for row in sets] == ['["B-PER", "O"]']
    with pytest.raises(InputError, match=r"t\.parquet, row 2 has no label in column 'label'"):
        read_table(write(tmp_path / "t.parquet", table()), Columns())
    with pytest.raises(InputError, match=r"t\.parquet has no column 'body' but 'text', 'label', 'tags', .*text_column"):
        read_table(path, Columns(text_column="body"))


def test_words_with_tags_and_questions(tmp_path):
    """As the Hub has CoNLL-2003 and SQuAD."""

    def read(task, rows):
        use = families.task_of(families.tuned_configs()[task])
        return use.read(write(tmp_path / "t.parquet", rows), Columns(), True)

    ner_tags = {"feature": {"names": ["O", "B-PER"], "_type": "ClassLabel"}, "_type": "List"}
    about = {b"huggingface": json.dumps({"info": {"features": {"ner_tags": ner_tags}}}).encode()}
    words = pa.table({"tokens": [["Ida", "left"], ["no"]], "ner_tags": [[1, 0], [0]]}).replace_schema_metadata(about)
    assert [text.tags for text in read("tagging", words)] == [("B-PER", "O"), ("O",)]
    answers = [{"text": ["Graz"], "answer_start": [13]}, {"text": [], "answer_start": []}]
    questions = {
        "id": ["1", "2"],
        "context": ["Ida lives in Graz."] * 2,
        "question": ["Where?", "Why?"],
        "answers": answers,
    }
    found = [one for paragraph in read("answering", pa.table(questions)) for one in paragraph.questions]
    assert [[(answer.text, answer.start) for answer in one.answers] for one in found] == [[("Graz", 13)], []]


def test_faults_are_one_line(tmp_path):
    for end in ("parquet", "feather", "arrow"):
        path = write(tmp_path / f"t.{end}", table())
        whole = (tmp_path / f"t.{end}").read_bytes()
        (tmp_path / f"t.{end}").write_bytes(whole[: len(whole) - 40 - 400 * (end == "arrow")])
        with pytest.raises(InputError, match=rf"t\.{end} cannot be read \(.*\): it may be cut off; fetch or write"):
            read_rows(path, Columns(), Faults("t"))
    with pytest.raises(InputError, match=r"t\.parquet has bytes in the column 'text', not text: .*--text_column"):
        read_rows(write(tmp_path / "t.parquet", pa.table({"text": [b"a"]})), Columns(), Faults("t"))
    twice = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(InputError, match="names the column 'text' twice"):
        read_rows(write(tmp_path / "t.parquet", twice), Columns(), Faults("t"))


def test_an_encrypted_file_says_so(tmp_path):
    from pyarrow.parquet import encryption

    class Keys(encryption.KmsClient):
        def wrap_key(self, key_bytes, master_key_identifier):
            return key_bytes.hex()

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return bytes.fromhex(wrapped_key)

    factory = encryption.CryptoFactory(lambda _: Keys())
    for plaintext_footer in (False, True):
        config = encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["text"]}, plaintext_footer=plaintext_footer
        )
        secret = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
        parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "t.parquet", encryption_properties=secret)
        with pytest.raises(InputError, match=r"t\.parquet is encrypted: write it without encryption"):
            read_rows(str(tmp_path / "t.parquet"), Columns(), Faults("t"))


def test_without_pyarrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", table())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"t\.parquet needs the package pyarrow: run .*pip install 'txl_tf\[tables\]'"):
        read_rows(path, Columns(), Faults("t"))
    with pytest.raises(InputError, match=r"o\.parquet needs the package pyarrow"):
        is_table("o.parquet")


def test_results_as_parquet(tmp_path):
    assert is_table("o.parquet")
    path = write(tmp_path / "t.arrow", table())
    content = with_results("o.parquet", path, Columns(), {1: {"prediction": "yes"}, 3: {"prediction": ["a", "b"]}})
    found = parquet.read_table(io.BytesIO(content)).to_pylist()
    wanted = ["yes", None, '["a", "b"]']  # of several kinds: as text
    assert found == [row | {"prediction": one} for row, one in zip(ROWS, wanted, strict=True)]
    (tmp_path / "t.csv").write_text("text,n\none,1\n,\ntwo,2\n")
    content = with_results("o.parquet", str(tmp_path / "t.csv"), Columns(), {2: {"p": 0.5}, 4: {"p": 1.0}})
    assert parquet.read_table(io.BytesIO(content)).to_pydict() == {
        "text": ["one", None, "two"],
        "n": ["1", None, "2"],
        "p": [0.5, None, 1.0],
    }
