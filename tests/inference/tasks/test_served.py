"""SavedModels of fine-tuned XLNets in a fresh process that cannot import this package, and the example server."""

import asyncio
import dataclasses
import functools
import itertools
import json
import pathlib

import numpy as np
import processes
import pytest
import replicas
import server
import tensorflow as tf
import tuned_models
from alike import assert_like

import txl_tf
from serving.model import ServedModel
from txl_tf.errors import InputError
from txl_tf.inference.export import export_trained
from txl_tf.inference.tasks.predictor import Predictor
from txl_tf.inference.tasks.served import ServedTask
from txl_tf.tasks.multiple_choice import with_options

pytestmark = pytest.mark.usefixtures("loaded_once")
LABELS = ("bad", "gut \N{LATIN SMALL LETTER U WITH DIAERESIS}ber", "mixed")
PAIRS = [("the River", ""), ("so", "a dash"), ("one so a dash " * 9, ""), ("the so " * 9, "River " * 9)]
OF_PAIRS = dict(zip(("texts", "second"), map(list, zip(*PAIRS, strict=True)), strict=True))
OF_THREE = {name: column[:3] for name, column in OF_PAIRS.items()}
QUESTIONS = [
    {"article": "the River " * n, "question": "which _ is _", "options": ["so", "a \\1 dash"]} for n in (1, 20)
]
ASKED = [
    {"question": "the River", "context": "so one"},
    {
        "question": "one so a dash " * 5,
        "context": "the na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve  1,000, \n River " * 7,
    },
    {"question": "a", "context": "\N{SNOWMAN}"},
    *(
        {"question": "so", "context": " ".join(f"{['dash', 'so', 'one'][i % s]} {i * s}" for i in range(12))}
        for s in (1, 2, 3)
    ),
]
TAGS = ("O", "B-A", "I-A", "B-\N{SNOWMAN}")
TAGGED = ["the River", "", " \n", "the na\u00efve (one), \N{SNOWMAN}\u200b 1,000  so a dash-ed River " * 9, "so one"]
TASKS = {"classification": LABELS, "multi_label": LABELS, "regression": (), "multiple_choice": (), "answering": ()}
TASKS |= {"tagging": TAGS}
SEGMENTS = {"regression": 2, "tagging": 3}  # long texts are read with memory
LENGTHS = {task: sorted({12, 24, 24 * SEGMENTS.get(task, 1)}) for task in TASKS}

CLIENT = """
import sys
sys.modules["txl_tf"] = None  # importing it would fail
import json, numpy as np, tensorflow as tf, tensorflow_text
folder, results, *requests = sys.argv[1:]
found = {}
for line in requests:
    task, signature, inputs = json.loads(line)
    model = tf.saved_model.load(f"{folder}/{task}").signatures
    assert list(model)[0] == signature
    out = model[signature](**{name: tf.constant(value) for name, value in inputs.items()})
    found |= {f"{task}/{name}": value for name, value in out.items()}
np.savez(results, **found)
"""


@pytest.fixture(scope="module")
def predictors(tmp_path_factory):
    folder, strategy = tmp_path_factory.mktemp("tuned"), replicas.one_device()
    for task, labels in TASKS.items():
        tuned_models.write_model_dir(folder / task, task, labels, SEGMENTS.get(task, 1))
    return {task: Predictor.load(str(folder / task), strategy=strategy) for task in TASKS}


@pytest.fixture(scope="module")
def exports(predictors, tmp_path_factory):
    """The folder of the exports, by task."""
    folder = tmp_path_factory.mktemp("exports")
    for task, predictor in predictors.items():
        exported = ServedTask(predictor.trained, lengths=LENGTHS[task], jit_compile=False)
        exported.save(str(folder / task), {"model.json": json.dumps({"step": 0, "words": exported.words()})})
    return folder


