"""Predictor and scripts/predict.py: what they say is what the model says of each input alone, without padding."""

import csv
import json
import pathlib
import shutil

import numpy as np
import pandas
import processes
import pytest
import replicas
import tensorflow as tf
import tuned_models

import txl_tf
from txl_tf.data.examples.example_set import ExampleSet
from txl_tf.data.examples.layout import lay_out
from txl_tf.data.tables.columns import Columns
from txl_tf.data.tables.results import as_columns
from txl_tf.errors import InputError
from txl_tf.inference.tasks.evaluator import no_better
from txl_tf.inference.tasks.predictor import Predictor
from txl_tf.metrics import labelling
from txl_tf.runs import checkpoints
from txl_tf.runs.model_card import describe_model
from txl_tf.runs.model_dir import load_trained, read_weights

ROOT = pathlib.Path(__file__).parents[3]
LABELS = ("bad", "good", "mixed")
TEXTS = ["the River", ("so", "a dash"), "the", "one so a dash " * 9, ("the River one", "the so " * 9), "a"]
QUESTIONS = [
    {"article": "the River " * n, "question": "which _ is one", "options": ["so", "a dash", "the"]} for n in (1, 9, 2)
]
ASKED = [{"question": "the River", "context": text} for text in ("so one", "one  so a dash River " * 6)]
ASKED.append({"question": "the River " * 9, "context": "so one"})
TASKS = {"classification": LABELS, "multi_label": LABELS, "regression": (), "multiple_choice": (), "answering": ()}


@pytest.fixture(scope="module")
def model_dirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    for task, labels in TASKS.items():
        tuned_models.write_model_dir(folder / task, task, labels)
    return folder


@pytest.fixture(scope="module")
def predictors(model_dirs):
    strategy = replicas.one_device()
    return {task: Predictor.load(str(model_dirs / task), strategy=strategy) for task in TASKS}


def logits(predictor, first, second):
    """The model's outputs for one text or pair, in a batch of its own, without padding."""
    t_len = predictor.config.data.tgt_len
    ids, segments = lay_out(predictor.trained.vocabulary, tf.constant([first]), tf.constant([second]), t_len)
    return predictor.trained.model(ids.to_tensor(), segments=segments.to_tensor()).numpy()[0]


def test_labels_are_those_of_each_text_alone(predictors):
    predictor = predictors["multi_label"]
    for text, prediction in zip(TEXTS, predictor.predict(TEXTS), strict=True):
        alone = 1 / (1 + np.exp(-logits(predictor, *pair(text)).astype(np.float64)))
        np.testing.assert_allclose(list(prediction["probabilities"].values()), alone, atol=1e-5)
        assert prediction["labels"] == [name for name, fits in zip(LABELS, alone >= 0.5, strict=True) if fits]


def test_unsure_are_those_below_a_probability(predictors):
    predictor = predictors["classification"]
    sure = [prediction["probability"] for prediction in predictor.predict(TEXTS)]
    bound = sorted(sure)[2]
    found = predictor.predict(TEXTS, unsure_below=bound)
    assert [prediction["unsure"] for prediction in found] == [one < bound for one in sure] and max(sure) > bound
    assert list(as_columns(found[0])) == ["prediction", "probability", "unsure"]
    with pytest.raises(InputError, match=r"unsure_below=80 must be above 0 and at most 1"):
        predictor.predict(TEXTS, unsure_below=80)
    with pytest.raises(InputError, match="those of regression have none: omit it"):
        predictors["regression"].predict(TEXTS, unsure_below=0.8)


def choice_logit(predictor, article, text):
    """The model's output for an article and a question with one option; the article is cut to fit."""
    vocabulary, t_len = predictor.trained.vocabulary, predictor.config.data.tgt_len
    second = vocabulary.encode(text).tolist()
    first = vocabulary.encode(article).tolist()[: t_len - 3 - len(second)]
    sep, cls = (vocabulary.special_token(name) for name in ("sep", "cls"))
    segments = [0] * (len(first) + 1) + [1] * (len(second) + 1) + [2]
    tokens = tf.constant([[*first, sep, *second, sep, cls]])
    return predictor.trained.model(tokens, segments=tf.constant([segments])).numpy()[0, 0]


