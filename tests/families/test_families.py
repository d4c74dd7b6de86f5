"""A family is one registration: a table of bigrams goes through the ordinary loop."""

import json
import math
import pathlib
import re
import subprocess
import sys

import bigram
import numpy as np
import pytest
from small_run import KilledError, change, lines

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.inference.evaluate import Evaluator
from txl_tf.runs.model_card import describe_model
from txl_tf.runs.model_dir import load_trained, read_config, read_labels
from txl_tf.settings.run import DataConfig, TrainConfig
from txl_tf.training.loop import train

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = bigram.BigramRunConfig(
    bigram.BigramConfig(dropout=0.3),
    DataConfig(batch_size=4, tgt_len=8),
    TrainConfig(
        train_steps=12, learning_rate=0.5, clip=0.0, steps_per_loop=5, log_steps=3, save_steps=4, jit_compile=False
    ),
)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
    families.register(bigram.FAMILY)


def test_it_trains_resumes_evaluates_and_checkpoints(registered, corpus, tmp_path, one_device):
    """The run that is killed in its second evaluation and continued is the uninterrupted one, bit for bit."""
    config = change(CONFIG, train={"eval_steps": 6})

    def evaluator(model):
        return Evaluator(config, model, corpus, "valid", one_device)

    whole = train(config, corpus, str(tmp_path / "whole"), one_device, evaluator)

    def killed(model):
        def evaluate(progress):
            raise KilledError

        return evaluate

    with pytest.raises(KilledError):
        train(config, corpus, str(tmp_path / "cut"), one_device, killed)
    resumed = train(config, corpus, str(tmp_path / "cut"), one_device, evaluator)
    np.testing.assert_array_equal(whole.get_weights()[0], resumed.get_weights()[0])
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert lines(tmp_path / "whole")[-1]["loss"] < lines(tmp_path / "whole")[0]["loss"] < math.log(256) + 0.01

    trained = load_trained(str(tmp_path / "whole"))
    assert trained.config == config and read_config(str(tmp_path / "whole")).family == "bigram"
    result = Evaluator(trained.config, trained.model, corpus, "valid", one_device)()
    assert result["order"] == 2 and result["tokens_dropped"] == 0
    logged = json.loads((tmp_path / "whole" / "evaluations.jsonl").read_text().splitlines()[-1])
    assert logged["loss"] == result["loss"] < math.log(256)
    card = describe_model(str(tmp_path / "whole")).text
    assert "family bigram table" in card and f"loss {result['loss']:.4g}" in card


def test_two_replicas_equal_one_where_their_target_counts_differ(
    registered, corpus, tmp_path, one_device, two_replicas
):
    """The objective drops a third of the targets at random: a mean of the replicas' means would be another loss."""
    config = change(CONFIG, model={"dropout": 0.6}, train={"log_steps": 1, "ema_decay": 0.9})
    one = train(config, corpus, str(tmp_path / "one"), one_device)
    two = train(config, corpus, str(tmp_path / "two"), two_replicas)
    grouped = change(config, train={"accumulate_steps": 4})
    four = train(grouped, corpus, str(tmp_path / "four"), one_device)
    for other, name in ((two, "two"), (four, "four")):
        np.testing.assert_allclose(other.get_weights()[0], one.get_weights()[0], atol=1e-5)
        for mine, theirs in zip(lines(tmp_path / "one"), lines(tmp_path / name), strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6)


def test_what_a_config_json_may_say(registered):
    text = CONFIG.to_json()
    assert families.config_from_json(text) == CONFIG
    with pytest.raises(InputError, match=r"of family .trigram.; known are transformer_xl.*, bigram"):
        families.config_from_json(text.replace('"bigram"', '"trigram"'))
    with pytest.raises(InputError, match="of task 'x'; bigram table has next_token"):
        families.config_from_json(text.replace('"next_token"', '"x"'))
    with pytest.raises(InputError, match="has format 99; this version of txl_tf reads 1 to 2"):
        families.config_from_json(text.replace('"format": 2', '"format": 99'))


def test_another_family_into_a_model_dir_is_refused(registered, corpus, tmp_path, one_device):
    import small_run

    train(change(CONFIG, train={"train_steps": 1}), corpus, str(tmp_path), one_device)
    with pytest.raises(InputError, match="holds a bigram trained for next_token, not a transformer_xl trained for"):
        train(small_run.CONFIG, corpus, str(tmp_path), one_device)


def test_presets_have_names_of_their_own(registered):
    twin = families.Family("twin", "twin", (), {"demo": families.presets()["demo"]})
    with pytest.raises(ValueError, match=r"preset names \['demo'\] are taken"):
        families.register(twin)


def test_looking_families_up_does_not_load_tensorflow():
    """So that --help answers at once."""
    code = "import sys, txl_tf.families; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_title_in_a_sentence():
    configs = [families.presets()[name].config for name in ("xlnet_demo", "demo")]
    assert [families.with_article(config) for config in configs] == ["an XLNet", "a Transformer-XL"]


def test_two_classes_of_one_name_are_refused(tmp_path):
    (tmp_path / "labels.json").write_text('["good", "bad", "good"]')
    with pytest.raises(InputError, match=r"labels\.json names the class 'good' more than once: every class needs"):
        read_labels(str(tmp_path))


def test_labels_that_are_not_as_many_as_classes_are_refused(tmp_path):
    config = families.tuned_configs()["classification"].from_groups({"model": {"n_class": 2}}, "a test")
    (tmp_path / "config.json").write_text(config.to_json())
    (tmp_path / "labels.json").write_text('["a"]')
    with pytest.raises(InputError, match=r"labels\.json names 1 class, the model has 2: correct it$"):
        read_labels(str(tmp_path))


def test_a_task_of_another_kind_is_refused():
    tuned, pretrained = families.tuned_configs()["tagging"](), families.presets()["xlnet_demo"].config
    with pytest.raises(InputError, match="a model of XLNet for tagging is not trained or evaluated by this command"):
        families.task_of(tuned, families.Pretraining)
    with pytest.raises(InputError, match=r"^XLNet is not fine-tuned for permutation_lm: choose another task$"):
        families.task_of(pretrained, families.FineTuning)
    assert families.task_of(tuned) is families.task_of(tuned, families.FineTuning)


def test_only_tasks_presets_and_published_decide_by_a_tasks_name():
    """Others ask the task. They name one only to choose it."""
    name = rf"""["']({"|".join(families.tuned_configs())})["']"""
    decides = re.compile(rf"(==|!=|\bin|\bcase|\.get\() ?[({{\[]?{name}|{name}:|{name} (==|!=)")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("txl_tf", "scripts", "serving")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not re.match(r"txl_tf/(tasks|published|families/presets)/", path.relative_to(ROOT).as_posix())
        for line in path.read_text().splitlines()
        if decides.search(line)
    ]
    assert found == []