@pytest.fixture(scope="module")
def served(exports, tmp_path_factory):
    """The client's results, by task and output."""
    results = tmp_path_factory.mktemp("client") / "results.npz"
    questions = {f"{name}s": [question[name] for question in QUESTIONS] for name in ("article", "question")}
    requests = [
        ("classification", "classify", OF_PAIRS),
        ("multi_label", "label", OF_PAIRS),
        ("regression", "regress", OF_PAIRS),
        ("multiple_choice", "choose", questions | {"options": [question["options"] for question in QUESTIONS]}),
    ]
    asked = {f"{name}s": [one[name] for one in ASKED] for name in ("question", "context")}
    requests.append(("answering", "answer", asked))
    requests.append(("tagging", "tag", {"texts": TAGGED}))
    command = ["-c", CLIENT, exports, results, *map(json.dumps, requests)]
    done = processes.run(command, cwd=results.parent)
    assert done.returncode == 0, done.stderr
    return dict(np.load(results, allow_pickle=True))


def test_classes_equal_the_predictors(predictors, served):
    expected = predictors["classification"].predict(list(PAIRS))
    assert [[name.decode() for name in row] for row in served["classification/classes"]] == [list(LABELS)] * len(PAIRS)
    assert [name.decode() for name in served["classification/labels"]] == [line["label"] for line in expected]
    wanted = [list(line["probabilities"].values()) for line in expected]
    np.testing.assert_allclose(served["classification/probabilities"], wanted, atol=1e-5)
    np.testing.assert_allclose(served["classification/probability"], np.max(wanted, axis=1), atol=1e-5)


def test_labels_equal_the_predictors(predictors, served):
    expected = predictors["multi_label"].predict(list(PAIRS))
    wanted = [list(line["probabilities"].values()) for line in expected]
    np.testing.assert_allclose(served["multi_label/probabilities"], wanted, atol=1e-5)
    given = [[name for name, fits in zip(LABELS, row, strict=True) if fits] for row in served["multi_label/given"]]
    assert given == [line["labels"] for line in expected] and len({len(row) for row in given}) > 1


@pytest.mark.parametrize(
    ("task", "name", "given"),
    [
        ("multi_label", "label", OF_THREE),
        ("classification", "classify", OF_THREE),
        ("regression", "regress", OF_THREE),
        (
            "multiple_choice",
            "choose",
            {"articles": ["so", "a", "the River"], "questions": ["which _"] * 3, "options": [["so", "a dash"]] * 3},
        ),
        ("answering", "answer", {f"{part}s": [one[part] for one in ASKED[:3]] for part in ("question", "context")}),
    ],
)
def test_serving_default_is_the_tasks_signature(exports, task, name, given):
    """As TensorFlow Serving calls it: no name, and every output has a row for each example."""
    model = tf.saved_model.load(str(exports / task))
    inputs = {key: tf.constant(values) for key, values in given.items()}
    found, wanted = (model.signatures[one](**inputs) for one in ("serving_default", name))
    assert set(found) == set(wanted)
    for output, values in found.items():
        assert values.shape[0] == len(next(iter(given.values()))), output
        np.testing.assert_array_equal(values, wanted[output])
    readme = (exports / task / "README.md").read_text()
    assert "Its weights are those after step 0." in readme
    assert f"`serving_default`, which TensorFlow Serving calls if a request names no signature, is {name}." in readme


def test_scores_and_choices_equal_the_predictors(predictors, served):
    predictor = predictors["regression"]
    expected = [line["score"] for line in predictor.predict(list(PAIRS))]
    assert max(len(predictor.trained.vocabulary.encode(text)) for text, _ in PAIRS) > 30
    np.testing.assert_allclose(served["regression/scores"], expected, atol=1e-5)
    expected = predictors["multiple_choice"].predict(QUESTIONS)
    wanted = [line["probabilities"] for line in expected]
    np.testing.assert_allclose(served["multiple_choice/probabilities"], wanted, atol=1e-5)
    assert np.ptp(wanted) > 1e-3
    assert served["multiple_choice/choice"].tolist() == [line["choice"] for line in expected]
    assert [text.decode() for text in served["multiple_choice/option"]] == [line["option"] for line in expected]


