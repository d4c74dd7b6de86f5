"""BatchPredictor: rows have the results that predict.py gives them, whatever the batches, the form and the faults."""

import pickle
import threading
import types

import hub_server
import numpy as np
import pandas
import pyarrow
import pytest
import random_xlnet
import replicas
import tuned_models

import txl_tf
from txl_tf import batch_predictor
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.table import Table
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.errors import FaultsError, InputError
from txl_tf.inference.tasks.predictor import Predictor

LABELS, TAGS = ("bad", "good", "mixed"), ("O", "B-A", "I-A", "B-C")
CLASSES = {"classification": LABELS, "multi_label": LABELS, "tagging": TAGS}
TEXTS = ["the River", "so", "one so a dash " * 4, "the so " * 7, "a"]
QUESTIONS = [
    {"article": "the River " * n, "question": "which _ is one", "options": ["so", "a dash", "the", "one"][:options]}
    for n, options in ((1, 3), (4, 2), (2, 3), (3, 4), (1, 2))
]
ASKED = [
    {"question": question, "context": context, "id": "the same"}
    for question, context in (("the River", "so one"), ("so", "one  so a dash River " * 5), ("the " * 9, "so one"))
]
ROWS = {
    "classification": [{"text": text, "text_b": "a dash" if i % 3 == 1 else None} for i, text in enumerate(TEXTS)],
    "multi_label": [{"text": text} for text in TEXTS],
    "regression": [{"text": text} for text in TEXTS],
    "multiple_choice": QUESTIONS,
    "answering": ASKED,
    "tagging": [{"text": text} for text in TEXTS],
}
FAULTY = {
    "multiple_choice": {"article": "the", "question": "so", "options": ["one"]},
    "answering": {"question": "the", "context": " ", "id": "another"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture(scope="module")
def predictors(folder):
    for task in ROWS:
        tuned_models.write_model_dir(folder / task, task, CLASSES.get(task, ()), 2 if task == "tagging" else 1)
    return {task: Predictor.load(str(folder / task), strategy=replicas.one_device()) for task in ROWS}


@pytest.fixture
def tool(monkeypatch):
    """A function that gives all BatchPredictors of a test one object that computes, instead of loading their models."""

    def use(found):
        monkeypatch.setattr(batch_predictor, "load", lambda *_, **__: types.SimpleNamespace(trained=None))
        monkeypatch.setattr(batch_predictor, "tool_for", lambda *_, **__: found)
        monkeypatch.setattr(batch_predictor, "_TOOLS", {})

    return use


def of_file(predictor, rows):
    """Predictions as those of predict.py for a file with these rows; questions with equally many options at once."""
    found = {}
    for count in sorted({len(row.get("options", ())) for row in rows}):
        some = [i for i, row in enumerate(rows) if len(row.get("options", ())) == count]
        kept = [{name: value for name, value in rows[i].items() if name != "id"} for i in some]
        table = Table(list(kept[0]), list(enumerate(kept, 1)), [], "rows")
        found |= zip(some, predictor.predict_file(table).predictions, strict=True)
    return [found[i] for i in range(len(rows))]


def frame_of(rows):
    return pandas.DataFrame({name: [row[name] for row in rows] for name in rows[0]}, index=range(7, 7 + len(rows)))


def same(found, wanted):
    """Whether two results are alike, numbers to 1e-5."""
    if isinstance(wanted, float):
        return found == pytest.approx(wanted, abs=1e-5)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)
    return found == wanted


@pytest.mark.parametrize("task", ROWS)
def test_results_are_those_of_a_file_whatever_the_batches(predictors, folder, task, tool):
    """In batches of 2 and of all, with a faulty row between good ones."""
    tool(predictors[task])
    rows, wanted = ROWS[task], of_file(predictors[task], ROWS[task])
    bad = FAULTY.get(task, dict.fromkeys(rows[0]))
    mixed, predictor = [rows[0], bad, *rows[1:]], txl_tf.BatchPredictor(str(folder / task))
    fields = {name: field for name, (field, _) in predictors[task].task.adds.items()}
    assert list(predictor.schema(list(rows[0]))) == [*fields, "fault"]
    texts = []
    for size in (2, len(mixed)):
        batches = [pyarrow.Table.from_pylist(mixed[i : i + size]) for i in range(0, len(mixed), size)]
        if size < len(mixed):  # an empty column has no type
            batches = [one.cast(pyarrow.Table.from_pylist(mixed).schema) for one in batches]
        found = pyarrow.concat_tables([predictor(batch) for batch in batches])  # whose types are equal
        assert [field.name for field in found.schema] == [*rows[0], *fields, "fault"]
        results = found.to_pylist()
        for one, prediction in zip(results[:1] + results[2:], wanted, strict=True):
            assert same([one[name] for name in fields], [prediction[field] for field in fields.values()])
            assert one["fault"] is None
        assert all(results[1][name] is None for name in fields)
        texts.append([one["fault"] for one in results])
    assert texts[0] == texts[1] and texts[0][1].startswith("the row")


def test_the_form_that_came_in_goes_out(predictors, folder):
    """Also its index, its other columns, and a column that has a new column's name."""
    rows = [{"text": "the River", "probability": 1}, {"text": None, "probability": 2}]
    rows += [{"text": 7, "probability": 3}, {"text": ["so"], "probability": 4}]
    predictor = txl_tf.BatchPredictor(str(folder / "classification"), unsure_below=0.999)
    frame = frame_of(rows)
    found = predictor(frame)
    new = ["prediction", "probability_2", "unsure", "fault"]
    assert list(predictor.schema(frame.columns)) == new and list(found.columns) == ["text", "probability", *new]
    assert list(found.index) == [7, 8, 9, 10] and list(frame.columns) == ["text", "probability"]
    wanted = predictors["classification"].predict(["the River", "7"])
    assert list(found["prediction"][[7, 9]]) == [one["label"] for one in wanted]
    assert found["prediction"][[8, 10]].isna().all() and found["unsure"].isna().tolist() == [False, True, False, True]
    assert "no text in column 'text'" in found["fault"][8] and "must be a text or a number" in found["fault"][10]
    columns = {"text": np.array(["the River", "7", None], object), "n": np.arange(3)}
    arrays = predictor(columns)
    assert list(arrays) == ["text", "n", "prediction", "probability", "unsure", "fault"] and list(columns) == [
        "text",
        "n",
    ]
    assert arrays["probability"].dtype == float and np.isnan(arrays["probability"]).tolist() == [False, False, True]
    assert arrays["prediction"].tolist() == [wanted[0]["label"], wanted[1]["label"], None]
    for empty in (
        frame[:0],
        {"text": np.array([], object)},
        pyarrow.table({"text": pyarrow.array([], pyarrow.string())}),
    ):
        assert len(predictor(empty)["prediction"]) == 0
    piece = pyarrow.RecordBatch.from_pydict({"text": ["the River"]})
    assert predictor(piece).column("prediction").to_pylist() == [wanted[0]["label"]]
    with pytest.raises(InputError, match=r"^give a DataFrame, a pyarrow\.Table or a dict of columns, not"):
        predictor(3)


def test_types_are_those_of_spark_and_arrow(predictors, folder):
    shown = {task: txl_tf.BatchPredictor(str(folder / task)).schema(list(ROWS[task][0])) for task in ROWS}
    assert shown["multiple_choice"] == {
        "choice": "bigint",
        "option": "string",
        "probability": "double",
        "fault": "string",
    }
    entity = "struct<label:string,text:string,begin:bigint,end:bigint,probability:double>"
    assert shown["tagging"] == {"entities": f"array<{entity}>", "fault": "string"}
    assert shown["multi_label"]["labels"] == "array<string>"
    found = txl_tf.BatchPredictor(str(folder / "tagging"))(pyarrow.table({"text": ["so", None]}))
    assert str(found.schema.field("entities").type).replace("item", "element") == (
        "list<element: struct<label: string, text: string, begin: int64, end: int64, probability: double>>"
    )
    assert found["entities"].to_pylist()[1] is None


def test_it_travels_as_its_arguments_and_loads_once(predictors, folder, monkeypatch):
    loads, load = [], batch_predictor.load
    monkeypatch.setattr(batch_predictor, "load", lambda *args, **given: loads.append(args) or load(*args, **given))
    monkeypatch.setattr(batch_predictor, "_TOOLS", {})
    predictor = txl_tf.BatchPredictor(str(folder / "regression"), Columns(text_column="t"), batch_size=3)
    sent = pickle.dumps(predictor)
    predictor.of_the_engine = threading.Lock()  # Ray adds what cannot be pickled
    assert len(sent) < 2000 and not loads
    wanted = predictor({"t": TEXTS})["score"]
    assert len(pickle.dumps(predictor)) == len(sent) and len(loads) == 1
    np.testing.assert_array_equal(pickle.loads(sent)({"t": TEXTS})["score"], wanted)
    assert len(loads) == 1  # the same process
    txl_tf.BatchPredictor(str(folder / "regression"), {"text": "t"}, batch_size=2)({"t": TEXTS})
    assert len(loads) == 2


def test_a_tagger_finds_words_under_their_usual_names(predictors, folder):
    for words in ("tokens", "Words"):
        found = txl_tf.BatchPredictor(str(folder / "tagging"))({words: [["the", "River"], []]})
        assert [fault is None for fault in found["fault"]] == [True, False]


def test_a_batch_with_faulty_rows_may_be_refused(predictors, folder):
    predictor = txl_tf.BatchPredictor(str(folder / "classification"), on_fault="raise")
    assert list(predictor.schema(["text"])) == ["prediction", "probability"]
    assert list(predictor({"text": ["so"]})) == ["text", "prediction", "probability"]
    with pytest.raises(InputError, match=r"^row 2 of the batch has no text in column 'text'"):
        predictor({"text": ["so", ""]})
    with pytest.raises(FaultsError, match=r"^2 faults in the batch") as error:
        predictor({"text": ["so", "", "the", {"a": 1}]})
    assert [line[:18] for line in error.value.faults] == ["row 2 of the batch", "row 4 of the batch"]


def test_what_cannot_be_is_one_line(predictors, folder, tmp_path):
    tuned, tags = str(folder / "classification"), str(folder / "tagging")
    for make, line in (
        (
            lambda: txl_tf.BatchPredictor(str(tmp_path)).schema(["text"]),
            f"^{tmp_path} holds no model: give a model_dir",
        ),
        (lambda: txl_tf.BatchPredictor(tuned).schema(["message", "n"]), "no column 'text' but 'message', 'n': give"),
        (lambda: txl_tf.BatchPredictor(tuned)({"message": ["so"]}), "^the table has no column 'text' but 'message'"),
        (lambda: txl_tf.BatchPredictor(tags).schema(["message", "n"]), "no column 'text' but 'message', 'n': give"),
        (lambda: txl_tf.BatchPredictor(tags, {"text": "m"})({"Tokens": [["so"]]}), "^the table has no column 'm' but"),
        (lambda: txl_tf.BatchPredictor(tuned, on_fault="skip"), "^on_fault='skip' must be one of 'column', 'raise'"),
        (lambda: txl_tf.BatchPredictor(tuned, batch_size=0), "^batch_size=0"),
        (lambda: txl_tf.BatchPredictor(tuned, ability="score").schema(["text"]), "does not score, but can predict"),
        (lambda: txl_tf.BatchPredictor(tuned, {"txt": "a"}).schema(["text"]), "columns has no 'txt'"),
    ):
        with pytest.raises(InputError, match=line) as error:
            make()
        assert "\n" not in str(error.value)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "saved_model.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(InputError, match=r"broken is damaged \(.*export the model again"):
        txl_tf.BatchPredictor(str(tmp_path / "broken")).schema(["text"])


def test_scores_of_a_language_model_and_their_bits(byte_model, tool):
    tool(byte_model)
    predictor, texts = (
        txl_tf.BatchPredictor("fairy_tales", batch_size=2),
        ["Once upon", "na\u00efve", "so", "the " * 20],
    )
    assert predictor.schema(["text"]) == {"log_prob": "double", "bits_per_byte": "double", "fault": "string"}
    found = predictor({"text": [*texts, "", None]})
    for text, total, bits in zip(texts, found["log_prob"], found["bits_per_byte"], strict=False):
        wanted = byte_model.score(text).total
        assert total == pytest.approx(wanted, rel=1e-5)
        assert bits == pytest.approx(-wanted / np.log(2) / len(text.encode()), rel=1e-5)
    assert np.isnan(found["log_prob"][4:]).all() and list(found["fault"][:4]) == [None] * 4


def test_a_continuation_follows_from_its_row(byte_model, byte_export, tool):
    tool(byte_model)
    texts = ["Once upon", "The king", "Once upon", "A wolf went into the wood and", "so"]
    given = {"ability": "generate", "max_tokens": 12, "temperature": 0.9, "batch_size": 4}
    predictor = txl_tf.BatchPredictor("fairy_tales", **given)
    whole = predictor({"text": texts})["continuation"].tolist()
    alone = [predictor({"text": [text]})["continuation"][0] for text in texts[::-1]][::-1]
    assert whole == alone and whole[0] == whole[2] and len(set(whole)) == 4
    assert txl_tf.BatchPredictor(byte_export, **given)({"text": texts})["continuation"].tolist() == whole
    assert txl_tf.BatchPredictor("fairy_tales", seed=1, **given)({"text": texts})["continuation"].tolist() != whole
    by_id = txl_tf.BatchPredictor("fairy_tales", seed_column="id", **given)
    rows = {"text": np.array(texts, object), "id": np.array([3, 1, 2, 5, 4])}
    drawn = by_id(rows)["continuation"]
    assert drawn[0] != drawn[2]
    back = by_id({name: values[::-1] for name, values in rows.items()})["continuation"][::-1]
    assert back.tolist() == drawn.tolist()
    with pytest.raises(InputError, match="the table has no column 'id' but 'text'"):
        by_id.schema(["text"])


def test_vectors(tmp_path):
    random_xlnet.write_model_dir(tmp_path, random_xlnet.with_prefix(XLNetVocabulary))
    plain = {"loading": {"jit_compile": False}, "batch_size": 3}
    predictor = txl_tf.BatchPredictor(str(tmp_path), ability="encode", pool="mean", **plain)
    found = predictor(pyarrow.table({"text": TEXTS}))
    assert found.schema.field("vector").type == pyarrow.list_(pyarrow.float32())
    wanted = txl_tf.load(str(tmp_path), progress=False, jit_compile=False).encode(TEXTS, pool="mean").pooled
    np.testing.assert_allclose(np.stack(found["vector"].to_pylist()), wanted, rtol=0, atol=1e-5)


def test_a_name_of_the_hub_is_one_commit(tmp_path, monkeypatch):
    with hub_server.running() as hub:
        hub.used_here(monkeypatch, tmp_path / "home")
        monkeypatch.chdir(tmp_path)
        commit = hub.add("own/moves", {"config.json": b"1"})
        predictor = txl_tf.BatchPredictor("own/moves")
        hub.add("own/moves", {"config.json": b"2"})
        assert predictor.model == pickle.loads(pickle.dumps(predictor)).model == f"hf://own/moves@{commit}"
