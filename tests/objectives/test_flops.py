import dataclasses
import math
import re

import pytest
import tensorflow as tf
from reference import SMALL

from txl_tf.models.transformer_xl.config import TransformerXLConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.models.xlnet.config import XLNetConfig
from txl_tf.models.xlnet.model import Text, XLNet
from txl_tf.objectives import flops

B, T = 3, 5


@pytest.fixture
def sums_are_sums(on_device):
    """Gradients of biases are sums, no matmuls as on a CPU."""
    on_device("gpu")


def dot_flops(hlo):
    """Multiplications and additions of the matmuls in XLA's text: 2 x the result's size x the contracted sizes."""
    total = 0
    for line in hlo.splitlines():
        dot = re.search(r"= \w+\[([\d,]*)\].* dot\(\w+\[([\d,]*)\].* lhs_contracting_dims={([\d,]*)}", line)
        if dot:
            result, left, contracted = ([int(n) for n in group.split(",") if n] for group in dot.groups())
            total += 2 * math.prod(result) * math.prod(left[axis] for axis in contracted)
    return total


@pytest.mark.xla
@pytest.mark.parametrize(
    "changes",
    [{}, {"pre_lnorm": True}, {"attn_type": "shaw", "d_embed": 6}, {"attn_type": "vaswani"}, {"attn_type": "alrfou"}],
    ids=str,
)
def test_flops_are_those_of_the_matmuls_that_xla_sees(sums_are_sums, changes):
    config = dataclasses.replace(SMALL, **changes)
    model = TransformerXL(config)
    tokens = tf.zeros([B, T], tf.int32)

    @tf.function(jit_compile=True)
    def gradients(tokens, mems):
        with tf.GradientTape() as tape:
            hidden, _ = model(tokens, mems, training=True)
            loss = tf.reduce_mean(model.nll(hidden, tokens))
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    mems = model.initial_mems(B)
    seen = dot_flops(gradients.experimental_get_compiler_ir(tokens, mems)(stage="hlo"))
    # The program as it is before XLA optimises it also has gradients of the memory and of the sinusoids, unused.
    kernel = config.d_model * config.n_head * config.d_head
    memory = 0 if config.pre_lnorm or config.attn_type == "alrfou" else 2 * B * config.mem_len * 2 * kernel
    sinusoids = 2 * (config.mem_len + T) * kernel if config.attn_type == "transformer_xl" else 0
    # Shaw's biases of distances are one more coordinate of the vectors they are added to, no operation that is needed.
    scores = B * config.n_head * T * (config.mem_len + T)
    biases = 3 * 2 * scores if config.attn_type == "shaw" else 0
    assert seen == flops.transformer_xl(config, B, T) + config.n_layer * (memory + sinusoids + biases)


def test_flops_of_the_workload_of_the_training_benchmark():
    """Six layers and the softmax, term by term, by hand."""
    config = TransformerXLConfig(vocab_size=204, n_layer=6, mem_len=128)  # D 512, 8 heads of 64, d_inner 2048
    projections_and_feed_forward = 3 * 2 * 8 * 128 * (4 * 512 * 512 + 2 * 512 * 2048)
    memory = 2 * 2 * 8 * 128 * 2 * 512 * 512
    three_score_matmuls = 3 * 3 * 2 * 8 * 128 * 256 * 512
    sinusoids = 2 * 2 * 256 * 512 * 512
    layer = projections_and_feed_forward + memory + three_score_matmuls + sinusoids
    assert flops.transformer_xl(config, 8, 128) == 6 * layer + 3 * 2 * 8 * 128 * 512 * 204 == 145_596_874_752


def test_flops_of_an_adaptive_softmax_and_of_half_the_targets():
    plain = TransformerXLConfig(vocab_size=1000, d_embed=512)
    adaptive = dataclasses.replace(plain, cutoffs=(100, 400), div_val=4)
    head, projections = 3 * 2 * 512 * 102, 2 * 3 * 2 * 512 * 512  # per token; of softmax and embedding
    vocabulary = flops.transformer_xl(adaptive, 1, 64) - flops.transformer_xl(plain, 1, 64) + 64 * 3 * 2 * 512 * 1000
    assert vocabulary == 64 * (head + projections)
    assert flops.transformer_xl(plain, 1, 64) - flops.transformer_xl(plain, 1, 64, scored=32) == 32 * 3 * 2 * 512 * 1000


@pytest.mark.xla
def test_flops_of_an_xlnet_are_those_of_the_matmuls_that_xla_sees(sums_are_sums):
    """But for what the model does not need: see the terms."""
    config = XLNetConfig(17, 3, 8, 2, 4, 12, dropout=0.0, dropatt=0.0, mem_len=4, reuse_len=3)
    model, predictions = XLNet(config), 2
    tokens, targets = tf.zeros([B, T], tf.int32), tf.constant([[1, 3]] * B)
    visible = tf.linalg.band_part(tf.ones([B, T, T]), -1, 0) > 0

    @tf.function(jit_compile=True)
    def gradients(tokens, mems):
        with tf.GradientTape() as tape:
            read = {"text": Text(visible=visible), "targets": targets, "rows": "query", "training": True}
            _, query, _ = model(tokens, mems, **read)
            loss = tf.reduce_mean(model.nll(query, targets))
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    seen = dot_flops(gradients.experimental_get_compiler_ir(tokens, model.initial_mems(B))(stage="hlo"))
    needed = flops.xlnet(config, B, T, predictions)
    k_len, width, layers = config.mem_len + T, config.n_head * config.d_head, config.n_layer
    # Distances are K + T - 1, of which a query meets K. Gradients of memory and sinusoids are not used.
    rows = (layers - 1) * T + layers * predictions  # the last layer has only the query stream
    distances = 3 * 2 * B * rows * (T - 1) * width
    unused = layers * (2 * B * config.mem_len * 2 + 2 * (k_len + T - 1)) * config.d_model * width
    assert seen == needed + distances + unused


def test_flops_of_xlnet_base_by_hand():
    """Per token of a segment: 12 layers, the last of which computes 85 rows of 512, and the logits of those."""
    config = XLNetConfig()
    projections = 2 * 768 * 768 + 2 * 768 * 3072
    rows = 3 * 2 * (projections + 896 * 3 * 768)
    keys = (3 * 512 + 2 * 384) * 2 * 2 * 768 * 768 + 2 * 2 * 1407 * 768 * 768
    by_hand = 11 * 597 * rows + 85 * rows + 12 * keys + 3 * 2 * 85 * 768 * 32_000
    assert flops.xlnet(config, 1, 512, 85) == by_hand == 435_402_178_560