def test_answers_equal_the_predictors(predictors, served):
    expected = predictors["answering"].predict(ASKED)
    best = [line["candidates"][0] if line["candidates"] else None for line in expected]
    assert any(one["begin"] > 20 for one in best if one)  # in a later window
    wanted = [(one["text"], one["begin"], one["end"]) if one else ("", -1, -1) for one in best]
    found = [served[f"answering/{name}"].tolist() for name in ("answers", "begin", "end")]
    assert [(text.decode(), *place) for text, *place in zip(*found, strict=True)] == wanted
    probabilities = [one["probability"] if one else 0 for one in best]
    np.testing.assert_allclose(served["answering/probability"], probabilities, atol=1e-5)
    nothing = [line["no_answer_probability"] for line in expected]
    np.testing.assert_allclose(served["answering/no_answer_probability"], nothing, atol=1e-5)


def test_windows_read_in_parts_give_the_answers_of_one_call(exports):
    model, size = tf.saved_model.load(str(exports / "answering")), 4
    signatures = model.signatures
    asked = {f"{name}s": tf.constant([one[name] for one in ASKED]) for name in ("question", "context")}
    count, parts = 1, []
    while len(parts) * size < count:
        begin = len(parts) * size
        found = dict(signatures["answer_part"](**asked, begin=tf.constant(begin), end=tf.constant(begin + size)))
        count = int(tf.reduce_sum(found.pop("windows")))
        parts.append(found)
    assert count > 10
    kept = {name: tf.concat([part[name] for part in parts], axis=0) for name in parts[0]}
    whole, joined = signatures["answer"](**asked), signatures["answer_whole"](**asked, **kept)
    for name, values in whole.items():
        if values.dtype == tf.float32:
            np.testing.assert_allclose(joined[name], values, rtol=0, atol=1e-5)
        else:
            np.testing.assert_array_equal(joined[name], values)


@pytest.mark.parametrize("task", TASKS)
def test_a_table_has_the_predictors_results(predictors, exports, task):
    """BatchPredictor with the export, beside the fields of the model's predictions."""
    rows = {
        "multiple_choice": QUESTIONS,
        "answering": ASKED,
        "tagging": [{"text": text} for text in TAGGED if text.strip()],
    }
    given = rows.get(task, [{"text": text, "text_b": second} for text, second in PAIRS])
    table = {name: [row[name] for row in given] for name in given[0]}
    found = txl_tf.BatchPredictor(str(exports / task), batch_size=2)(table)
    values = [tuple(row.values()) if "text" in row else row for row in given]
    wanted = predictors[task].predict([one[0] if len(one) == 1 else one for one in values])
    for name, (field, kind) in predictors[task].task.adds.items():
        if kind is float:
            np.testing.assert_allclose(found[name], [line[field] for line in wanted], atol=1e-5)
        else:
            assert_like(found[name].tolist(), [line[field] for line in wanted], name, abs=1e-5)
    assert found["fault"].tolist() == [None] * len(given)


def test_tags_of_legal_sequences_equal_the_predictors(predictors):
    """The same model, which gives others if it takes each word by itself; long texts too, and words without pieces."""
    trained = predictors["tagging"].trained
    change = {"eval": {"decoding": "legal"}}
    trained = dataclasses.replace(trained, config=trained.config.replace(**change), labels=("B-A", "I-A", "I-B", "B-B"))
    texts = [text for text in TAGGED if text.strip()]
    lines, alone = Predictor.of(trained).predict(texts), predictors["tagging"].predict(texts)
    found = ServedTask(trained, lengths=(72,), jit_compile=False).signatures()["tag"](tf.constant(texts))
    names = {"O": "B-A", "B-A": "I-A", "I-A": "I-B", TAGS[3]: "B-B"}  # so that the rules forbid much
    assert [[names[tag] for tag in line["tags"]] for line in alone] != [line["tags"] for line in lines]
    for i, line in enumerate(lines):
        tags, count = line["tags"], len(line["tags"])
        assert [tag.decode() for tag in found["tags"][i].numpy()[:count]] == tags
        np.testing.assert_allclose(found["probability"][i][:count], line["probabilities"], atol=1e-5)
        for before, tag in itertools.pairwise(["", *tags]):
            assert tag.startswith("B") or before[2:] == tag[2:], (before, tag)
        assert [kind.decode() for kind in found["entity_labels"][i].numpy() if kind] == [
            one["label"] for one in line["entities"]
        ]


