"""The objective of answering questions, against NumPy."""

import numpy as np
import pytest
import reference_xlnet as reference
import tensorflow as tf
import xlnet_models

from txl_tf.layers.dropout import Seeds
from txl_tf.models.xlnet.head_config import XLNetAnswersConfig
from txl_tf.models.xlnet.with_head import XLNetWithAnswers
from txl_tf.tasks.answering import Answering, XLNetAnsweringConfig

B, T, V, D = 3, 9, 11, 8
WEIGHT = np.array([1.0, 0.5, 0.0])


@pytest.fixture(scope="module")
def weights():
    """The weights of the body and, by path, of the head."""
    rng = np.random.default_rng(5)
    shapes = {"start": [D, 1], "end_inner": [2 * D, D], "end_outer": [D, 1], "impossible_inner": [2 * D, D]}
    head = {f"{name}/kernel": rng.normal(size=shape) for name, shape in shapes.items()}
    head |= {f"{name}/bias": rng.normal(size=shape[1]) for name, shape in shapes.items()}
    head |= {"impossible_outer/kernel": rng.normal(size=[D, 1])}
    head |= {"end_norm/gamma": 1 + 0.3 * rng.normal(size=D), "end_norm/beta": rng.normal(size=D)}
    return reference.random_weights(rng, V, d_model=D), head


@pytest.fixture(scope="module")
def objective(weights):
    config = XLNetAnswersConfig(
        V, 2, D, 2, 4, 12, dtype="float64", dropout=0.0, dropatt=0.0, start_n_top=3, end_n_top=2
    )
    model = XLNetWithAnswers(config)
    xlnet_models.set_weights(model.body, weights[0])
    for variable in model.head.variables:
        variable.assign(weights[1][variable.path.split("/head/")[1]])
    return Answering().objective(model, XLNetAnsweringConfig(config))


@pytest.fixture(scope="module")
def batch():
    """An answer inside, none, and a row that fills the batch."""
    rng = np.random.default_rng(6)
    allowed = np.zeros([B, T], bool)
    allowed[:, :4] = allowed[[0, 1, 2], [7, 6, 6]] = True
    padding = np.arange(T) > np.array([[7], [6], [6]])
    return {
        "tokens": rng.integers(0, V, [B, T]).astype(np.int32),
        "segments": rng.integers(0, 4, [B, T]).astype(np.int32),
        "padding": padding,
        "allowed": allowed,
        "cls_index": np.array([7, 6, 6], np.int32),
        "start": np.array([1, 6, 6], np.int32),
        "end": np.array([3, 6, 6], np.int32),
        "impossible": np.array([False, True, True]),
        "weight": WEIGHT.astype(np.float32),
    }


def expected_losses(batch, body, head):
    """The loss of each example, from the equations."""
    head, losses = {name.replace("_", "/", 1): array for name, array in head.items()}, []
    for b in range(B):
        tokens, segments, allowed, cls_index, start, end, impossible = (
            batch[name][b] for name in ("tokens", "segments", "allowed", "cls_index", "start", "end", "impossible")
        )
        hidden = reference.xlnet(body, tokens, segments=segments, real=~batch["padding"][b]).content[-1]
        logit = reference.impossible_logit(head, hidden, allowed, cls_index)
        losses.append(
            -0.5 * reference.log_softmax(reference.start_logits(head, hidden, allowed))[start]
            - 0.5 * reference.log_softmax(reference.end_logits(head, hidden, allowed, start))[end]
            + 0.5 * np.log1p(np.exp(-logit if impossible else logit))
        )
    return np.array(losses)


def tensors(batch):
    return {name: tf.constant(array) for name, array in batch.items()}


def outputs(objective, batch):
    return Answering().outputs(objective.model, batch, objective.config)


def test_the_loss_is_the_reference_s(objective, weights, batch):
    losses = expected_losses(batch, *weights)
    assert losses.min() > 0.1
    loss = objective(tensors(batch), (), None, False)
    np.testing.assert_allclose(loss.total, losses @ WEIGHT, rtol=1e-6)
    assert loss.weight == WEIGHT.sum() and loss.state == ()
    np.testing.assert_allclose(outputs(objective, tensors(batch))["loss"], losses, rtol=1e-6)


def test_the_gradient_is_that_of_finite_differences(objective, weights, batch):
    """Along a random direction of all the head's weights and the token embedding."""
    rng, (body, head) = np.random.default_rng(7), weights
    turn = {name: rng.normal(size=array.shape) for name, array in head.items()}
    turn_embedding = rng.normal(size=body["embedding"].shape)

    def total(step):
        moved = body | {"embedding": body["embedding"] + step * turn_embedding}
        return expected_losses(batch, moved, {name: array + step * turn[name] for name, array in head.items()}) @ WEIGHT

    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        loss = objective(tensors(batch), (), None, True).total
    slope = 0.0
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        name = variable.path.split("/head/")[-1]
        if "/head/" in variable.path:
            slope += np.sum(gradient * turn[name])
        elif name.endswith("embedding/table_0"):
            slope += np.sum(tf.convert_to_tensor(gradient) * turn_embedding)
    step = 1e-5
    assert slope == pytest.approx((total(step) - total(-step)) / (2 * step), rel=1e-6)


def test_outputs_are_the_most_likely_spans(objective, weights, batch):
    found = outputs(objective, {name: tensor for name, tensor in tensors(batch).items() if name != "start"})
    assert "loss" not in found
    head = {name.replace("_", "/", 1): array for name, array in weights[1].items()}
    for b in range(B):
        hidden = reference.xlnet(
            weights[0], batch["tokens"][b], segments=batch["segments"][b], real=~batch["padding"][b]
        ).content[-1]
        starts = reference.log_softmax(reference.start_logits(head, hidden, batch["allowed"][b]))
        assert found["start"][b].numpy().tolist() == np.argsort(-starts)[:3].tolist()
        for s, start in enumerate(found["start"][b].numpy()):
            ends = reference.log_softmax(reference.end_logits(head, hidden, batch["allowed"][b], start))
            assert found["end"][b, s].numpy().tolist() == np.argsort(-ends)[:2].tolist()
            np.testing.assert_allclose(found["end_log_prob"][b, s], np.sort(-ends)[:2] * -1, rtol=1e-6)


def test_what_fills_a_batch_does_not_count(objective, batch):
    changed = batch | {"tokens": batch["tokens"].copy(), "start": batch["start"].copy()}
    changed["tokens"][2, :4], changed["start"][2] = 1, 0
    one, other = (objective(tensors(own), (), Seeds(None, None), False) for own in (batch, changed))
    np.testing.assert_allclose(one.total, other.total, rtol=1e-12)
