"""Fine-tuning in the ordinary loop: replicas, resuming, averages, warm starts, evaluation, several seeds."""

import dataclasses
import json
import pathlib
import re
import types

import numpy as np
import processes
import pytest
import random_xlnet
from small_run import KilledError, change, lines

import txl_tf
from txl_tf import families, finetuner
from txl_tf.data.examples.batches import TrainingExamples
from txl_tf.data.tables.frames import table_of
from txl_tf.errors import InputError
from txl_tf.finetuner import Finetuner
from txl_tf.inference.tasks.evaluator import TaskReader, task_result
from txl_tf.runs import model_dir as model_dirs
from txl_tf.runs.checkpoints import variables_by_path
from txl_tf.runs.model_card import describe_model
from txl_tf.settings.run import TrainConfig
from txl_tf.tasks.classification import XLNetClassificationConfig
from txl_tf.training.loop import train
from txl_tf.training.optimizer.weight_rules import weight_rules

ROOT = pathlib.Path(__file__).parents[1]
WORDS = ("the", "River", "one", "dash", "so", "a")
TRAIN = {
    "train_steps": 6,
    "warmup_steps": 1,
    "learning_rate": 1e-2,
    "steps_per_loop": 5,
    "log_steps": 1,
    "save_steps": 2,
    "eval_steps": 3,
    "jit_compile": False,
}
SETTINGS = {
    "data": {"batch_size": 4, "tgt_len": 16},
    "train": TRAIN,
    "eval": {"batch_size": 10, "jit_compile": False},
    "model": {"dropout": 0.1, "dropatt": 0.1, "summary_dropout": 0.1},
}


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    """A model_dir with a small XLNet in float64."""
    folder = tmp_path_factory.mktemp("init")
    random_xlnet.write_model_dir(folder, random_xlnet.with_prefix(), dtype="float64", n_layer=1)
    return str(folder)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A table for each of four tasks: 10 examples, so that epochs end in a short
    batch. The first word decides."""
    folder, draw = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS[2:], draw.integers(1, 9))) for _ in range(10)]
    rows = [(f"{WORDS[i % 2]} {text}", text, i % 2) for i, text in enumerate(texts)]
    (folder / "classes.tsv").write_text("text\tlabel\n" + "".join(f"{a}\t{('no', 'yes')[y]}\n" for a, _, y in rows))
    (folder / "sets.tsv").write_text("text\tlabel\n" + "".join(f"{a}\t{('no|it', 'yes', '')[y]}\n" for a, _, y in rows))
    (folder / "scores.tsv").write_text("text\ttext_b\tlabel\n" + "".join(f"{a}\t{b}\t{y + 0.5}\n" for a, b, y in rows))
    options = [{"article": a, "question": "which _", "options": list(WORDS[:3]), "answer": y} for a, _, y in rows]
    (folder / "choices.jsonl").write_text("".join(json.dumps(option) + "\n" for option in options))
    return folder


FILES = {
    "classification": "classes.tsv",
    "multi_label": "sets.tsv",
    "regression": "scores.tsv",
    "multiple_choice": "choices.jsonl",
}


def make_tuner(task, init, tables, strategy, **settings):
    file = str(tables / FILES[task])
    merged = {group: SETTINGS.get(group, {}) | settings.get(group, {}) for group in SETTINGS | settings}
    return Finetuner(init, task, file, file, settings=merged, strategy=strategy)


@pytest.fixture(scope="module")
def tuner(init, tables):
    import replicas

    return make_tuner("classification", init, tables, replicas.one_device())


def evaluator(config, corpus, strategy):
    return lambda model: evaluation(config, model, corpus.dev, strategy)


def evaluation(config, model, examples, strategy):
    """A function that evaluates a model, as the Finetuner does."""
    task, reader = families.task_of(config), TaskReader(config, model, strategy)
    data = reader.arranged(examples)
    return lambda progress=None: task_result(task, task.results(reader.outputs(data, progress), examples), {})


@pytest.fixture(scope="module")
def whole(tuner, tmp_path_factory):
    """(folder, result) of a run of all steps with the Finetuner."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, tuner.run(str(folder))


def weights(model):
    return model.get_weights()


def assert_same(model, other, **tolerance):
    for mine, theirs in zip(weights(model), weights(other), strict=True):
        np.testing.assert_allclose(mine, theirs, **tolerance) if tolerance else np.testing.assert_array_equal(
            mine, theirs
        )