def softmax(values):
    exponents = np.exp(np.asarray(values, np.float64) - np.max(values))
    return exponents / exponents.sum()


def pair(text):
    return (text, "") if isinstance(text, str) else text


def test_classes_are_those_of_each_text_alone(predictors):
    predictor = predictors["classification"]
    found = predictor.predict(TEXTS)
    for text, prediction in zip(TEXTS, found, strict=True):
        wanted = softmax(logits(predictor, *pair(text)))
        assert list(prediction["probabilities"]) == list(LABELS)
        np.testing.assert_allclose(list(prediction["probabilities"].values()), wanted, atol=1e-6)
        assert prediction["label"] == LABELS[wanted.argmax()]
        assert prediction["probability"] == pytest.approx(wanted.max(), abs=1e-6)
    assert len({prediction["label"] for prediction in found}) > 1
    assert predictor.predict(TEXTS[1])["label"] == found[1]["label"] and predictor.predict([]) == []


def test_scores_and_choices_are_those_of_each_text_alone(predictors):
    predictor = predictors["regression"]
    for text, prediction in zip(TEXTS, predictor.predict(TEXTS), strict=True):
        score = float(logits(predictor, *pair(text))[0])
        assert prediction == {"score": pytest.approx(score, abs=1e-5), "step": 0}
    predictor = predictors["multiple_choice"]
    for question, prediction in zip(QUESTIONS, predictor.predict(QUESTIONS), strict=True):
        texts = [question["question"].replace("_", option) for option in question["options"]]
        wanted = softmax([choice_logit(predictor, question["article"], text) for text in texts])
        np.testing.assert_allclose(prediction["probabilities"], wanted, atol=1e-6)
        assert prediction["choice"] == np.argmax(prediction["probabilities"])
        assert prediction["option"] == question["options"][prediction["choice"]]


def test_answers_stand_in_their_contexts(predictors, model_dirs, tmp_path):
    """In one window the answer is the likeliest of all starts and ends by the model itself; and files say the same."""
    predictor = predictors["answering"]
    found = predictor.predict(ASKED)
    for asked, line in zip(ASKED, found, strict=True):
        assert line["answer"] in ("", line["candidates"][0]["text"])
        for one in line["candidates"]:
            assert asked["context"][one["begin"] : one["end"]] == one["text"] != ""
    vocabulary, model = predictor.trained.vocabulary, predictor.trained.model
    first, second = vocabulary.encode("so one").tolist(), vocabulary.encode("the River").tolist()
    sep, cls = (vocabulary.special_token(name) for name in ("sep", "cls"))
    tokens = tf.constant([[*first, sep, *second, sep, cls]])
    segments = tf.constant([[0] * (len(first) + 1) + [1] * (len(second) + 1) + [2]])
    allowed = tf.constant([[True] * len(first) + [False] * (len(second) + 2) + [True]])
    best, n = -1.0, tokens.shape[1]
    for start in range(len(first)):
        logits = model(tokens, allowed, tf.constant([n - 1]), tf.constant([start]), segments=segments)
        starts, ends = softmax(logits.start[0]), softmax(logits.end[0])
        best = max(best, *(starts[start] * ends[end] for end in range(start, len(first))))
    assert found[0]["candidates"][0]["probability"] == pytest.approx(best, rel=1e-4)
    none = 1 / (1 + np.exp(-float(logits.impossible[0])))
    assert found[0]["no_answer_probability"] == pytest.approx(none, rel=1e-4)
    assert (found[0]["answer"] == "") == (none > 0.5)
    questions = [
        {"context": asked["context"], "qas": [{"id": str(i), "question": asked["question"]}]}
        for i, asked in enumerate(ASKED, 1)
    ]
    (tmp_path / "q.json").write_text(json.dumps({"data": [{"paragraphs": questions}]}))
    assert predictor.predict_file(str(tmp_path / "q.json")).predictions == found
    done = run(
        f"--model_dir={model_dirs}/answering",
        f"--input={tmp_path}/q.json",
        f"--squad_dir={tmp_path}",
        f"--output={tmp_path}/o",
    )
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert f"{tmp_path}/q.json: 1 of 3 questions (33.3%) is cut at 6 tokens (max_query_len)" in done.stderr.splitlines()
    lines = [json.loads(line) for line in (tmp_path / "o").read_text().splitlines()]
    answers = {line["id"]: line["answer"] for line in found}
    assert {line["id"]: line["answer"] for line in lines} == answers
    assert json.loads((tmp_path / "predictions.json").read_text()) == answers
    # The threshold is that of dev, if it is known.
    other = Predictor(predictor.trained, strategy=replicas.one_device())
    for dev, all_answered, none_answered in (
        ({"f1": 1.0}, True, False),
        ({"best_f1_threshold": -1e9}, False, True),
        ({"best_f1_threshold": 1e9}, True, False),
    ):
        other.dev = dev
        lines = other.predict(ASKED)
        assert [all(line["answer"] for line in lines), not any(line["answer"] for line in lines)] == [
            all_answered,
            none_answered,
        ]


