"""Hugging Face's problem_type multi_label_classification: the numbers of their class, and of the exported model."""

import numpy as np
import pytest
import tensorflow as tf
import xlnet_files

from txl_tf import families

NAMED = {"problem_type": "multi_label_classification", "id2label": {"0": "b", "1": "a", "2": "c"}}
LABELS = [[1, 0, 1], [0, 0, 0]]
LOGITS = [[1.6774707, 2.4209787, 0.5804034], [0.2404297, 2.8572193, 2.0174922]]
LOSS = 1.4996404
"""What Hugging Face's class (transformers 4.35 and 5.24, PyTorch 2.13) makes of `fixed_case` and LABELS."""


def fixed_case():
    """Weights, tokens, segments and padding that are always the same."""
    rng, d_model, shape = np.random.default_rng(57), xlnet_files.D, [2, xlnet_files.T]
    head = {f"{name}/kernel": rng.normal(size=[d_model, n]) for name, n in (("summary", d_model), ("logits", 3))}
    head |= {f"{name}/bias": rng.normal(size=[n]) for name, n in (("summary", d_model), ("logits", 3))}
    weights = xlnet_files.random_weights(rng) | xlnet_files.to_float32(head)
    tokens, segments = rng.integers(0, xlnet_files.V, shape), rng.integers(0, 3, shape)
    return weights, tokens, segments, np.arange(xlnet_files.T) < np.array([[0], [2]])


def test_logits_and_loss_are_hugging_faces(tmp_path):
    weights, tokens, segments, padding = fixed_case()
    xlnet_files.write_hugging_face(tmp_path, xlnet_files.huggingface_tensors(weights), **NAMED)
    model, config = xlnet_files.imported(tmp_path, "huggingface")
    assert config.task == "multi_label"
    batch = {"tokens": tokens, "segments": segments, "padding": padding, "label": np.array(LABELS)}
    batch = {name: tf.constant(value) for name, value in batch.items()}
    found = families.task_of(config).outputs(model, batch, config)
    probabilities = found["probabilities"].numpy()
    np.testing.assert_allclose(np.log(probabilities / (1 - probabilities)), LOGITS, rtol=0, atol=1e-5)
    assert np.mean(found["loss"]) == pytest.approx(LOSS, abs=1e-5)