def test_resumed_equals_uninterrupted(tuner, tmp_path, one_device):
    """Bit for bit: orders, dropout, moments and the averages, across an epoch's end."""
    # Compiled: TensorFlow's AddN begins with the gradient whose memory is free first, so its last bit may vary.
    config, corpus = change(tuner.config, train={"jit_compile": True}), tuner.corpus
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"

    def killed(progress):
        raise KilledError

    expected = train(config, corpus, str(uninterrupted), one_device, evaluator(config, corpus, one_device))
    with pytest.raises(KilledError):  # at step 3; the last save was at 2
        train(config, corpus, str(interrupted), one_device, lambda model: killed)
    assert [line["step"] for line in lines(interrupted)] == [1, 2, 3]
    resumed = train(config, corpus, str(interrupted), one_device, evaluator(config, corpus, one_device))
    assert lines(interrupted) == lines(uninterrupted) and lines(interrupted)[-1]["epoch"] == 2
    assert lines(interrupted, "evaluations.jsonl") == lines(uninterrupted, "evaluations.jsonl")
    assert_same(resumed, expected)


def test_a_run_that_has_ended_gives_its_result_again(tuner, whole):
    assert tuner.run(str(whole[0])) == whole[1]


def test_frozen_weights_are_those_of_the_pretrained_model(init, tables, tmp_path):
    files = [f"--{name}={tables}/classes.tsv" for name in ("train", "dev")]
    short = ["--train_steps=3", "--batch_size=4", "--tgt_len=16", "--learning_rate=0.01", "--nojit_compile"]
    command = [ROOT / "scripts/finetune.py", f"--init={init}", "--task=classification", f"--model_dir={tmp_path}"]
    done = processes.run([*command, *files, *short, "--freeze=embedding,layer/attention"])
    assert done.returncode == 0, done.stderr
    tuned, first = (variables_by_path(model_dirs.load_trained(path).model) for path in (str(tmp_path), init))
    for path in tuned.keys() & first.keys():
        is_frozen = "/embedding/" in path or "/attention/" in path or path.endswith("mask_embedding")
        assert (tuned[path].numpy() == first[path].numpy()).all() == is_frozen, path


def test_bad_steps_are_skipped_and_end_the_run(tuner, tmp_path, one_device):
    """From the evaluation at step 3 on all weights are NaN: steps 4 to 6 are skipped, and the run fails."""

    def spoiled(model):
        def evaluate(progress):
            model.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
            return {"loss": np.inf, "metrics": {"accuracy": 0.0}, "error": np.inf}  # so it is not the best

        return evaluate

    with pytest.raises(InputError, match="stopped at step 6: the last 3 steps had no finite loss"):
        train(tuner.config, tuner.corpus, str(tmp_path), one_device, spoiled)
    assert [line["skipped"] for line in lines(tmp_path)] == [0, 0, 0, 1, 1, 1]
    assert model_dirs.last_bad_step(str(tmp_path)) == 6


@pytest.mark.slow
def test_two_replicas_are_one_and_so_are_groups_of_lanes(init, tables, tmp_path, one_device, two_replicas):
    """Dropout on; the last batch of each epoch has two examples of four, which fall on one replica."""
    tuner = make_tuner("regression", init, tables, one_device)
    result = tuner.run(str(tmp_path / "one"))
    assert {"loss", "pearson", "spearman", "collapsed"} <= set(result)
    config = change(tuner.config, train={"eval_steps": 0})
    one = model_dirs.load_trained(str(tmp_path / "one")).model
    grouped = change(config, train={"accumulate_steps": 2})
    for name, settings, strategy in (("two", config, two_replicas), ("grouped", grouped, one_device)):
        other = train(settings, tuner.corpus, str(tmp_path / name), strategy)
        assert_same(one, other, rtol=0, atol=1e-9)
        for mine, theirs in zip(lines(tmp_path / "one"), lines(tmp_path / name), strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-9)
    with two_replicas.scope():
        mirrored = model_dirs.load_trained(str(tmp_path / "one")).model
    found = evaluation(change(config, eval={"batch_size": 4}), mirrored, tuner.corpus.dev, two_replicas)()
    last = lines(tmp_path / "one", "evaluations.jsonl")[-1]
    assert found["loss"] == pytest.approx(last["loss"]) and found["metrics"] == pytest.approx(last["metrics"])


