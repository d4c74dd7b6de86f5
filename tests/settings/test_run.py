import dataclasses
import json
import math
import pathlib

import pytest

from txl_tf import families
from txl_tf.errors import InputError
from txl_tf.families.presets.transformer_xl import PRESETS
from txl_tf.models.transformer_xl.config import EvalConfig, TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig
from txl_tf.settings.groups import field_types, from_dict, option_value, update
from txl_tf.settings.run import DataConfig, TrainConfig


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
        (("model", "n_layer"), "3", "must be an integer"),
        (("model", "n_layer"), True, "must be an integer"),
        (("model", "untie_r"), 1, "must be true or false"),
        (("model", "cutoffs"), [1.5], "list of integers"),
        (("model", "mem_init"), "ones", "choose from"),
        (("train", "learning_rate"), None, "must be a number"),
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
        (TransformerXLConfig, {"dropout": 1.0}, "dropout=1.0 must be at least 0 and below 1 and finite"),
        (TransformerXLConfig, {"mem_len": -1}, "mem_len=-1"),
        (TransformerXLConfig, {"vocab_size": 10, "cutoffs": (4, 4)}, "must rise"),
        (TransformerXLConfig, {"vocab_size": 10, "cutoffs": (4, 10)}, "stay below vocab_size=10"),
        (TransformerXLConfig, {"d_embed": 8, "div_val": 4, "cutoffs": (10, 20)}, "leaves nothing"),
        (DataConfig, {"batch_size": 0}, "batch_size=0"),
        (TrainConfig, {"train_steps": 10, "warmup_steps": 10}, "must be less than train_steps"),
        (TrainConfig, {"learning_rate": 0.0}, "learning_rate=0.0 must be above 0 and finite"),
        (TrainConfig, {"lr_schedule": "step"}, "lr_schedule is 'step'; choose from"),
        (TrainConfig, {"adam_epsilon": 0.0}, "adam_epsilon=0.0 must be at least 1e-37 and finite"),
        (TrainConfig, {"adam_epsilon": math.inf}, "adam_epsilon=inf must be at least 1e-37 and finite"),
        (TrainConfig, {"weight_decay": -0.1}, "weight_decay=-0.1 must be at least 0"),
        (TrainConfig, {"weight_decay": math.nan}, "weight_decay=nan must be at least 0"),
        (TrainConfig, {"weight_decay": 10.0, "learning_rate": 0.1}, "less than 1 / learning_rate=10"),
        (TrainConfig, {"layer_decay": 0.0}, "layer_decay=0.0 must be above 0 and at most 1 and finite"),
        (TrainConfig, {"layer_decay": 1.5}, "layer_decay=1.5 must be above 0 and at most 1 and finite"),
        (TrainConfig, {"layer_decay": math.nan}, "layer_decay=nan must be above 0 and at most 1 and finite"),
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


def test_one_name_stands_for_the_conventions_of_a_code():
    model = update(TransformerXLConfig(), {"conventions": "official_pytorch", "n_layer": 2})
    assert (model.mem_init, model.same_length_window, model.n_layer) == ("empty", "pytorch", 2)
    assert [option_value(PRESETS[name].config.model, "conventions") for name in ("text8_base", "wt103_base")] == [
        "official_tf",
        "official_pytorch",
    ]
    assert option_value(TransformerXLConfig(mem_init="empty"), "conventions") == "mixed"
    _, reach = TransformerXLRunConfig().for_evaluation(conventions="huggingface")
    assert (reach.mem_init, reach.same_length_window) == ("zeros", "pytorch")
    with pytest.raises(InputError, match="XLNetConfig: conventions is 'official_pytorch'; choose from"):
        update(XLNetConfig(), {"conventions": "official_pytorch"})


@pytest.mark.parametrize(("alpha", "beta", "share"), [(6, 1, 6.0), (7, 2, 3.5), (10, 3, 10 / 3)])
def test_a_config_of_before_may_have_a_fraction_of_targets(alpha, beta, share):
    text = XLNetRunConfig().to_json()
    old = json.loads(text) | {"objective": {"mask_alpha": alpha, "mask_beta": beta}}
    assert families.config_from_json(json.dumps(old)).objective.mask_alpha == share
    old["objective"] = {"mask_alpha": 2, "mask_beta": 2}
    with pytest.raises(InputError, match=r"mask_alpha=1\.0 must be above 1"):
        families.config_from_json(json.dumps(old))


@pytest.mark.parametrize("name", ["plain", "averaged"])
def test_a_config_of_before_is_read_whole(name):
    path = pathlib.Path(__file__).parents[1] / "model_dir_ce09e14" / name / "config.json"
    old, config = json.loads(path.read_text()), families.config_from_json(path.read_text())
    for group in ("model", "data", "eval"):
        found = dataclasses.asdict(getattr(config, group))
        assert {key: found[key] for key in old[group]} == {
            key: tuple(value) if isinstance(value, list) else value for key, value in old[group].items()
        }


def test_windows_of_the_two_official_codes():
    model = TransformerXLConfig(mem_len=5, same_length=True)
    assert model.reach.window == 6
    assert dataclasses.replace(model, same_length_window="pytorch").reach.window == 5
    assert dataclasses.replace(model, same_length=False).reach.window is None


def groups():
    """Every group of settings of every task."""
    found = {kind for config in families.run_configs() for kind in config.groups().values()}
    return sorted(found, key=lambda kind: kind.__name__)


def numeric_fields():
    for group in groups():
        for field in dataclasses.fields(group):
            kind = field_types(group)[field.name]
            if kind in (int, float, tuple[int, ...]):
                yield pytest.param(group, field.name, kind, id=f"{group.__name__}.{field.name}")


@pytest.mark.parametrize(("group", "name", "kind"), numeric_fields())
def test_no_number_of_any_setting_is_beyond_its_range(group, name, kind):
    """Through the one check that serves flags, config.json and imported configurations."""
    hostile = {int: [10**30, -(10**30), 2**31], float: [math.nan, math.inf, -math.inf, 10**400]}
    for value in hostile.get(kind, [[10**30], [-(10**30)]]):
        with pytest.raises(InputError, match=rf"^here.*{name}"):
            from_dict(group, {name: value}, "here")
    limits = next(field for field in dataclasses.fields(group) if field.name == name).metadata["range"]
    beyond = [(limits.at_least, -1), (limits.above, 0), (limits.at_most, 1), (limits.below, 0)]
    for value in [kind_of(kind)(limit + step) for limit, step in beyond if limit is not None]:
        with pytest.raises(InputError, match=name):
            from_dict(group, {name: value if kind in (int, float) else [value]}, "here")


def kind_of(kind):
    """The type of one number of a setting."""
    return kind if kind in (int, float) else int


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.__name__)
def test_every_number_states_its_range(group):
    """A float without limits would be an oversight; integers are always within int32."""
    for field in dataclasses.fields(group):
        if field_types(group)[field.name] is float:
            limits = field.metadata["range"]
            assert (limits.at_least, limits.above) != (None, None), field.name