def test_options_stand_in_their_places():
    questions = ["which _ is _", "none", "_", "", "a_"]
    options = ["x_", "\\0", "", "y", "$1"]
    found = [text.decode() for text in with_options(tf.constant(questions), tf.constant(options)).numpy()]
    assert found == [q.replace("_", o) if "_" in q else f"{q} {o}" for q, o in zip(questions, options, strict=True)]


def test_the_readme_names_all_inputs_and_outputs_and_no_gradients_are_written(predictors, exports):
    for task in TASKS:
        assert b"_gradient_op_type" not in (exports / task / "saved_model.pb").read_bytes()
        readme = (pathlib.Path(exports) / task / "README.md").read_text()
        root = tf.saved_model.load(str(exports / task))
        assert readme.startswith(f"# An XLNet for {task.replace('_', ' ')}") and " 24 tokens" in readme
        assert "disable_meta_optimizer" in readme
        assert f'load("{task}")' in readme and ("2 segments" in readme) == (task == "regression")
        for function in root.signatures.values():
            names = {*function.structured_input_signature[1], *function.structured_outputs}
            assert all(f"{name}: " in readme for name in names)
    with pytest.raises(InputError, match="not empty"):
        export_trained(predictors["regression"].trained, str(exports / "regression"))
    with pytest.raises(InputError, match="--mem_len: an XLNet is exported without memory"):
        export_trained(predictors["regression"].trained, "/nowhere", mem_len=3)


@pytest.mark.parametrize("task", TASKS)
def test_the_texts_of_the_first_calls_have_all_lengths(task, predictors, exports):
    """As they are, and beside two short texts and their marks."""
    words = json.loads((exports / task / "model.json").read_text())["words"]
    counts = [len(predictors[task].trained.vocabulary.encode(" ".join(["a"] * count))) for count in words]
    for more in (2, 5):
        assert [min(length for length in LENGTHS[task] if count + more <= length) for count in counts] == LENGTHS[task]


def test_the_server_gets_ready_for_all_lengths_and_numbers_of_texts(exports, monkeypatch):
    called, real = [], ServedModel.__call__

    def recording(model, signature, **tensors):
        texts = tensors["texts"].numpy()
        called.append((len(texts), len(texts[0].split())))
        return real(model, signature, **tensors)

    monkeypatch.setattr(ServedModel, "__call__", recording)
    monkeypatch.setattr(tf.saved_model, "load", tf.saved_model.load.__wrapped__)  # its first calls are to be slow
    folder = exports / "classification"
    words = json.loads((folder / "model.json").read_text())["words"]
    every = [(rows, count) for rows in (1, 2, 4, 8) for count in words]
    with server.started(str(folder), ready_seconds=1e-9) as served:
        call = functools.partial(server.call, served.address)
        assert call("/ready", method="GET") == (503, {"ready": False, "error": "getting ready, 0 of 9"})
        served.run(served.service.warm_up())
        assert called == [(1, 1)] and call("/ready", method="GET") == (200, {"ready": True})

        async def during_and_after_a_request():
            async with served.service.admission.request():
                later = asyncio.create_task(served.service.warm_up_later())
                await asyncio.sleep(0.2)
                assert called == [(1, 1)]
            await later

        served.run(during_and_after_a_request())
        assert called == [(1, 1), *every]
        assert served.service.texts._pace[("classify", 8)] == 8  # compilations do not count as slow calls
    with server.started(str(folder), warm_up=True, ready_seconds=600):
        assert called == [(1, 1), *every] * 2