def test_what_is_learned_is_in_the_model_dir(tuner, whole, init):
    folder, result = whole
    assert {"task", "split", "examples", "seed", "step", "loss", "accuracy", "macro_f1", "matthews"} <= set(result)
    trained = model_dirs.load_trained(str(folder))
    assert trained.labels == tuner.corpus.labels == ("no", "yes") and trained.config == tuner.config
    assert trained.config.model.n_class == 2 and trained.config.model.n_layer == 1
    assert trained.vocabulary.encode("the").tolist() == random_xlnet.with_prefix().encode("the").tolist()
    (line,) = [line for line in lines(folder, "evaluations.jsonl") if line["step"] == result["step"]]
    assert line["error"] == min(line["error"] for line in lines(folder, "evaluations.jsonl"))
    assert line["metrics"]["accuracy"] == result["accuracy"] == 1 - line["error"]
    best = model_dirs.load_trained(str(folder), checkpoint="best")
    assert best.step == trained.step == result["step"]
    assert model_dirs.load_trained(str(folder), checkpoint="latest").step == 6


def test_it_learns(tuner, tmp_path, one_device):
    train_settings = {"train_steps": 80, "log_steps": 40, "eval_steps": 0, "save_steps": 80}
    config = change(tuner.config, train=train_settings, model={"dropout": 0.0, "dropatt": 0.0, "summary_dropout": 0.0})
    train(config, tuner.corpus, str(tmp_path), one_device)
    first, last = (line["loss"] for line in lines(tmp_path))
    assert last < 0.1 < first


@pytest.fixture(scope="module")
def padded_set(tuner):
    return tuner.corpus.dev


@pytest.mark.parametrize(
    ("summary_type", "max_segments", "lengths"),
    [
        ("last", 1, (2, 4, 6, 8, 12, 16)),
        ("attn", 1, (2, 4, 6, 8, 12, 16)),
        ("mean", 1, (16,)),
        ("first", 1, (16,)),
        ("last", 2, (1, 2, 3, 4, 6, 8, 16)),
    ],
)
def test_sorted_and_cut_evaluation_is_the_padded_one(summary_type, max_segments, lengths, padded_set, one_device):
    """Batches sorted by length and cut give each example what one batch of all columns gives it."""
    config = XLNetClassificationConfig().replace(
        model=dataclasses.asdict(random_xlnet.CONFIG) | {"vocab_size": 300, "dtype": "float64"},
        data={"batch_size": 4, "tgt_len": 16 // max_segments, "max_segments": max_segments},
        eval={"batch_size": 4, "jit_compile": False},
    )
    memory = {"mem_len": 5, "reuse_len": 0, "mem_init": "empty"}
    config = change(config, model={"summary_type": summary_type, "n_class": 2} | memory)
    model = families.make_model(config)
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape) * 0.3)
    reader = TaskReader(config, model, one_device)
    found = reader.outputs(reader.arranged(padded_set))
    features = {name: array.astype(np.int32) for name, array in padded_set.features.items()}
    (batch,) = TrainingExamples(padded_set, 10, (0, 0)).batches(0).take(1)
    wanted = families.task_of(config).outputs(model, batch, config)
    texts = {tuple(row): i for i, row in enumerate(features["tokens"])}
    order = [texts[tuple(row)] for row in batch["tokens"].numpy()]
    for name in ("log_probs", "loss"):
        np.testing.assert_allclose(found[name][order], wanted[name], atol=1e-12)
    assert np.ptp(found["log_probs"][:, 0]) > 1e-3
    assert config.lengths() == lengths


@pytest.mark.slow
def test_averages_are_evaluated_and_kept(init, tables, tmp_path, one_device):
    tuner = make_tuner("multiple_choice", init, tables, one_device, train={"ema_decay": 0.5, "eval_steps": 6})
    result = tuner.run(str(tmp_path))
    assert {"loss", "accuracy", "collapsed"} <= set(result)
    losses = []
    for kind in ("average", "last"):
        model = model_dirs.load_trained(str(tmp_path), kind).model
        losses.append(evaluation(tuner.config, model, tuner.corpus.dev, one_device)()["loss"])
    assert model_dirs.load_trained(str(tmp_path)).weights == "average"
    assert losses[0] == pytest.approx(result["loss"], rel=1e-12) and abs(losses[1] - losses[0]) > 1e-6


def by_path(model):
    return {variable.path: variable.numpy() for variable in model.variables}


