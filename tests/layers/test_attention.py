import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.layers.attention import RelMultiHeadAttention
from txl_tf.layers.masks import visible_keys
from txl_tf.layers.positions import key_distances, sinusoids

B, T, M, D, H, D_HEAD = 2, 5, 7, 12, 3, 4


@pytest.fixture
def layer():
    keras.utils.set_random_seed(0)
    layer = RelMultiHeadAttention(H, D_HEAD, init_std=0.5, dtype="float64")
    layer.build((B, T, D))
    return layer


@pytest.fixture
def inputs(rng):
    return tf.constant(rng.normal(size=[B, T, D])), tf.constant(rng.normal(size=[B, M, D]))


@pytest.mark.parametrize("window", [None, M + 1, M, 2])
@pytest.mark.parametrize("clamp_len", [-1, 3])
def test_equals_the_paper(layer, inputs, window, clamp_len):
    hidden, mems = inputs
    positions = sinusoids(key_distances(M + T, clamp_len), D, tf.float64)
    got = layer(hidden, mems, positions, visible_keys(T, M, window))
    weights, mask = reference.attention_weights(layer), reference.visible(T, M, window)
    for b in range(B):
        want = reference.attention(hidden[b].numpy(), mems[b].numpy(), weights, mask, clamp_len)
        np.testing.assert_allclose(got[b], want, rtol=0, atol=1e-8)


@pytest.mark.parametrize("m_len", [0, M])
def test_defaults_are_causal_with_sinusoids(layer, inputs, m_len):
    hidden, mems = inputs
    got = layer(hidden, mems[:, M - m_len :])
    explicit = layer(hidden, mems[:, M - m_len :], sinusoids(key_distances(m_len + T), D), visible_keys(T, m_len))
    np.testing.assert_allclose(got, explicit, atol=1e-6)
    if not m_len:
        np.testing.assert_array_equal(got, layer(hidden))


def test_each_of_the_four_terms_counts(layer, inputs):
    hidden, mems = inputs
    full = layer(hidden, mems)
    for weight in (layer.key_kernel, layer.position_kernel, layer.content_bias, layer.position_bias):
        saved = weight.numpy()
        weight.assign(np.zeros_like(saved))
        assert np.abs(layer(hidden, mems) - full).max() > 1e-3, weight.name
        weight.assign(saved)


def test_jacobian_is_the_mask(layer, inputs):
    hidden, mems = inputs
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        output = layer(hidden, mems)
    jacobian = tape.jacobian(output, hidden).numpy()  # [B, T, D, B, T, D]
    depends = np.abs(jacobian).max(axis=(2, 5)) > 1e-12
    for b in range(B):
        for other in range(B):
            want = np.tril(np.ones([T, T], bool)) if b == other else np.zeros([T, T], bool)
            np.testing.assert_array_equal(depends[b, :, other], want)


@pytest.mark.parametrize("window", [None, M + 1, 3])
def test_which_memory_slots_matter_is_the_mask(layer, inputs, window):
    hidden, mems = inputs
    mask = visible_keys(T, M, window)
    before = layer(hidden, mems, attention_mask=mask)
    for j in range(M):
        moved = mems.numpy()
        moved[:, j] += 1
        changed = np.abs(layer(hidden, moved, attention_mask=mask) - before).max(axis=(0, 2)) > 1e-9
        np.testing.assert_array_equal(changed, [reference.is_visible(i, j, M, window) for i in range(T)])


def test_no_gradient_flows_into_memory(layer, inputs):
    hidden, mems = inputs
    with tf.GradientTape() as tape:
        tape.watch(mems)
        output = layer(hidden, mems)
    assert tape.gradient(output, mems) is None


def test_gradients_are_those_of_finite_differences(layer, inputs, rng):
    hidden, mems = inputs
    direction = rng.normal(size=[B, T, D])

    def loss():
        return tf.reduce_sum(layer(hidden, mems) * direction)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, [weight.value for weight in layer.trainable_weights])
    for weight, gradient in zip(layer.trainable_weights, gradients, strict=True):
        saved, step = weight.numpy(), rng.normal(size=weight.shape)
        weight.assign(saved + 1e-6 * step)
        above = loss()
        weight.assign(saved - 1e-6 * step)
        slope = (above - loss()) / 2e-6
        weight.assign(saved)
        np.testing.assert_allclose(tf.reduce_sum(gradient * step), slope, rtol=1e-5, err_msg=weight.name)


def test_dropatt_drops_only_in_training_and_repeats_with_its_seed(inputs):
    hidden, mems = inputs
    layer = RelMultiHeadAttention(H, D_HEAD, dropatt=0.5, dtype="float64")
    plain = layer(hidden, mems)
    np.testing.assert_array_equal(layer(hidden, mems), plain)
    once, again, other = (layer(hidden, mems, seed=tf.constant([1, n]), training=True) for n in (2, 2, 3))
    np.testing.assert_array_equal(once, again)
    assert np.abs(once - other).max() > 1e-4
    assert np.abs(once - plain).max() > 1e-4


def test_in_a_strangers_functional_model(tmp_path, rng):
    segment, memory = keras.Input([T, D]), keras.Input([M, D])
    attended = RelMultiHeadAttention(n_head=H, d_head=D_HEAD, clamp_len=4, same_length=True)(segment, mems=memory)
    model = keras.Model([segment, memory], keras.layers.Dense(2)(attended))
    data = [rng.normal(size=[B, n, D]).astype("float32") for n in (T, M)]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(data, verbose=0), model.predict(data, verbose=0))
    model.compile("adam", "mse")
    model.fit(data, rng.normal(size=[B, T, 2]), epochs=1, verbose=0)


@pytest.mark.parametrize("shapes", [{"n_head": 0, "d_head": 4}, {"n_head": 2, "d_head": -1}])
def test_refuses_sizes_that_are_none(shapes):
    with pytest.raises(ValueError, match="must be positive"):
        RelMultiHeadAttention(**shapes)


def test_refuses_positions_of_another_length(layer, inputs):
    hidden, mems = inputs
    with pytest.raises(ValueError, match=f"{M + T} keys .* got {T}"):
        layer(hidden, mems, positions=tf.zeros([T, D], tf.float64))
