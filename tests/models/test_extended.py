"""The extended context against the official formula in NumPy, and segments of random length."""

import dataclasses

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf

from txl_tf.errors import InputError
from txl_tf.models.transformer_xl import extended
from txl_tf.models.transformer_xl.config import Reach
from txl_tf.models.transformer_xl.model import Lengths, TransformerXL

B, LONGEST = 2, 4


def make_model(**changes):
    keras.utils.set_random_seed(3)
    return TransformerXL(dataclasses.replace(reference.SMALL, **changes))


def official(weights, text, lengths, m_len, e_len):
    """One lane: log-probabilities of each segment, by the official PyTorch code's get_batch and _update_mems."""
    layers, width = len(weights["layers"]), weights["embedding"].shape[1]
    memory, start, results = [np.zeros([0, width])] * layers, 0, []
    for length in lengths:
        window = text[max(0, start - e_len) : start + length]
        # With this many masked slots before the memory, the reference returns memory and all new states, concatenated.
        slots = [np.concatenate([np.zeros([len(window), width]), part]) for part in memory]
        log_prob, joined = reference.transformer_xl(weights, window, slots, Reach(m_len), len(memory[0]))
        results.append(log_prob[-length:])
        end = len(memory[0]) + max(0, len(window) - e_len)
        memory = [part[max(0, end - m_len) : end] for part in joined]
        start += length
    return results


@pytest.mark.parametrize("lengths", [[4, 4, 4, 4], [3, 1, 4, 2, 4]], ids=["equal", "random"])
@pytest.mark.parametrize(("m_len", "e_len"), [(0, 5), (0, 2), (3, 2), (4, 6)])
def test_segments_equal_the_official_formula(rng, lengths, m_len, e_len):
    model = make_model(mem_len=m_len, ext_len=e_len, mem_init="empty", same_length_window="pytorch")
    weights, reach = reference.model_weights(model), model.config.reach
    text = rng.integers(0, model.config.vocab_size, [B, sum(lengths)]).astype(np.int32)
    expected = [official(weights, lane, lengths, m_len, e_len) for lane in text]
    state, start, varied = extended.first_state(model, B, reach), 0, len(set(lengths)) > 1
    for number, length in enumerate(lengths):
        segment = np.full([B, LONGEST], 7, np.int32)  # padding with a token that would be noticed
        segment[:, :length] = text[:, start : start + length]
        given = tf.constant(length) if varied else None
        hidden, state = extended.read(model, tf.constant(segment), state, reach, given)
        found = model.log_prob(hidden).numpy()[:, :length]
        np.testing.assert_allclose(found, [lane[number] for lane in expected], atol=1e-8)
        start += length
        assert (state.seen.numpy() == min(start, e_len)).all()


@pytest.mark.parametrize("m_len", [0, 3, 6])
def test_memory_of_segments_of_random_length_is_that_of_the_tokens(rng, m_len):
    """Without extended context: padded segments give what segments of their own lengths give."""
    model = make_model(mem_len=m_len)
    text = rng.integers(0, model.config.vocab_size, [B, 20]).astype(np.int32)
    padded, exact, start = model.initial_mems(B), model.initial_mems(B), 0
    for length in (3, 1, 4, 2):
        segment = np.full([B, LONGEST], 7, np.int32)
        segment[:, :length] = text[:, start : start + length]
        mine, padded = model(tf.constant(segment), padded, lengths=Lengths(segment=tf.constant(length)))
        theirs, exact = model(tf.constant(text[:, start : start + length]), exact)
        np.testing.assert_allclose(mine[:, :length], theirs, atol=1e-10)
        for part, other in zip(padded.hidden, exact.hidden, strict=True):
            np.testing.assert_allclose(part, other, atol=1e-10)
        np.testing.assert_array_equal(padded.length, exact.length)
        start += length


def test_a_gradient_flows_into_the_extended_context_and_not_into_memory(rng):
    """The embedding of a token that stands only before the segment moves, where memory would keep it still."""
    gradients = {}
    for name, changes in {"extended": {"mem_len": 0, "ext_len": 4}, "memory": {"mem_len": 4}}.items():
        model = make_model(**changes)
        reach = model.config.reach
        before, segment = tf.constant([[1, 1, 1, 1]]), tf.constant([[2, 3, 2, 3]])
        with tf.GradientTape() as tape:
            if reach.ext_len:
                _, state = extended.read(model, before, extended.first_state(model, 1, reach), reach)
                hidden, _ = extended.read(model, segment, state, reach)
            else:
                hidden, _ = model(segment, model(before)[1])
            loss = tf.reduce_sum(hidden[..., 0])
        gradients[name] = np.abs(tf.convert_to_tensor(tape.gradient(loss, model.embedding.tables[0].value)))[1].max()
    assert gradients["extended"] > 1e-4 and gradients["memory"] == 0


def test_memory_that_begins_with_zero_vectors_is_refused():
    with pytest.raises(InputError, match=r"ext_len=4 with mem_len=6 needs conventions=official_pytorch"):
        dataclasses.replace(reference.SMALL, ext_len=4)


def test_matrices_of_keys_and_positions_may_be_one(rng):
    """W_kR = W_kE: as the reference with the same matrix for both, and one weight less in each layer."""
    model, usual = make_model(tied_positions=True), make_model()
    assert len(model.weights) == len(usual.weights) - model.config.n_layer
    tokens = rng.integers(0, model.config.vocab_size, [1, 6]).astype(np.int32)
    weights = reference.model_weights(model)
    assert all((layer["r"] == layer["k"]).all() for layer in weights["layers"])
    memory = [np.zeros([6, 8])] * 2
    expected, _ = reference.transformer_xl(weights, tokens[0], memory, model.config.reach)
    np.testing.assert_allclose(model.log_prob(model(tokens)[0])[0], expected, atol=1e-8)
