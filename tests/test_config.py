import dataclasses
import json
import math

import pytest

from txl_tf import families
from txl_tf.config import DataConfig, TrainConfig
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.transformer_xl.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name):
    config = PRESETS[name].config
    assert families.config_from_json(config.to_json()) == config
    assert PRESETS[name].source and PRESETS[name].parameters


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("model", "n_layers"), 3, "unknown keys"),
        (("modell",), {}, "unknown groups"),
        (("model", "n_layer"), "3", "must be of type int"),
        (("model", "n_layer"), True, "must be of type int"),
        (("model", "untie_r"), 1, "must be of type bool"),
        (("model", "cutoffs"), [1.5], "list of integers"),
        (("model", "mem_init"), "ones", "choose from"),
        (("train", "learning_rate"), None, "must be of type float"),
        (("data",), 5, "must be a JSON object"),
    ],
)
def test_json_with_other_keys_or_types_is_refused(path, value, message):
    settings = json.loads(TransformerXLRunConfig().to_json())
    place = settings
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError, match=message):
        families.config_from_json(json.dumps(settings))


def test_what_is_no_json_is_refused():
    with pytest.raises(InputError, match=r"runs/x/config\.json is not JSON"):
        families.config_from_json("{", "runs/x/config.json")


@pytest.mark.parametrize(
    ("config_class", "values", "message"),
    [
        (TransformerXLConfig, {"n_head": 0}, "n_head=0 must be at least 1"),
        (TransformerXLConfig, {"d_model": 7}, "must be even"),
        (TransformerXLConfig, {"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        (TransformerXLConfig, {"mem_len": -1}, "mem_len=-1"),
        (TransformerXLConfig, {"vocab_size": 10, "cutoffs": (4, 4)}, "must rise"),
        (TransformerXLConfig, {"vocab_size": 10, "cutoffs": (4, 10)}, "stay below vocab_size=10"),
        (TransformerXLConfig, {"d_embed": 8, "div_val": 4, "cutoffs": (10, 20)}, "leaves nothing"),
        (DataConfig, {"batch_size": 0}, "batch_size=0"),
        (TrainConfig, {"train_steps": 10, "warmup_steps": 10}, "must be less than train_steps"),
        (TrainConfig, {"learning_rate": 0.0}, "must be positive"),
        (TrainConfig, {"lr_schedule": "step"}, "lr_schedule is 'step'; choose from"),
        (TrainConfig, {"adam_epsilon": 0.0}, "adam_epsilon=0.0 must be finite and at least 1e-37"),
        (TrainConfig, {"adam_epsilon": math.inf}, "adam_epsilon=inf must be finite"),
        (TrainConfig, {"weight_decay": -0.1}, "weight_decay=-0.1 must be at least 0"),
        (TrainConfig, {"weight_decay": math.nan}, "weight_decay=nan must be at least 0"),
        (TrainConfig, {"weight_decay": 10.0, "learning_rate": 0.1}, "less than 1 / learning_rate=10"),
        (TrainConfig, {"layer_decay": 0.0}, r"layer_decay=0.0 must be in \(0, 1\]"),
        (TrainConfig, {"layer_decay": 1.5}, r"layer_decay=1.5 must be in \(0, 1\]"),
        (TrainConfig, {"layer_decay": math.nan}, r"layer_decay=nan must be in \(0, 1\]"),
        (TrainConfig, {"layer_decay_of": "weights"}, "layer_decay_of is 'weights'; choose from"),
        (EvalConfig, {"tgt_len": 0}, "tgt_len=0"),
    ],
)
def test_impossible_settings_are_refused(config_class, values, message):
    with pytest.raises(InputError, match=message):
        config_class(**values)


def test_evaluation_overrides():
    config = PRESETS["enwik8_large"].config
    evaluation, reach = config.for_evaluation()
    assert (evaluation.tgt_len, reach.mem_len, reach.clamp_len, reach.same_length) == (128, 3800, 1000, True)
    evaluation, reach = config.for_evaluation(mem_len=7, same_length=False, mem_init="empty", batch_size=None)
    assert evaluation.batch_size == 16
    assert (reach.mem_len, reach.window, reach.mem_init) == (7, None, "empty")


def test_windows_of_the_two_official_codes():
    model = TransformerXLConfig(mem_len=5, same_length=True)
    assert model.reach.window == 6
    assert dataclasses.replace(model, same_length_window="pytorch").reach.window == 5
    assert dataclasses.replace(model, same_length=False).reach.window is None