def test_a_warm_start_takes_the_head_where_it_fits(tuner, whole, init, tables, one_device):
    """From a fine-tuned model_dir all weights are taken over; from a pretrained one those of the body alone."""
    head = families.task_of(tuner.config).head
    model = families.make_model(tuner.config)
    before, pretrained = by_path(model), by_path(model_dirs.load_trained(init).model)
    fresh = model_dirs.read_weights(init, variables_by_path(model), head)
    assert len(fresh) == 4 and all(name.startswith(head) for name in fresh)
    for name, weight in by_path(model).items():
        np.testing.assert_array_equal(weight, before[name] if name in fresh else pretrained[name])
    assert model_dirs.read_weights(str(whole[0]), variables_by_path(model), head) == []
    trained = by_path(model_dirs.load_trained(str(whole[0])).model)
    for name, weight in by_path(model).items():
        np.testing.assert_array_equal(weight, trained[name])
    # The run began with the pretrained weights: tokens that do not occur still have them.
    absent = np.setdiff1d(np.arange(256), tuner.corpus.train.features["tokens"])
    table = "xlnet/embedding/table_0"
    np.testing.assert_array_equal(trained[table][absent], pretrained[table][absent])
    assert make_tuner("classification", str(whole[0]), tables, one_device).corpus.labels == ("no", "yes")
    other = families.make_model(change(tuner.config, model={"n_class": 3}))
    assert sorted(model_dirs.read_weights(str(whole[0]), variables_by_path(other), head)) == [
        f"{head}logits/bias",
        f"{head}logits/kernel",
    ]


@pytest.mark.parametrize("of", ["rate", "gradient"])
def test_layer_decay(of, tuner):
    """In both meanings: 1 for the head, 0.5 for the layer below the top; the embedding's only in the paper's."""
    config = change(tuner.config, model={"n_layer": 2})
    paths = [variable.path for variable in families.make_model(config).trainable_variables]
    rules = dict(zip(paths, weight_rules(TrainConfig(layer_decay=0.5, layer_decay_of=of), paths), strict=True))
    for path, factor in (
        ("xlnet_with_logits/head/summary/projection/kernel", 1),
        ("xlnet/layer_1/feed_forward/inner/kernel", 1),
        ("xlnet/layer_0/feed_forward/inner/kernel", 0.5),
        ("xlnet/embedding/table_0", 0.25 if of == "rate" else 1),
    ):
        assert getattr(rules[path], of) == factor, path


@pytest.mark.slow
def test_several_seeds_have_mean_and_spread(init, tables, tmp_path, one_device, capsys):
    """These runs read texts in up to two segments."""
    data, steps = {"tgt_len": 8, "max_segments": 2}, {"train_steps": 2}
    tuner = make_tuner("classification", init, tables, one_device, train=steps, data=data)
    assert (tuner.config.model.reuse_len, tuner.config.model.mem_init, tuner.corpus.dev.t_len) == (0, "empty", 16)
    result = tuner.run(str(tmp_path), seeds=(1, 2))
    runs = result["runs"]
    assert [run["seed"] for run in runs] == [1, 2] and (tmp_path / "seed-2" / "labels.json").exists()
    losses = [run["loss"] for run in runs]
    assert result["loss"] == pytest.approx(np.mean(losses)) and result["loss_std"] == pytest.approx(
        np.std(losses, ddof=1)
    )
    assert result["loss_std"] > 0
    printed = capsys.readouterr().out
    assert "train: 2 classes: no 50.0%, yes 50.0%; the largest is 1.0 times the smallest" in printed
    assert f"2 seeds: accuracy {result['accuracy']:.4f}, standard deviation {result['accuracy_std']:.4f}" in printed
    collapsed = [run["collapsed"] for run in runs]
    assert printed.count("this run has collapsed") == sum(one is not None for one in collapsed)
    with pytest.raises(InputError, match="names a seed twice"):
        tuner.run(str(tmp_path), seeds=(1, 1))


