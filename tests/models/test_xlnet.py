import dataclasses
import math

import keras
import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf
import xlnet_models

from txl_tf.errors import InputError
from txl_tf.families.presets.xlnet import PRESETS
from txl_tf.layers.dropout import Seeds
from txl_tf.layers.segment_attention import SegmentAttention
from txl_tf.models.memory import Mems
from txl_tf.models.xlnet.config import XLNetConfig, XLNetRunConfig
from txl_tf.models.xlnet.model import Text, XLNet
from txl_tf.settings.pretraining import PairsConfig

B, T, P, M, R, V, D = 2, 6, 3, 5, 3, 11, 8
NO_PLACE = -1


def small_weights(rng, **options):
    return reference.random_weights(rng, V, d_model=D, **options)


def orders(rng, reuse_len=R):
    """Random ranks and kinds [B, T], and what is visible [B, T, T]."""
    parts = (reuse_len, T - reuse_len)
    rank = np.stack([np.concatenate([rng.permutation(n) for n in parts]) for _ in range(B)])
    kind = rng.integers(0, 3, [B, T])
    visible = [reference.permutation_visible(*lane, reuse_len) for lane in zip(rank, kind, strict=True)]
    return rank, kind, np.stack(visible)


def inputs(rng, reuse_len=R):
    """Arguments that the reference and `xlnet_models.read` share."""
    real = np.ones([B, T], bool)
    real[0, :1] = real[1, -1:] = False
    return {
        "tokens": rng.integers(0, V, [B, T]),
        "segments": rng.integers(0, 4, [B, T]),
        "visible": orders(rng, reuse_len)[2],
        "real": real,
        "targets": np.array([[0, 2, 5], [4, 1, NO_PLACE]]),
        "directions": [1, -1],
    }


def assert_equal_to_the_reference(model, weights, steps, start=None, left_out=(), **settings):
    """Steps of one text, of both streams, memories and log-probabilities."""
    memory, past = start, [start and [layer[b] for layer in start] for b in range(B)]
    for step in steps:
        step = {name: value for name, value in step.items() if name not in left_out}
        rows = xlnet_models.read(model, memory=memory, **step)
        directions = step.get("directions", [1] * B)
        for b, row in enumerate(rows):
            lane = {name: value[b] for name, value in step.items() if name != "directions"}
            want = reference.xlnet(weights, memory=past[b], direction=directions[b], **lane, **settings)
            past[b] = want.memory if settings.get("mem_len") else None
            for mine, theirs in zip(row, want, strict=True):
                assert len(mine) == len(theirs)
                for one, other in zip(mine, theirs, strict=True):
                    np.testing.assert_allclose(one, other, rtol=0, atol=3e-8)
            log_probs = model.log_prob(tf.constant(row.output))
            np.testing.assert_allclose(log_probs, reference.log_probs(weights, want.output), rtol=0, atol=1e-6)
        memory = [np.stack(layer) for layer in zip(*(row.memory for row in rows), strict=True)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"untie_r": False},
        {"clamp_len": 2},
        {"activation": "relu"},
        {"activation": "gelu"},
        {"reuse_len": 0},
        {"mem_len": 8},
        {"mem_len": 2},
        {"mem_init": "empty", "mem_len": 8},
        {"mem_len": 0},
    ],
    ids=str,
)
def test_three_steps_equal_the_numpy_reference(rng, options):
    settings = {"mem_len": M, "reuse_len": R} | options
    weights = small_weights(rng, untie_r=settings.pop("untie_r", True))
    model = xlnet_models.make_model(weights, **settings)
    steps, start = [inputs(rng) for _ in range(3)], None
    if settings.pop("mem_init", "zeros") == "empty":
        steps[0]["visible"][0] = False  # these queries attend to the whole segment, and to no empty slot
    elif settings["mem_len"]:
        start = [np.zeros([B, settings["mem_len"], D])] * 2
    functions = {"relu": reference.relu, "gelu": reference.gelu, "gelu_tanh": reference.gelu_tanh}
    settings["activation"] = functions[settings.get("activation", "gelu_tanh")]
    assert_equal_to_the_reference(model, weights, steps, start, **settings)