@pytest.mark.parametrize("task", ["classification", "multi_label", "multiple_choice", "answering", "tagging"])
def test_the_server_answers(task, predictors, exports):
    with server.running(str(exports / task)) as address:
        call = functools.partial(server.call, address)
        if task == "answering":
            columns = {f"{name}s": [one[name] for one in ASKED[:2]] for name in ("question", "context")}
            found = call(f"/v1/models/{task}:predict", {"inputs": columns})[1]["outputs"]
            own = call("/answer", columns)[1]["answers"]
            assert found["answers"] == [one["text"] for one in own]
            assert found["probability"] == pytest.approx([one["probability"] for one in own], rel=1e-4)
        elif task != "multiple_choice":
            rows = [{"texts": a, "second": b} for a, b in PAIRS] if task != "tagging" else TAGGED
            found = call(f"/v1/models/{task}:predict", {"instances": rows})[1]["predictions"]
            root = tf.saved_model.load(str(exports / task)).signatures["serving_default"]
            given = {"texts": TAGGED} if task == "tagging" else OF_PAIRS
            whole = root(**{name: tf.constant(column) for name, column in given.items()})
            for name, values in whole.items():
                values = values.numpy()
                column = np.array([row[name] for row in found])
                if values.dtype == object:
                    assert column.tolist() == np.vectorize(bytes.decode, otypes=[object])(values).tolist()
                else:
                    np.testing.assert_allclose(column, values, rtol=0, atol=1e-4)
        if task == "classification":
            status, answer = call("/classify", OF_PAIRS)
            expected = predictors[task].predict(list(PAIRS))
            assert (status, answer["labels"]) == (200, [line["label"] for line in expected])
            for row, line in zip(answer["probabilities"], expected, strict=True):
                assert row == pytest.approx(line["probabilities"], abs=1e-5)
            assert call("/classify", {"texts": ["the"]})[1]["labels"] == [predictors[task].predict("the")["label"]]
            wrong = [
                ("/classify", {"texts": ["a"], "second": ["b", "c"]}, 400, "give a second text"),
                ("/classify", {"texts": "a"}, 400, "texts must be a list of strings"),
                ("/classify", {"texts": ["a"], "top": 3}, 400, "'top' is not a field of this request"),
                ("/fill", {}, 404, "/fill is for an XLNet: the served model has /classify"),
            ]
        elif task == "multi_label":
            status, answer = call("/label", OF_PAIRS)
            expected = predictors[task].predict(list(PAIRS))
            assert (status, answer["labels"]) == (200, [line["labels"] for line in expected])
            for threshold in (0, 0.5, answer["probabilities"][1][LABELS[0]], 1):
                given = call("/label", OF_PAIRS | {"threshold": threshold})[1]["labels"]
                assert given == [
                    [name for name, value in row.items() if np.float32(value) >= np.float32(threshold)]
                    for row in answer["probabilities"]
                ]
            wrong = [
                ("/label", {"texts": "a"}, 400, "texts must be a list of strings"),
                ("/label", {"texts": ["a"], "threshold": 1.5}, 400, "threshold must be from 0 to 1"),
                ("/label", {"texts": ["a"], "threshold": "0"}, 400, "threshold must be a number"),
                ("/classify", {}, 404, "/classify is for an XLNet for classification"),
            ]
        elif task == "tagging":
            status, answer = call("/tag", {"texts": TAGGED})
            rows = [i for i, text in enumerate(TAGGED) if text.strip()]
            assert (status, len(answer["words"])) == (200, len(TAGGED))
            for i, line in zip(rows, predictors[task].predict([TAGGED[i] for i in rows]), strict=True):
                assert [[word["begin"], word["end"]] for word in answer["words"][i]] == line["places"]
                assert [word["tag"] for word in answer["words"][i]] == line["tags"]
                wanted = [{name: one[name] for name in ("label", "begin", "end")} for one in line["entities"]]
                assert answer["entities"][i] == wanted
            wrong = [("/tag", {"texts": ["a"], "second": ["b"]}, 400, "'second' is not a field of this request")]
        elif task == "answering":
            request = {f"{name}s": [one[name] for one in ASKED[:2]] for name in ("question", "context")}
            status, answer = call("/answer", request)
            each = [call("/answer", {name: [column[i]] for name, column in request.items()})[1] for i in range(2)]
            assert [one["text"] for one in answer["answers"]] == [one["answers"][0]["text"] for one in each]
            expected = [line["candidates"][0] for line in predictors[task].predict(ASKED[:2])]
            assert (status, [one["text"] for one in answer["answers"]]) == (200, [one["text"] for one in expected])
            for one, line in zip(answer["answers"], expected, strict=True):
                assert {name: one[name] for name in line} == line | {
                    "probability": pytest.approx(line["probability"], rel=1e-5)
                }
            wrong = [
                ("/answer", {"questions": ["a"], "contexts": ["b", "c"]}, 400, "give a context for each question"),
                ("/classify", {}, 404, "/classify is for an XLNet for classification"),
            ]
        else:
            request = {f"{name}s": [question[name] for question in QUESTIONS] for name in ("article", "question")}
            options = [question["options"] for question in QUESTIONS]
            status, answer = call("/choose", request | {"options": options})
            expected = predictors[task].predict(QUESTIONS)
            assert (status, answer["choices"]) == (200, [line["choice"] for line in expected])
            np.testing.assert_allclose(answer["probabilities"], [line["probabilities"] for line in expected], atol=1e-5)
            wrong = [
                ("/choose", request | {"options": [["a", "b"], ["c"]]}, 400, "options must be a list of strings"),
                ("/choose", request | {"options": [["a", "b"], ["c", "d", "e"]]}, 400, "the same number of options"),
                ("/choose", request | {"options": [["a", "b"]]}, 400, "give an article and options for each"),
                ("/choose", request, 400, "options must be a list of lists"),
                ("/score", {}, 404, "/score is for a Transformer-XL"),
            ]
        for path, sent, status, reason in wrong:
            found, answer = call(path, sent)
            assert found == status and reason in answer["error"]