def test_what_little_training_gives_is_said(init, tables, tmp_path):
    """One update at a rate of nearly 0, from new weights: no better than the most frequent class of dev."""
    file = tables / "mostly_yes.tsv"
    file.write_text("text\tlabel\n" + "the a\tyes\n" * 3 + "the a\tno\n")
    flags = "--untrained --train_steps=1 --warmup_steps=0 --learning_rate=1e-9 --batch_size=4 --tgt_len=16"
    command = [
        *("scripts/finetune.py", f"--init={init}", "--task=classification", f"--model_dir={tmp_path}/run"),
        *(f"--train={tables / FILES['classification']}", f"--dev={file}", "--nojit_compile", "--noeval_jit_compile"),
        *flags.split(),
    ]
    done = processes.run(command, cwd=processes.ROOT)
    assert done.returncode == 0, done.stderr
    assert "this run has only 1 update (10 examples in batches of 4) with a learning_rate of 1e-09" in done.stdout
    assert "all 4 examples are predicted to be of one class; try more train_steps, smaller batches or" in done.stdout
    trained = model_dirs.load_trained(f"{tmp_path}/run")
    assert trained.config.train.warm_start == "" and trained.config.model.n_layer == 1
    tuned, pretrained = by_path(trained.model), by_path(model_dirs.load_trained(init).model)
    table = "xlnet/embedding/table_0"
    assert np.abs(tuned[table] - pretrained[table]).max() > 1e-3  # --untrained: new weights

    result = {"step": 1, "loss": 0.1, "metrics": {"accuracy": 0.75}, "error": 0.25, "examples": 4, "collapsed": None}
    (tmp_path / "run" / "evaluations.jsonl").write_text(json.dumps(result) + "\n")
    said = "an accuracy of 0.7500 on dev is no better than always giving the most frequent class (0.7500); try more"
    again = processes.run(command, cwd=processes.ROOT).stdout
    assert said in again and "use the commands predict (--metrics) and export_savedmodel" in again


def test_balanced_classes(tuner, one_device, tables, init, tmp_path):
    file = tables / "few.tsv"
    file.write_text("text\tlabel\n" + "the a\tyes\n" * 3 + "River\tno\n")
    settings = SETTINGS | {"objective": {"balance_classes": True}}
    balanced = Finetuner(init, "classification", str(file), str(file), settings=settings, strategy=one_device)
    data = families.task_of(balanced.config).training_data(balanced.corpus, balanced.config)
    (batch,) = data.batches(0).take(1)
    np.testing.assert_allclose(batch["weight"], np.where(batch["label"] == 0, 2, 2 / 3))


def test_what_cannot_be_fine_tuned_is_one_line(init, tables, tmp_path, whole, one_device):
    def make(task="classification", where=init, **settings):
        return make_tuner(task, str(where), tables, one_device, **settings)

    with pytest.raises(InputError, match=r"--init=.* has no config\.json: give the directory of a pretrained model"):
        make(where=tmp_path)
    with pytest.raises(InputError, match="--task=naming is unknown: choose from classification"):
        Finetuner(init, "naming", "a", "b", strategy=one_device)
    with pytest.raises(InputError, match="batch_size=0 must be at least 1"):
        make(data={"batch_size": 0})
    with pytest.raises(InputError, match="max_segments=2 needs memory: set mem_len above 0"):
        make(data={"max_segments": 2}, model={"mem_len": 0})
    one = tables / "one.tsv"
    one.write_text("text\tlabel\nthe\tyes\n")
    with pytest.raises(InputError, match="has only the label 'yes': there is nothing to tell apart"):
        Finetuner(init, "classification", str(one), str(one), strategy=one_device)
    with pytest.raises(InputError, match=r"line 2 has the label '0\.5', which the model does not know: it has no, yes"):
        Finetuner(init, "classification", str(tables / "classes.tsv"), str(tables / "scores.tsv"), strategy=one_device)
    with pytest.raises(InputError, match="holds a run with other settings: batch_size=2"):
        make(data={"batch_size": 2}).run(str(whole[0]))
    with pytest.raises(InputError, match="holds a run with other settings: tgt_len=12"):
        make(data={"tgt_len": 12}).run(str(whole[0]))
    tuner = make()
    features = tuner.corpus.train.features
    fewer = dataclasses.replace(tuner.corpus.train, features={name: array[1:] for name, array in features.items()})
    other = dataclasses.replace(tuner.corpus, train=fewer)
    with pytest.raises(InputError, match="holds a run on other data: give the data it began with, or another"):
        train(tuner.config, other, str(whole[0]), one_device)


def test_labels_are_learned_and_their_threshold_is_kept(init, tables, one_device, tmp_path, capsys):
    train_settings = {"train": TRAIN | {"train_steps": 40, "learning_rate": 3e-2, "eval_steps": 40}}
    tuner = make_tuner("multi_label", init, tables, one_device, **train_settings)
    result = tuner.run(str(tmp_path))
    assert "train: 3 labels: it 50.0%, no 50.0%, yes 50.0%; a text has 1.50 of them" in capsys.readouterr().out
    assert result["micro_f1"] == result["exact"] == 1.0
    assert (tmp_path / "classes.csv").read_text().splitlines()[1:] == [
        f"{name},5,5,1.0,1.0,1.0" for name in ("it", "no", "yes")
    ]
    assert "| yes | 5 | 5 | 1.000 | 1.000 | 1.000 |" in describe_model(str(tmp_path)).text
    model = txl_tf.load(str(tmp_path))
    assert [line["labels"] for line in model.predict(["the a", "River so"])] == [["it", "no"], ["yes"]]
    found = model.evaluate(str(tables / "sets.tsv"))
    assert found["threshold"] == result["threshold"] and found["macro_f1"] == 1.0