@pytest.mark.parametrize(
    "left_out",
    [("targets",), ("segments",), ("visible",), ("real",), ("directions",), ("targets", "visible", "real")],
    ids=str,
)
def test_what_may_be_left_out(rng, left_out):
    weights = small_weights(rng)
    model = xlnet_models.make_model(weights, mem_len=M)
    start = list(rng.normal(size=[2, B, M, D]))
    assert_equal_to_the_reference(model, weights, [inputs(rng)], start, left_out, mem_len=M)


def test_a_query_that_sees_no_key_attends_to_all_alike(rng):
    weights = small_weights(rng)
    step = inputs(rng) | {"visible": np.zeros([B, T, T], bool)}
    assert_equal_to_the_reference(xlnet_models.make_model(weights), weights, [step])


def call(model, step, **changes):
    """A model's call with the arguments of `inputs`."""
    step = {name: tf.constant(value) for name, value in step.items()}
    arguments = {name: tf.cast(step[name], tf.int32) for name in ("segments", "targets")}
    arguments |= {"visible": step["visible"], "padding": ~step["real"], "backward": step["directions"] < 0}
    mems, arguments = changes.pop("mems", None), arguments | changes
    text = Text(*(arguments.pop(name) for name in Text._fields))
    return model(tf.cast(step["tokens"], tf.int32), mems, text=text, **arguments)


def loss_of(model, step, **changes):
    """The summed loss of all predictions; where `targets` is -1 there is none."""
    targets = tf.cast(changes.pop("targets", step["targets"]), tf.int32)
    labels = tf.gather(tf.cast(step["tokens"], tf.int32), tf.maximum(targets, 0), batch_dims=1)
    _, query, _ = call(model, step, targets=targets, **changes)
    return tf.reduce_sum(model.nll(query, tf.where(targets >= 0, labels, -1)))