def test_tags_are_those_of_the_predictor(served, predictors):
    """Also for texts with several segments or parts, without words, and with signs that have no piece."""
    assert all((served[f"tagging/{name}"][1:3] == b"").all() for name in ("tags", "entity_labels"))
    rows = [i for i, text in enumerate(TAGGED) if text.strip()]
    for i, wanted in zip(rows, predictors["tagging"].predict([TAGGED[i] for i in rows]), strict=True):
        n = len(wanted["tokens"])
        begin, end = served["tagging/begin"][i], served["tagging/end"][i]
        assert np.stack([begin, end], axis=1)[:n].tolist() == wanted["places"]
        assert (end[n:] == -1).all()
        assert [tag.decode() for tag in served["tagging/tags"][i, :n]] == wanted["tags"]
        np.testing.assert_allclose(served["tagging/probability"][i, :n], wanted["probabilities"], rtol=0, atol=1e-5)
        m = len(wanted["entities"])
        found = zip(*(served[f"tagging/entity_{name}"][i, :m] for name in ("labels", "begin", "end")), strict=True)
        own = [(one["label"], one["begin"], one["end"]) for one in wanted["entities"]]
        assert [(label.decode(), int(first), int(last)) for label, first, last in found] == own
        assert (served["tagging/entity_end"][i, m:] == -1).all()
    assert any(served["tagging/entity_end"][i, 1] > 0 for i in rows)