def test_padding_is_not_computed(predictors, monkeypatch):
    """Each batch is about as long as its longest text, and few inputs make small batches."""
    predictor, sizes = predictors["classification"], []
    read = predictor._reader.arranged

    def watched(examples):
        data = read(examples)
        sizes.extend((length, len(rows), rows.shape[1]) for length, rows in data.groups.items())
        return data

    monkeypatch.setattr(predictor._reader, "arranged", watched)
    predictor.predict(["the"] * 4 + ["the " * 40] * 4)
    predictor.predict(["the"])
    assert sizes == [(3, 1, 4), (24, 1, 4), (3, 1, 1)]
    assert predictor.config.lengths() == (3, 6, 9, 12, 18, 24)


def run(*flags):
    return processes.run(["scripts/predict.py", *flags], cwd=ROOT)


def test_the_script_writes_a_line_an_input_and_metrics(predictors, model_dirs, tmp_path):
    table = tmp_path / "table.tsv"
    labels = [LABELS[i % 3] for i in range(len(TEXTS))]
    rows = ["\t".join((*pair(text), label)) for text, label in zip(TEXTS, labels, strict=True)]
    table.write_text("\n".join(["text\ttext_b\tlabel", *rows]) + "\n")
    flags = [f"--model_dir={model_dirs}/classification", f"--input={table}"]
    done = run(*flags, "--metrics", "--batch_size=3")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = predictors["classification"].predict(TEXTS)
    for line, prediction in zip(lines, wanted, strict=True):
        assert line["label"] == prediction["label"]
        assert line["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-6)
    understood, said, last = done.stderr.splitlines()
    assert understood == f"{table}: TSV, text in 'text', second text in 'text_b', label in 'label': 6 rows, 3 classes"
    assert said == f"{table}: 2 of 6 (33.3%) are cut at 24 tokens (tgt_len)"
    result = json.loads(last)
    card = describe_model(f"{model_dirs}/classification", [result]).text
    assert "\n| table | " in card and "no result on test data" not in card
    right = np.array([LABELS.index(label) for label in labels])
    log_probs = np.log([[*line["probabilities"].values()] for line in lines])
    measures = labelling.accuracy, labelling.macro_f1, labelling.matthews
    assert result | {"loss": 0} == {
        "task": "classification",
        "split": "table",
        "step": 0,
        "weights": "last",
        "examples": 6,
        "loss": 0,
        **{measure.__name__: measure(right, log_probs.argmax(axis=1)) for measure in measures},
    }
    assert result["loss"] == pytest.approx(-log_probs[range(6), right].mean(), abs=1e-6)


def test_a_table_comes_back_with_predictions(predictors, model_dirs, tmp_path):
    """Its columns are known from the model_dir; flags come first."""
    folder = tmp_path / "model"
    shutil.copytree(model_dirs / "classification", folder)
    learned = Columns("message", label_column="team")
    (folder / "columns.json").write_text(json.dumps(learned.names))
    (tmp_path / "t.csv").write_text("id;message;x\n1;the;a\n;;\n2;so one;b\n")
    flags = [f"--model_dir={folder}", f"--input={tmp_path}/t.csv"]
    done = run(*flags, f"--output={tmp_path}/o.csv", "--all_probabilities")
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader((tmp_path / "o.csv").read_text().splitlines(), delimiter=";"))
    assert rows[0] == ["id", "message", "x", "prediction", "probability", *(f"probability {name}" for name in LABELS)]
    wanted = predictors["classification"].predict(["the", "so one"])
    for row, line, one in zip((rows[1], rows[3]), ("1;the;a", "2;so one;b"), wanted, strict=True):
        assert row[:4] == [*line.split(";"), one["label"]]
        numbers = [one["probability"], *one["probabilities"].values()]
        np.testing.assert_allclose(np.array(row[4:], float), numbers, rtol=1e-5)
    assert set(rows[2]) == {""}
    (tmp_path / "t.jsonl").write_text('{"text": "the", "team": "x"}\n')
    flags = [f"--model_dir={folder}", f"--input={tmp_path}/t.jsonl"]
    done = run(*flags)
    assert done.returncode and "no column 'message' but 'text', 'team'" in done.stderr
    done = run(*flags, "--text_column=text", f"--output={tmp_path}/o.jsonl")
    line = json.loads((tmp_path / "o.jsonl").read_text())
    assert line == {"text": "the", "team": "x"} | {
        "prediction": wanted[0]["label"],
        "probability": pytest.approx(wanted[0]["probability"], rel=1e-5),
    }
    done = run(*flags, "--all_probabilities")
    assert done.returncode and done.stderr.endswith(
        "--all_probabilities needs a table as --output: the lines of JSON have them\n"
    )


