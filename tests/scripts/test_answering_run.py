"""Fine-tuning for answering questions in the ordinary loop, from files to answers."""

import json

import numpy as np
import pytest
import squad_files
from random_xlnet import with_prefix, write_model_dir
from small_run import KilledError, lines

from txl_tf import families
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.errors import InputError
from txl_tf.finetuner import Finetuner
from txl_tf.inference.tasks.evaluator import TaskReader
from txl_tf.runs.model_dir import load_trained
from txl_tf.training.loop import train

SETTINGS = {
    "data": {"batch_size": 6, "tgt_len": 24, "max_query_len": 6, "doc_stride": 8},
    "eval": {"batch_size": 8, "jit_compile": False, "max_answer_len": 8},
    "model": {"dropout": 0.1, "dropatt": 0.1},
    "train": {
        "train_steps": 6,
        "learning_rate": 5e-3,
        "steps_per_loop": 3,
        "log_steps": 2,
        "save_steps": 2,
        "eval_steps": 3,
        "jit_compile": False,
        "warmup_steps": 0,
    },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A pretrained model_dir, a file for training and one for evaluation."""
    folder = tmp_path_factory.mktemp("answering")
    write_model_dir(folder / "pretrained", with_prefix(XLNetVocabulary), dtype="float64", n_layer=1)
    train_file = squad_files.write(folder / "train.json", 40, seed=1)
    return str(folder / "pretrained"), train_file, squad_files.write(folder / "dev.json", 12, seed=2)


def tuner(files, strategy, **changes):
    settings = {group: values | changes.get(group, {}) for group, values in SETTINGS.items()}
    return Finetuner(files[0], "answering", *files[1:], settings=settings, strategy=strategy)


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """(folder, result) of a run of all steps on two replicas."""
    import replicas

    folder = tmp_path_factory.mktemp("whole")
    return folder, tuner(files, replicas.two_replicas()).run(str(folder))


def test_a_run_reports_squad_s_scores(whole, files):
    result = whole[1]
    assert (result["task"], result["split"], result["total"]) == ("answering", "dev", 12)
    assert result["examples"] > 12  # windows
    assert result["has_ans_total"] + result["no_ans_total"] == 12
    assert 0 <= result["exact"] <= result["best_exact"] <= result["best_f1"] <= 100
    assert np.isfinite([result["best_exact_threshold"], result["best_f1_threshold"], result["loss"]]).all()
    assert result["f1"] <= result["best_f1"]


@pytest.mark.slow
def test_interrupted_on_one_device_it_is_the_run_on_two_replicas(whole, files, tmp_path, one_device):
    """The loop is the common one; this holds the features and the objective to its promise."""

    def kill(progress):
        raise KilledError

    own = tuner(files, one_device)
    with pytest.raises(KilledError):
        train(own.config, own.corpus, str(tmp_path), one_device, lambda model: kill)
    own.run(str(tmp_path))
    for line, other in zip(lines(tmp_path), lines(whole[0]), strict=True):
        np.testing.assert_allclose(line["loss"], other["loss"], rtol=1e-9)
        np.testing.assert_allclose(line["grad_norm"], other["grad_norm"], rtol=1e-9)
    for line, other in zip(lines(tmp_path, "evaluations.jsonl"), lines(whole[0], "evaluations.jsonl"), strict=True):
        assert line["metrics"] == pytest.approx(other["metrics"])


def test_windows_cut_to_their_length_give_the_same_answers(whole, files, one_device, monkeypatch):
    own = tuner(files, one_device)
    model = load_trained(str(whole[0])).model
    reader = TaskReader(own.config, model, one_device)
    cut = reader.outputs(reader.arranged(own.corpus.dev))
    monkeypatch.setattr("txl_tf.tasks.settings.bucket_lengths", lambda t_len: (t_len,))
    reader = TaskReader(own.config, model, one_device)
    full = reader.outputs(reader.arranged(own.corpus.dev))
    assert len({*own.corpus.dev.lengths()}) > 3
    np.testing.assert_array_equal(cut["start"], full["start"])
    np.testing.assert_allclose(cut["end_log_prob"][:, 0, 0], full["end_log_prob"][:, 0, 0], rtol=1e-9)
    np.testing.assert_allclose(cut["impossible"], full["impossible"], rtol=1e-9)
    answered = [own.corpus.dev.answered(outputs) for outputs in (cut, full)]
    assert [[one.text for one in each] for each in answered] == [[one.text for one in answered[0]]] * 2
    assert [one.id for one in answered[0]] == [reading.question.id for reading in own.corpus.dev.readings()]


@pytest.mark.parametrize("answer_head", ["conditioned", "simple"])
def test_it_learns(files, tmp_path, one_device, answer_head):
    """The answers to its own training file."""
    steps = {"train_steps": 300, "steps_per_loop": 100, "log_steps": 100, "eval_steps": 300, "save_steps": 300}
    own, model = (files[0], files[1], files[1]), {"dropout": 0.0, "dropatt": 0.0, "answer_head": answer_head}
    result = tuner(own, one_device, train=steps, model=model).run(str(tmp_path))
    least = {"conditioned": 95, "simple": 90}[answer_head]
    assert result["exact"] > least and result["best_f1"] >= result["f1"] >= result["exact"]


def test_answers_that_are_misplaced_are_said_and_not_learned(files, tmp_path, one_device, capsys):
    with open(files[1]) as file:
        content = json.load(file)
    first = content["data"][0]["paragraphs"][1]
    for asked in first["qas"]:
        asked["answers"][0]["answer_start"] += 1
    (tmp_path / "train.json").write_text(json.dumps(content))
    own = tuner((files[0], str(tmp_path / "train.json"), files[2]), one_device)
    learned = own.corpus.train.features["learned"]
    readings = own.corpus.train.readings()
    assert not learned.all()
    lost = {reading.question.id for reading in readings if reading.answer is None and reading.question.answers}
    assert lost == {asked["id"] for asked in first["qas"]}
    assert (~learned).sum() == sum(len(reading.windows) for reading in readings if reading.question.id in lost)
    assert own.corpus.train.remarks[0].startswith("2 answers are not where the file says, such as data[0].parag")


def test_where_nothing_can_be_learned_it_is_said_and_answers_are_found_by_their_text(files, tmp_path, one_device):
    """Two questions whose answers are misplaced, one of a text that stands twice, and one in its place."""
    context = "the River 11 the River 22 dash 22 End"
    asked = [
        {"id": str(i), "question": "the River?", "answers": [{"text": text, "answer_start": start}]}
        for i, (text, start) in enumerate([("11", 3), ("22", 3)])
    ]
    path = tmp_path / "train.json"

    def written(questions):
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
        return (files[0], str(path), files[2])

    with pytest.raises(InputError, match=r"train\.json: no answer is where .*or give --find_answers"):
        tuner(written(asked), one_device)
    right = {"id": "2", "question": "one River?", "answers": [{"text": "11", "answer_start": 10}]}
    own = tuner(written([*asked, right]), one_device, data={"find_answers": True, "batch_size": 1})
    assert own.corpus.train.remarks[0] == "1 misplaced answer was found by its text"
    assert own.corpus.train.remarks[1].startswith("1 answer is not where")
    readings = own.corpus.train.readings()
    assert [reading.answer is not None for reading in readings] == [True, False, True]
    assert readings[0].answer == readings[2].answer
    windows = len(readings[0].windows)
    assert own.corpus.train.learned == 2 * windows and own.config.train.warmup_steps == 0
    data = families.task_of(own.config).training_data(own.corpus, own.config)
    assert data.epoch_steps == 2 * windows
    assert all(batch["learned"][0] and batch["weight"][0] == 1 for batch in data.batches(0).take(2 * windows))


def test_a_file_holds_the_same_examples(files, tmp_path, one_device, monkeypatch):
    monkeypatch.setattr("txl_tf.data.examples.example_set.SMALL", 5)
    settings = SETTINGS | {"train": SETTINGS["train"]}
    made = [
        Finetuner(files[0], "answering", *files[1:], settings=settings, strategy=one_device, examples_dir=folder).corpus
        for folder in (None, str(tmp_path), str(tmp_path))
    ]
    assert (tmp_path / "train.npz").exists()
    assert made[0].fingerprint == made[1].fingerprint == made[2].fingerprint
    assert [one.question.id for one in made[2].dev.readings()] == [one.question.id for one in made[0].dev.readings()]


def test_a_vocabulary_of_bytes_has_no_separator(files, tmp_path, one_device):
    from txl_tf.data.vocabularies import ByteVocabulary

    write_model_dir(tmp_path / "bytes", ByteVocabulary())
    with pytest.raises(InputError, match="has no separator token"):
        Finetuner(str(tmp_path / "bytes"), "answering", *files[1:], strategy=one_device)