def test_steps_follow_from_the_number_of_examples():
    """Few examples are read more often, and the log stays short."""
    config = families.tuned_configs()["classification"].from_groups({}, "here").replace(data={"batch_size": 16})
    few = {"train_steps": 306, "warmup_steps": 30, "eval_steps": 17, "save_steps": 17, "log_steps": 6}
    assert finetuner._counts(config, {}, 268) == few
    many = {"train_steps": 1875, "warmup_steps": 187, "eval_steps": 625, "save_steps": 625, "log_steps": 62}
    assert finetuner._counts(config, {}, 10_000) == many


def test_a_fold_may_have_a_metric_that_is_no_number(capsys):
    """The correlation of equal scores: with it neither the mean nor the deviation is known."""
    config = families.tuned_configs()["regression"].from_groups({}, "here")
    found = [{"seed": 1, "step": 2, "loss": 0.5, "collapsed": None, "examples": 3, "metrics": {"pearson": value}}
             for value in (0.25, float("nan"))]  # fmt: skip

    def make(i):
        return types.SimpleNamespace(config=config, say=lambda: None, run_one=lambda folder, seed: found[i])

    line = finetuner.cross_validate(make, "runs", 2, 1)
    assert (line["loss"], line["loss_std"], line["pearson"], line["pearson_std"]) == (0.5, 0.0, None, None)
    assert [run["pearson"] for run in line["runs"]] == [0.25, None] and line["examples"] == 6
    assert "2 folds: pearson nan, standard deviation nan" in capsys.readouterr().out


def table(rows):
    """A table of up to 32 different texts whose first word decides."""
    words = [(i % 2, 2 + i // 2 % 4, 2 + i // 8) for i in rows]
    return table_of({"text": [" ".join(WORDS[n] for n in one) for one in words], "label": [str(i % 2) for i in rows]})


def test_a_row_of_weight_two_counts_as_two_rows(init, one_device, tmp_path):
    """And one of weight 0 as none, whatever the order of the batch; without dropout."""
    settings = {"data": {"batch_size": 10, "tgt_len": 16}, "train": TRAIN, "eval": SETTINGS["eval"]}
    settings |= {"model": dict.fromkeys(("dropout", "dropatt", "summary_dropout"), 0.0)}
    models = []
    for name, rows, weights in (
        ("repeated", [0, 0, *range(1, 9)], None),
        ("weighted", range(10), [2, *[1] * 8, 0]),
        ("plain", range(9), None),
    ):
        given = {"settings": settings, "strategy": one_device, "weights": weights}
        Finetuner(init, "classification", table(rows), table(range(10)), **given).run(str(tmp_path / name))
        models.append(model_dirs.load_trained(str(tmp_path / name), checkpoint="latest").model)
    assert_same(models[0], models[1], rtol=1e-7, atol=1e-9)
    assert (
        max(np.abs(a - b).max() for a, b in zip(models[1].get_weights(), models[2].get_weights(), strict=True)) > 1e-6
    )


def test_weights_stay_with_their_rows(init, one_device):
    """Also when a part is held out; a run that is continued with others is another run."""

    def examples(dev, weights):
        given = {"settings": SETTINGS, "strategy": one_device, "weights": weights}
        return Finetuner(init, "classification", table(range(20)), dev, **given).corpus.train

    numbers = np.arange(20) + 1
    whole, part = examples(table(range(20)), numbers), examples(None, numbers)
    by_text = {tokens.tobytes(): weight for tokens, weight in zip(whole.features["tokens"], numbers, strict=True)}
    assert (
        len(part) == 18 and [by_text[tokens.tobytes()] for tokens in part.features["tokens"]] == part.weights.tolist()
    )
    assert whole.fingerprint() != examples(table(range(20)), None).fingerprint()
    for wrong, message in (([1] * 3, "shape (3,) for 20 rows"), ([-1] * 20, "from 0 on"), ([0] * 20, "above 0")):
        with pytest.raises(InputError, match=re.escape(message)):
            examples(None, wrong)