IN_ROWS = {
    "answering": (
        [{"question": "the", "context": "so the one"}, {"question": "so", "context": "the one so"}],
        "answer",
    ),
    "multiple_choice": (
        [{"article": "the one", "question": f"{word} _", "options": ["so", "the"]} for word in ("so", "the")],
        "option",
    ),
}


@pytest.mark.parametrize("task", IN_ROWS)
def test_questions_with_a_row_each_get_columns(task, model_dirs, tmp_path):
    rows, field = IN_ROWS[task]
    model = txl_tf.load(str(model_dirs / task), progress=False)
    wanted = [(one[field], pytest.approx(one["probability"], rel=1e-5)) for one in model.predict(rows)]
    frame = model.predict(pandas.DataFrame(rows))
    assert list(frame.columns) == [*rows[0], "prediction", "probability"]
    assert list(zip(frame["prediction"], frame["probability"], strict=True)) == wanted
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [f"--model_dir={model_dirs}/{task}", f"--input={tmp_path}/q.jsonl", "--unsure_below=1"]
    assert run(*flags, f"--output={tmp_path}/x.csv").returncode == 0
    header, *found = csv.reader((tmp_path / "x.csv").read_text().splitlines())
    assert header == [*rows[0], "prediction", "probability", "unsure"]
    assert [(row[-3], float(row[-2])) for row in found] == wanted and {row[-1] for row in found} == {"True"}


