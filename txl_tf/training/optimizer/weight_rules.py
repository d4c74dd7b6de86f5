"""Rules for the update of each weight, in addition to Adam's: weight decay, and rates that depend on the layer.

The rules depend only on the Keras path of a weight, such as "xlnet/layer_3/feed_forward/inner/kernel".
"""

import re
import typing
from collections.abc import Sequence

from txl_tf.runs.parameters import LAYER, count_layers
from txl_tf.settings.run import TrainConfig

_BELOW_THE_LAYERS = re.compile(r"(?:^|/)(?:\w+_)?embedding(?:/|$)")
_BIAS_OR_NORM = re.compile(r"(?:\w+_)?bias(?:_\d+)?|gamma|beta")
_QUERY_BIASES = {"content_bias", "position_bias", "segment_bias"}  # the official r_w_bias, r_r_bias, r_s_bias
_OUTSIDE_THE_OFFICIAL_LAYER = _QUERY_BIASES | {"segment_table"}  # in the official code one tensor for all layers


class WeightRule(typing.NamedTuple):
    """The rule of one weight.

    weight_decay: the fraction of the weight that an update subtracts, per unit of the learning rate.
    rate: factor of the learning rate, also for weight decay.
    gradient: factor of the clipped gradient.
    """

    weight_decay: float = 0.0
    rate: float = 1.0
    gradient: float = 1.0


def weight_rules(config: TrainConfig, paths: Sequence[str], n_layer: int | None = None) -> list[WeightRule]:
    """The rule of each weight that is trained, by its Keras path.

    `n_layer` is the model's number of layers; None: the largest layer_i among the paths gives it.
    """
    if n_layer is None:
        n_layer = count_layers(paths)
    rules = []
    for path in paths:
        factors = {"rate": config.embedding_lr if _BELOW_THE_LAYERS.search(path) else 1.0, "gradient": 1.0}
        factors[config.layer_decay_of] *= depth_multiplier(path, n_layer, config.layer_decay, config.layer_decay_of)
        decay = config.weight_decay if is_decayed(path) else 0.0
        rules.append(WeightRule(weight_decay=decay, **factors))
    return rules


def is_decayed(path: str) -> bool:
    """Whether weight decay applies to the weight: to all weights except biases and layer norms.

    As in the official XLNet code, it also applies to the biases that attention adds to its queries (content_bias,
    position_bias and segment_bias): they are multiplied with keys, not added to the output.
    """
    name = path.rsplit("/", 1)[-1]
    return name in _QUERY_BIASES or not _BIAS_OR_NORM.fullmatch(name)


def depth_multiplier(path: str, n_layer: int, layer_decay: float, of: str) -> float:
    """Layer-wise decay: the factor of a weight's learning rate or gradient, in a model of N layers.

    of="rate" follows the XLNet paper and is for learning rates. Layer l has layer_decay**(N-1-l), so the top layer has
    1. Embeddings, which are below layer 0, have layer_decay**N. The softmax and other heads have 1, as have biases that
    all layers share, since the top layer uses them, too.

    of="gradient" follows the official XLNet code and is for gradients. Layer l has layer_decay**(N-1-l), and everything
    else 1: the embeddings, the heads, and attention's query biases and segment tables, which the official code has
    outside its layers.
    """
    layer = LAYER.search(path)
    if of == "gradient" and path.rsplit("/", 1)[-1] in _OUTSIDE_THE_OFFICIAL_LAYER:
        layers_above = 0
    elif layer:
        layers_above = n_layer - 1 - int(layer.group(1))
    else:
        layers_above = n_layer if of == "rate" and _BELOW_THE_LAYERS.search(path) else 0
    return layer_decay**layers_above
