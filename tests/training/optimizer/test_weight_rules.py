"""Which weights decay and which learn slower, listed."""

import dataclasses

import pytest

from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.weight_rules import WeightRule, depth_multiplier, is_decayed, weight_rules
from txl_tf.training.same_run import refuse_other_settings

MODEL = TransformerXLConfig(
    vocab_size=30,
    n_layer=3,
    d_model=8,
    d_embed=8,
    n_head=2,
    d_head=4,
    d_inner=12,
    mem_len=4,
    untie_r=True,
    cutoffs=(10, 20),
    div_val=2,
    tie_weight=False,
)
LAYER = "transformer_xl/layer_0/"


def paths(**changes):
    return [variable.path for variable in TransformerXL(dataclasses.replace(MODEL, **changes)).trainable_variables]


def test_what_decays():
    of_one_layer = paths(n_layer=1)
    assert [path for path in of_one_layer if is_decayed(path)] == [
        "transformer_xl/embedding/table_0",
        "transformer_xl/embedding/table_1",
        "transformer_xl/embedding/table_2",
        "transformer_xl/embedding/projection_0",
        "transformer_xl/embedding/projection_1",
        "transformer_xl/embedding/projection_2",
        LAYER + "attention/query_kernel",
        LAYER + "attention/key_kernel",
        LAYER + "attention/value_kernel",
        LAYER + "attention/position_kernel",
        LAYER + "attention/output_kernel",
        LAYER + "attention/content_bias",
        LAYER + "attention/position_bias",
        LAYER + "feed_forward/inner/kernel",
        LAYER + "feed_forward/outer/kernel",
        "transformer_xl/softmax/table_0",
        "transformer_xl/softmax/table_1",
        "transformer_xl/softmax/table_2",
        "transformer_xl/softmax/projection_0",
        "transformer_xl/softmax/projection_1",
        "transformer_xl/softmax/projection_2",
        "transformer_xl/softmax/cluster_table",
    ]
    assert [path for path in of_one_layer if not is_decayed(path)] == [
        LAYER + "attention_norm/gamma",
        LAYER + "attention_norm/beta",
        LAYER + "feed_forward/inner/bias",
        LAYER + "feed_forward/outer/bias",
        LAYER + "feed_forward_norm/gamma",
        LAYER + "feed_forward_norm/beta",
        "transformer_xl/softmax/bias_0",
        "transformer_xl/softmax/bias_1",
        "transformer_xl/softmax/bias_2",
        "transformer_xl/softmax/cluster_bias",
    ]


@pytest.mark.parametrize(
    ("path", "decayed"),
    [
        ("xlnet/mask_embedding", True),
        ("xlnet/segment_bias", True),
        ("xlnet/layer_1/attention/segment_bias", True),
        ("xlnet/layer_1/attention/segment_table", True),
        ("transformer_xl/content_bias", True),
        ("transformer_xl/layer_0/attention/position_table", True),
        ("transformer_xl/layer_0/attention/distance_bias", False),
        ("classifier/logits/kernel", True),
        ("classifier/logits/bias", False),
    ],
)
def test_what_decays_elsewhere(path, decayed):
    assert is_decayed(path) == decayed


def test_rates_by_depth():
    """layer_decay 1/2, three layers: the top one has 1, the embedding below the lowest 1/8."""
    multipliers = {path: depth_multiplier(path, 3, 0.5, "rate") for path in paths()}
    for part, count, multiplier in (
        ("embedding", 6, 1 / 8),
        ("layer_0", 15, 1 / 4),
        ("layer_1", 15, 1 / 2),
        ("layer_2", 15, 1.0),
        ("softmax", 11, 1.0),
    ):
        of_part = [multipliers.pop(path) for path in list(multipliers) if path.split("/")[1] == part]
        assert of_part == [multiplier] * count
    assert not multipliers


def test_gradients_by_depth():
    """Only the weights that are a layer's own in the official code."""
    multipliers = {path: depth_multiplier(path, 3, 0.5, "gradient") for path in paths()}
    scaled = {path: multiplier for path, multiplier in multipliers.items() if multiplier != 1}
    own = [
        "attention/query_kernel",
        "attention/key_kernel",
        "attention/value_kernel",
        "attention/position_kernel",
        "attention/output_kernel",
        "attention_norm/gamma",
        "attention_norm/beta",
        "feed_forward/inner/kernel",
        "feed_forward/inner/bias",
        "feed_forward/outer/kernel",
        "feed_forward/outer/bias",
        "feed_forward_norm/gamma",
        "feed_forward_norm/beta",
    ]
    layers = ((0, 1 / 4), (1, 1 / 2))
    assert scaled == {f"transformer_xl/layer_{i}/{name}": multiplier for i, multiplier in layers for name in own}


@pytest.mark.parametrize(
    ("path", "rate", "gradient"),
    [
        ("xlnet/mask_embedding", 0.5**12, 1.0),
        ("xlnet/embedding/table_0", 0.5**12, 1.0),
        ("xlnet/content_bias", 1.0, 1.0),
        ("xlnet/layer_10/attention/segment_bias", 0.5, 1.0),
        ("xlnet/layer_10/attention/segment_table", 0.5, 1.0),
        ("xlnet/layer_10/attention_norm/beta", 0.5, 0.5),
        ("xlnet/layer_1/attention_norm/beta", 0.5**10, 0.5**10),
        ("classifier/xlnet/layer_11/attention/query_kernel", 1.0, 1.0),
        ("classifier/summary/kernel", 1.0, 1.0),
    ],
)
def test_multipliers_elsewhere(path, rate, gradient):
    assert depth_multiplier(path, 12, 0.5, "rate") == rate
    assert depth_multiplier(path, 12, 0.5, "gradient") == gradient


def test_rules_of_a_config():
    some = ["xlnet/embedding/table_0", "xlnet/layer_0/norm/beta", "xlnet/layer_1/query_kernel"]
    assert weight_rules(TrainConfig(), some) == [WeightRule(0.0, 1.0, 1.0)] * 3
    config = TrainConfig(weight_decay=0.1, layer_decay=0.5)
    assert weight_rules(config, some) == [(0.1, 0.25, 1.0), (0.0, 0.5, 1.0), (0.1, 1.0, 1.0)]
    config = dataclasses.replace(config, layer_decay_of="gradient")
    assert weight_rules(config, some) == [(0.1, 1.0, 1.0), (0.0, 1.0, 0.5), (0.1, 1.0, 1.0)]
    assert weight_rules(config, ["weight"]) == [(0.1, 1.0, 1.0)]  # no layers: nothing lies below another


@pytest.mark.parametrize(
    "change",
    [
        {"lr_schedule": "linear"},
        {"adam_epsilon": 1e-6},
        {"bias_correction": False},
        {"weight_decay": 0.01},
        {"layer_decay": 0.75},
        {"layer_decay_of": "gradient"},
    ],
)
def test_a_run_does_not_continue_with_another_optimizer(change):
    with pytest.raises(InputError, match=next(iter(change))):
        refuse_other_settings(TransformerXLRunConfig(), TransformerXLRunConfig(train=TrainConfig(**change)), "runs/x")


def test_the_embedding_may_learn_faster():
    found = paths()
    rules = weight_rules(TrainConfig(embedding_lr=2.0, layer_decay=0.5, layer_decay_of="gradient"), found)
    for path, rule in zip(found, rules, strict=True):
        assert rule.rate == (2.0 if "/embedding/" in path else 1.0)
    rules = weight_rules(TrainConfig(embedding_lr=2.0, layer_decay=0.5), found)
    assert rules[0] == WeightRule(rate=2.0 * 0.5**3)