def test_articles_with_several_questions_get_no_columns(model_dirs, tmp_path):
    qas = [{"id": str(i), "question": "the", "answers": []} for i in range(2)]
    articles = {
        "answering": {"data": [{"title": "", "paragraphs": [{"context": "so the one", "qas": qas}]}]},
        "multiple_choice": {"article": "the", "questions": ["so", "_"], "options": [["so", "the"]] * 2},
    }
    for task, content in articles.items():
        (tmp_path / "q.json").write_text(json.dumps(content))
        flags = [f"--model_dir={model_dirs}/{task}", f"--input={tmp_path}/q.json"]
        done = run(*flags, f"--output={tmp_path}/x.csv")
        assert (
            done.returncode and "q.json has no row for each prediction: give a name that ends in .jsonl" in done.stderr
        )
    with pytest.raises(InputError, match="the table has no row for each prediction: give a row for each question"):
        txl_tf.load(str(model_dirs / task), progress=False).predict(pandas.DataFrame([articles[task]]))


def test_labels_of_a_table_have_the_separator_that_was_learned(predictors, model_dirs, tmp_path):
    shutil.copytree(model_dirs / "multi_label", tmp_path / "run")
    (tmp_path / "run" / "columns.json").write_text(json.dumps(Columns(label_separator=";").names))
    best = {"step": 0, "loss": 1.0, "error": 0.1, "metrics": {"threshold": 0.0}}
    (tmp_path / "run" / "evaluations.jsonl").write_text(json.dumps(best) + "\n")
    (tmp_path / "t.csv").write_text(f"text,label\nthe River,{LABELS[0]};{LABELS[1]}\n")
    done = run(f"--model_dir={tmp_path}/run", f"--input={tmp_path}/t.csv", f"--output={tmp_path}/x.csv", "--metrics")
    assert done.returncode == 0 and json.loads(done.stderr.splitlines()[-1])["threshold"] == 0
    row = list(csv.reader((tmp_path / "x.csv").read_text().splitlines()))[1]
    assert row == ["the River", f"{LABELS[0]};{LABELS[1]}", ";".join(LABELS)]
    missing = "has no result on dev at step 0: a text gets the labels whose probability is at least 0.5"
    assert missing not in done.stderr
    (tmp_path / "run" / "evaluations.jsonl").unlink()
    done = run(f"--model_dir={tmp_path}/run", f"--input={tmp_path}/t.csv")
    assert done.returncode == 0 and f"{tmp_path}/run {missing}\n" in done.stderr


def test_the_checkpoint_that_was_best_on_dev_answers(tmp_path, capsys):
    """It is step 0; step 2, the newest, has a head of its own. Without evaluations the newest does, as is said."""
    tuned_models.write_model_dir(tmp_path, "regression")
    trained = load_trained(str(tmp_path))
    head = trained.model.trainable_variables[-1]
    head.assign(head + 100)
    weights = tf.train.Checkpoint(model=checkpoints.variables_by_path(trained.model))
    weights.write(checkpoints.checkpoint_path(str(tmp_path), 2))
    (tmp_path / "t.tsv").write_text("text\nthe River\n")
    flags = [f"--model_dir={tmp_path}", f"--input={tmp_path}/t.tsv"]
    done = run(*flags)
    said = "no checkpoint was evaluated on dev, so the newest is used, step 2"
    assert done.returncode == 0 and said in done.stderr and json.loads(done.stdout)["score"] > 50
    assert json.loads(done.stdout)["step"] == 2
    lines = [{"step": step, "loss": 1.0, "error": error, "metrics": {}} for step, error in ((0, 0.1), (2, 0.3))]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run(*flags)
    assert json.loads(done.stdout)["score"] < 50 and json.loads(done.stdout)["step"] == 0
    assert done.stderr.splitlines()[1:] == [f"predicted with step 0 of {tmp_path}"]
    assert "those after 0, the best on dev" in describe_model(str(tmp_path)).text
    assert txl_tf.load(str(tmp_path)).trained.step == 0
    read_weights(str(tmp_path), checkpoints.variables_by_path(trained.model))  # as a warm start does
    assert capsys.readouterr().out == f"{tmp_path}: taking its weights of step 0, the best on dev\n"
    assert head.numpy().max() < 50
    assert Predictor.load(str(tmp_path), "latest", strategy=replicas.one_device()).trained.step == 2
    done = run(*flags, f"--output={tmp_path}/x.TSV")
    assert done.returncode == 0 and (tmp_path / "x.TSV").read_text().startswith("text\tprediction\nthe River\t")