def gradients_of(model, loss):
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, [weight.value for weight in model.trainable_variables])
    return value, [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.mark.parametrize("untie_r", [True, False])
def test_gradients_are_those_of_finite_differences(rng, untie_r):
    model = xlnet_models.make_model(small_weights(rng, untie_r=untie_r), mem_len=M, reuse_len=R)
    step = inputs(rng)
    _, _, mems = call(model, inputs(rng), mems=model.initial_mems(B))

    @tf.function
    def loss():
        return loss_of(model, step, mems=mems)

    _, gradients = gradients_of(model, loss)
    for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert np.abs(gradient).max() > 1e-6, weight.path
        saved, way = weight.numpy(), rng.normal(size=weight.shape)
        weight.assign(saved + 1e-6 * way)
        above = loss()
        weight.assign(saved - 1e-6 * way)
        slope = (above - loss()) / 2e-6
        weight.assign(saved)
        np.testing.assert_allclose(np.sum(gradient * way), slope, rtol=1e-5, atol=1e-8, err_msg=weight.path)


def test_the_jacobian_is_the_visible_set(rng):
    """With two layers a token also sees what the tokens it sees have seen. No query moves with its own token."""
    model = xlnet_models.make_model(small_weights(rng), mem_len=M, reuse_len=R)
    _, kind, visible = orders(rng)
    tokens = tf.constant([list(range(T))] * B)  # every token of its own, so that its row is its place
    table = model.embedding.tables[0].value
    with tf.GradientTape(persistent=True) as tape:
        content, query, _ = model(
            tokens,
            model.initial_mems(B),
            text=Text(visible=tf.constant(visible), backward=tf.constant([False, True])),
            targets=tf.constant([list(range(T))] * B),
        )
    assert (kind == 2).any() and (kind == 1).any()
    for stream, itself in ((query, np.zeros([T, T], bool)), (content, np.eye(T, dtype=bool))):
        depends = np.abs(tape.jacobian(stream, table)).max(axis=(2, 4))[:, :, :T] > 1e-12
        np.testing.assert_array_equal(depends, visible | itself)


def test_nothing_of_the_first_part_moves_with_the_second(rng):
    model = xlnet_models.make_model(small_weights(rng), mem_len=M, reuse_len=R)
    step = inputs(rng) | {"targets": np.array([[0, 1, 2]] * B), "real": np.ones([B, T], bool)}
    other = step | {"tokens": np.concatenate([step["tokens"][:, :R], (step["tokens"][:, R:] + 1) % V], axis=1)}
    one, two = (call(model, each, mems=model.initial_mems(B)) for each in (step, other))
    np.testing.assert_array_equal(one[0][:, :R], two[0][:, :R])
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_array_equal(one[2].hidden, two[2].hidden)
    assert np.abs(one[0] - two[0]).max() > 1e-2


def test_predictions_without_a_place_add_nothing(rng):
    model, step = xlnet_models.make_model(small_weights(rng)), inputs(rng)
    targets = np.array([[0, 2], [4, 1]])
    value, gradients = gradients_of(model, lambda: loss_of(model, step, targets=targets))
    padded = np.array([[0, NO_PLACE, 2, NO_PLACE], [NO_PLACE, 4, 1, NO_PLACE]])
    again, same = gradients_of(model, lambda: loss_of(model, step, targets=padded))
    np.testing.assert_allclose(again, value, rtol=1e-14)
    for one, other in zip(gradients, same, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)
    nothing, zeros = gradients_of(model, lambda: loss_of(model, step, targets=np.full([B, 2], NO_PLACE)))
    assert nothing == 0 and not any(gradient.any() for gradient in zeros)
    assert np.isfinite(call(model, step, targets=tf.fill([B, 2], NO_PLACE))[1]).all()


def test_the_content_stream_does_not_feel_the_query_stream(rng):
    model, step = xlnet_models.make_model(small_weights(rng), mem_len=M), inputs(rng)
    both = call(model, step, mems=model.initial_mems(B))
    alone, nothing, mems = call(model, step, targets=None, mems=model.initial_mems(B))
    assert nothing is None
    np.testing.assert_allclose(alone, both[0], atol=1e-14)
    np.testing.assert_allclose(mems.hidden, both[2].hidden, atol=1e-14)


@pytest.mark.parametrize("remat", [False, True])
def test_the_last_layer_can_be_spared_the_content_stream(rng, remat):
    model = xlnet_models.make_model(small_weights(rng), mem_len=M, reuse_len=R, remat=remat)
    step, mems = inputs(rng), model.initial_mems(B)
    content, query, new = call(model, step, mems=mems, rows="query")
    _, want, want_new = call(model, step, mems=mems)
    assert content is None
    np.testing.assert_allclose(query, want, atol=1e-14)
    np.testing.assert_allclose(new.hidden, want_new.hidden, atol=1e-14)
    _, gradients = gradients_of(model, lambda: loss_of(model, step, mems=mems, rows="query", training=True))
    _, wanted = gradients_of(model, lambda: loss_of(model, step, mems=mems))
    for one, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_the_last_layer_can_be_spared_all_tokens_but_the_last(rng):
    """With the same dropout of attention, and all gradients; also beside a query stream."""
    model = xlnet_models.make_model(small_weights(rng), dropatt=0.3, mem_len=M)
    step, results = inputs(rng), []
    mems = Mems(tuple(tf.constant(rng.normal(size=[B, M, D])) for _ in model.decoder_layers), tf.constant([M, M]))

    def loss(rows):
        seed = tf.constant([[1, 2], [5, 6]])
        content, query, _ = call(model, step, mems=mems, rows=rows, seed=seed, training=True)
        assert content.shape[1] == (1 if rows == "last" else T)
        rows = tf.concat([content[:, -1:], query], 1)
        return tf.reduce_sum(model.nll(rows, tf.ones([B, 1 + P], tf.int32)))

    for rows in ("last", "all"):
        value, gradients = gradients_of(model, lambda rows=rows: loss(rows))
        results.append([value, *gradients])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def test_text_that_runs_backward_is_read_as_the_text_itself(rng):
    model, step = xlnet_models.make_model(small_weights(rng)), inputs(rng)
    turned = {name: step[name][:, ::-1] for name in ("tokens", "segments", "real")}
    turned |= {"visible": step["visible"][:, ::-1, ::-1], "directions": [-1, 1]}
    turned["targets"] = np.where(step["targets"] < 0, NO_PLACE, T - 1 - step["targets"])
    content, query, _ = call(model, step)
    mirrored, mirrored_query, _ = call(model, step | turned)
    np.testing.assert_allclose(mirrored[:, ::-1], content, atol=1e-12)
    np.testing.assert_allclose(mirrored_query, query, atol=1e-12)
    forward = call(model, step, backward=None)[0]
    np.testing.assert_allclose(forward[0], content[0], atol=1e-12)
    assert np.abs(forward[1] - content[1]).max() > 1e-2


def test_only_whether_segments_differ_matters(rng):
    model, step = xlnet_models.make_model(small_weights(rng)), inputs(rng)
    before = call(model, step)[1]
    renamed = np.array([5, 7, 0, 2])[step["segments"]]
    np.testing.assert_allclose(call(model, step | {"segments": renamed})[1], before, atol=1e-12)
    for layer in model.decoder_layers:
        table = layer.attention.segment_table
        table.assign(table + rng.normal(size=[1, *table.shape[1:]]))
    np.testing.assert_allclose(call(model, step)[1], before, atol=1e-12)
    assert np.abs(call(model, step, segments=None)[1] - before).max() > 1e-2


def test_bfloat16_loses_little(rng):
    weights, step = small_weights(rng), inputs(rng)
    exact, rough = (
        loss_of(xlnet_models.make_model(weights, dtype=dtype), step, seed=tf.constant([1, 2]))
        for dtype in ("float32", "mixed_bfloat16")
    )
    np.testing.assert_allclose(rough, exact, rtol=1e-2)


def test_dropout_belongs_to_the_lane(rng):
    """Two groups of lanes, read one after the other, are one batch."""
    model = xlnet_models.make_model(small_weights(rng), dropout=0.3, dropatt=0.3)
    step = inputs(rng)
    shared, lanes = tf.constant([3, 4]), tf.constant([[1, 2], [5, 6]])
    whole = call(model, step, seed=Seeds(shared, lanes), training=True)
    for b in range(B):
        own = {name: np.asarray(value)[b : b + 1] for name, value in step.items()}
        part = call(model, own, seed=Seeds(shared, lanes[b : b + 1]), training=True)
        for mine, theirs in zip(part[:2], whole[:2], strict=True):
            np.testing.assert_allclose(mine[0], theirs[b], atol=1e-12)
    assert np.abs(whole[1] - call(model, step)[1]).max() > 1e-2
    streams_differ = call(model, step, seed=Seeds(shared, lanes), training=True, targets=tf.constant([[1, 1]] * B))[1]
    assert np.abs(streams_differ[:, 0] - streams_differ[:, 1]).max() > 1e-2


def test_a_tpu_s_formulation_is_the_same_function(rng, on_device):
    """Queries moved to their tokens' rows, and directions as a sign, with the same dropout: loss and all gradients."""
    model = xlnet_models.make_model(small_weights(rng), dropout=0.3, dropatt=0.3, mem_len=M)
    step, lanes, results = inputs(rng), tf.constant([[1, 2], [5, 6]]), []
    mems = Mems(tuple(tf.constant(rng.normal(size=[B, M, D])) for _ in model.decoder_layers), tf.constant([M, M]))
    step |= {"targets": np.array([[0, 2, 5, 1], [4, 1, 3, NO_PLACE]])}

    def loss():
        content, query, _ = call(model, step, mems=mems, seed=Seeds(tf.constant([3, 4]), lanes), training=True)
        return tf.reduce_sum(model.nll(tf.concat([content, query], 1), tf.ones([B, T + 4], tf.int32)))

    for on_tpu in (False, True):
        on_device("tpu" if on_tpu else "cpu")
        value, gradients = gradients_of(model, loss)
        results.append([value, *gradients])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_counts_of_presets(name, monkeypatch):
    config, counted = PRESETS[name].config.model, []

    def count_only(layer, name=None, shape=None, **kwargs):  # up to 360 million weights: counted, not made
        counted.append(math.prod(shape))

    monkeypatch.setattr(keras.layers.Layer, "add_weight", count_only)
    XLNet(config)
    width, inner = config.d_model, config.d_inner
    layer = 5 * width**2 + 4 * width + 2 * width * inner + inner + width + 5 * width
    by_formula = config.vocab_size * (width + 1) + width + config.n_layer * layer
    assert sum(counted) == by_formula == PRESETS[name].parameters


def test_names_of_weights():
    """Importing and exporting rely on these names."""
    config = XLNetConfig(vocab_size=V, n_layer=1, d_model=D, n_head=2, d_head=4, d_inner=12)
    biases = {"content_bias", "position_bias", "segment_bias"}
    attention = {"query_kernel", "key_kernel", "value_kernel", "position_kernel", "output_kernel", "segment_table"}
    rest = {f"{norm}/{part}" for norm in ("attention_norm", "feed_forward_norm") for part in ("gamma", "beta")}
    rest |= {f"feed_forward/{dense}/{part}" for dense in ("inner", "outer") for part in ("kernel", "bias")}
    top = {"embedding/table_0", "mask_embedding", "softmax/bias_0"}
    for untie_r in (True, False):
        want = top | {f"layer_0/attention/{name}" for name in attention} | {f"layer_0/{name}" for name in rest}
        want |= {f"layer_0/attention/{name}" if untie_r else name for name in biases}
        model = XLNet(dataclasses.replace(config, untie_r=untie_r))
        assert {variable.path.removeprefix("xlnet/") for variable in model.variables} == want


def test_model_is_rebuilt_from_its_config(rng):
    model, step = xlnet_models.make_model(small_weights(rng)), inputs(rng)
    twin = XLNet.from_config(model.get_config())
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(call(twin, step)[1], call(model, step)[1])
    layer = SegmentAttention.from_config(model.attention.get_config())
    assert layer.bidirectional and layer.n_head == 2


def test_attention_can_be_looked_at(rng):
    model, step = xlnet_models.make_model(small_weights(rng), mem_len=M), inputs(rng)
    seen = {}
    call(model, step, mems=model.initial_mems(B), look=lambda i, probabilities: seen.update({i: probabilities}))
    assert list(seen) == [0, 1] and seen[1].shape == [B, 2, T + P, M + T]
    visible, used = step["visible"] & step["real"][:, None], step["targets"] != NO_PLACE
    rows = np.stack([lane[np.maximum(places, 0)] for lane, places in zip(visible, step["targets"], strict=True)])
    visible = np.concatenate([visible | np.eye(T, dtype=bool), rows & used[..., None]], axis=1)
    np.testing.assert_array_equal(seen[0][:, 0, :, M:].numpy() > 0, visible)
    total = np.concatenate([np.ones([B, T]), used], axis=1)
    np.testing.assert_allclose(tf.reduce_sum(seen[1], -1), np.broadcast_to(total[:, None], [B, 2, T + P]), atol=1e-12)


@pytest.mark.xla
def test_xla_gives_the_same(rng):
    model = xlnet_models.make_model(small_weights(rng), mem_len=M, reuse_len=R, dtype="float32")
    step, mems = inputs(rng), model.initial_mems(B)

    @tf.function(jit_compile=True)
    def compiled(mems):
        with tf.GradientTape() as tape:
            loss = loss_of(model, step, mems=mems, rows="query")
        return loss, tape.gradient(loss, model.mask_embedding.value)

    loss, gradient = compiled(mems)
    want, gradients = gradients_of(model, lambda: loss_of(model, step, mems=mems))
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    place = [variable.path for variable in model.trainable_variables].index("xlnet/mask_embedding")
    np.testing.assert_allclose(gradient, gradients[place], atol=1e-5)


def test_wrong_inputs_are_refused(rng):
    model = xlnet_models.make_model(small_weights(rng), mem_len=M)
    tokens = tf.zeros([B, T], tf.int32)
    with pytest.raises(ValueError, match=r"tokens must be integers \[B, T\]"):
        model(tf.zeros([B, T]))
    with pytest.raises(ValueError, match="mems must be 2 tensors"):
        model(tokens, model.initial_mems(B + 1))
    with pytest.raises(ValueError, match="rows='query' needs targets"):
        model(tokens, rows="query")
    with pytest.raises(ValueError, match="states needs a target"):
        model.nll(tf.zeros([B, P, D]), tf.zeros([B, P + 1], tf.int32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: XLNetConfig(d_model=7), "d_model=7 must be even"),
        (lambda: XLNetConfig(dropatt=1.0), "dropatt=1.0 must be at least 0 and below 1"),
        (lambda: XLNetConfig(reuse_len=-1), "reuse_len=-1 must be at least 0"),
        (lambda: XLNetConfig(activation="tanh"), "activation is 'tanh'; choose from"),
        (lambda: PairsConfig(batch_size=7), "batch_size=7 is odd, and with bi_data half of the lanes read backward"),
        (lambda: XLNetRunConfig().replace(data={"tgt_len": 256}), "reuse_len=256 must be from 1 to tgt_len"),
        (lambda: XLNetRunConfig().replace(model={"reuse_len": 300}), "perm_size=256 must be at most reuse_len=300 and"),
        (lambda: XLNetRunConfig().replace(objective={"num_predict": 512}), "num_predict=512 must be below tgt_len=512"),
        (lambda: XLNetRunConfig().replace(objective={"mask_alpha": 1.0}), "mask_alpha=1.0 must be above 1"),
    ],
)
def test_settings_that_make_no_run_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
