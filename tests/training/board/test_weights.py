import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from causal_runs import initial_mems, make_host_loop
from reference import SMALL

from txl_tf.devices import distribute
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import TrainConfig
from txl_tf.training.board import weights
from txl_tf.training.board.weights import make_histograms, make_norms
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.step import Sums


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 10.0, "layer_decay": 0.5, "bias_correction": False},
        pytest.param({}, marks=pytest.mark.slow),
    ],
)
def test_update_ratio_is_that_of_the_weights_before_and_after(two_replicas, rng, settings):
    train = TrainConfig(train_steps=20, learning_rate=1e-2, warmup_steps=2, jit_compile=False, **settings)
    with two_replicas.scope():
        model = TransformerXL(dataclasses.replace(SMALL, mem_len=4))
        optimizer = Adam(train, model.trainable_variables)
    norms = make_norms(two_replicas, optimizer)
    assert norms()[1] == 0  # before the first update
    tokens = tf.constant(rng.integers(0, SMALL.vocab_size, [1, 3]), tf.int32)
    batches = distribute.distribute_batches(
        two_replicas, lambda **hosts: tf.data.Dataset.from_tensors((tokens, tokens)).repeat()
    )
    loop, iterator = make_host_loop(two_replicas, model, optimizer, train), iter(batches)
    mems, sums = initial_mems(two_replicas, model, 2), Sums().stacked()
    for _ in range(5):
        before = np.concatenate([weight.ravel() for weight in model.get_weights()])
        mems, sums = loop(iterator, mems, sums, tf.constant(1))
        after = np.concatenate([weight.ravel() for weight in model.get_weights()])
        expected = np.linalg.norm(after), np.linalg.norm(after - before) / np.linalg.norm(after)
        np.testing.assert_allclose(norms(), expected, rtol=1e-6)
    sample = make_histograms(two_replicas, model, optimizer)()
    for group, values in (("weights", after), ("updates", before - after)):
        found = np.concatenate([part for name, part in sample.items() if name.startswith(group)])
        np.testing.assert_allclose(np.sort(found), np.sort(values), rtol=0, atol=1e-6)
    inner = SMALL.n_layer * SMALL.d_model * SMALL.d_inner
    assert sample["weights/layer/feed_forward/inner/kernel"].shape == (inner,)


def test_histograms_take_values_from_every_column():
    values = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
    found = weights._sample(tf.constant(values)).numpy()
    assert weights.SAMPLED / 2 < len(found) <= 2 * weights.SAMPLED
    assert len(np.unique(found % 512)) == 512 and len(np.unique(found // 512)) == 512