def test_predictions_that_are_alike_or_no_better_than_the_most_frequent_class_are_said(predictors, tmp_path, capsys):
    """With labels, or from ten inputs on; what to try follows from the run's number of updates."""
    predictor = predictors["classification"]
    (label,) = {line["label"] for line in predictor.predict(["the"])}
    other = next(name for name in LABELS if name != label)
    file = tmp_path / "t.tsv"

    def doubt(labels, labelled=True):
        file.write_text("text\tlabel\n" + "".join(f"the\t{name}\n" for name in labels))
        return predictor.predict_file(str(file), labelled=labelled).doubt

    remedy = "if this is wrong, fine-tune with another seed, a lower learning_rate, more warmup_steps or larger batches"
    alike = "examples are predicted to be of one class"
    assert doubt([label, other]) == f"{file}: all 2 {alike}; {remedy}"
    assert doubt([label] * 10, labelled=False) == f"{file}: all 10 {alike}; {remedy}"
    assert doubt([label] * 9, labelled=False) is None
    assert doubt([label] * 3) is None  # they are right
    said = doubt([label, other])
    done = run(f"--model_dir={predictor.trained.model_dir}", f"--input={file}", "--metrics")
    repeated = f"{file}: 1 row repeats the text before with another label (line 3): give each text one label"
    assert done.stderr.splitlines()[1:3] == [repeated, said]
    txl_tf.load(predictor.trained.model_dir, progress=False).evaluate(str(file))
    assert capsys.readouterr().err.splitlines() == [said]
    labels = ExampleSet({"label": np.array([0, 0, 1])}, {})
    wanted = "an accuracy of 0.6000 on x is no better than always giving the most frequent class (0.6667)"
    assert no_better(predictor.task, {"accuracy": 0.6}, labels, "x") == wanted
    assert no_better(predictor.task, {"accuracy": 0.7}, labels, "x") is None


def test_labels_are_ignored_unless_they_are_compared(predictors, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "the", "label": "new"}\n{"text": "so"}\n')
    predictor, path = predictors["classification"], str(tmp_path / "t.jsonl")
    assert [line["label"] for line in predictor.predict_file(path).predictions] == [
        line["label"] for line in predictor.predict(["the", "so"])
    ]
    with pytest.raises(InputError, match="line 2 has no column 'label'"):
        predictor.predict_file(path, labelled=True)
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(json.dumps(question | {"answer": "B"}) + "\n" for question in QUESTIONS))
    predictor = predictors["multiple_choice"]
    found = predictor.predict_file(str(questions), labelled=True)
    assert found.predictions == predictor.predict(QUESTIONS)
    assert found.metrics["metrics"]["accuracy"] == np.mean([one["choice"] == 1 for one in found.predictions])


def test_wrong_inputs_are_one_line(predictors, tmp_path):
    with pytest.raises(InputError, match="text 2 must be a text or a pair of texts, and not empty; it is '3'"):
        predictors["regression"].predict(["a", 3])
    with pytest.raises(InputError, match="question 1 must be a dict with the texts question and context"):
        predictors["answering"].predict([{"question": "a"}])
    with pytest.raises(InputError, match="question 1 has no list of two or more texts as 'options'"):
        predictors["multiple_choice"].predict([{"article": "a", "question": "b"}])
    (tmp_path / "t.tsv").write_text("text\tlabel\nthe\tmany\n")
    with pytest.raises(InputError, match=r"t\.tsv, line 2 has the label 'many', which is not a finite number"):
        predictors["regression"].predict_file(str(tmp_path / "t.tsv"), labelled=True)
    other = ROOT / "tests" / "model_dir_ce09e14" / "plain"
    with pytest.raises(InputError, match=r"holds a model that is not fine-tuned .its task is causal_lm.*finetune\.py"):
        Predictor.load(str(other))
