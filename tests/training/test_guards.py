"""Steps without a finite loss or gradient: skipped by all replicas alike, counted, and at last they end the run."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from causal_runs import initial_mems, make_host_loop

from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl.config import TransformerXLConfig, TransformerXLRunConfig
from txl_tf.models.transformer_xl.model import TransformerXL
from txl_tf.settings.run import DataConfig, TrainConfig
from txl_tf.training.loop import train
from txl_tf.training.optimizer.adam import Adam
from txl_tf.training.optimizer.average import WeightAverage
from txl_tf.training.sharding import PartVariable, in_replica
from txl_tf.training.step import Sums, is_good

B, T, POISON = 4, 3, 10
TRAIN = TrainConfig(train_steps=20, learning_rate=1e-2, ema_decay=0.5, jit_compile=False)


@pytest.mark.parametrize(
    ("mem_init", "settings"),
    [
        ("zeros", {}),
        pytest.param("empty", {}, marks=pytest.mark.slow),
        pytest.param("zeros", {"bfloat16_moments": True}, marks=pytest.mark.slow),
        pytest.param(
            "zeros", {"weight_decay": 0.1, "layer_decay": 0.5, "bias_correction": False}, marks=pytest.mark.slow
        ),
        pytest.param("zeros", {"shard_optimizer": True}, marks=pytest.mark.slow),
    ],
)
def test_a_step_that_is_bad_on_one_replica_is_skipped_on_both(rng, two_replicas, mem_init, settings):
    """The embedding of one id is NaN, and only the second replica reads it, in the third step."""
    with two_replicas.scope():
        keras.utils.set_random_seed(5)
        model = TransformerXL(dataclasses.replace(reference.SMALL, tie_weight=False, mem_len=4, mem_init=mem_init))
        table = model.embedding.tables[0]
        table.assign(np.where(np.arange(reference.SMALL.vocab_size)[:, None] == POISON, np.nan, table))
        train_config = dataclasses.replace(TRAIN, **settings)
        optimizer = Adam(train_config, model.trainable_variables)
        average = WeightAverage(train_config, optimizer.sharding)
    tokens = rng.integers(0, POISON, [2, 5 * 2, B // 2, T]).astype(np.int32)
    tokens[0, 2 * 2 + 1, 0, 1] = POISON
    dataset = tf.data.Dataset.from_tensor_slices(tuple(tokens))
    iterator = iter(distribute.distribute_batches(two_replicas, lambda **hosts: dataset))
    loop = make_host_loop(two_replicas, model, optimizer, train_config, average)
    parts = optimizer.sharding.parts
    kept = [parts.get(i, variable.value) for i, variable in enumerate(model.trainable_variables)]
    kept += [*optimizer.momenta, *optimizer.velocities, *average.averages]
    cut = [isinstance(variable, PartVariable) for variable in kept]
    assert any(cut) == train_config.shard_optimizer
    kept = [in_replica(variable) for variable in kept]

    def bytes_of_each_replica():
        return [
            [copy.numpy().tobytes() for copy in two_replicas.experimental_local_results(variable)] for variable in kept
        ]

    mems, sums = initial_mems(two_replicas, model, B), Sums().stacked()
    mems, sums = loop(iterator, mems, sums, tf.constant(2))
    before, two_steps = bytes_of_each_replica(), Sums(*sums.numpy())
    assert two_steps.skipped == 0
    mems, sums = loop(iterator, mems, sums, tf.constant(1))
    assert bytes_of_each_replica() == before
    assert Sums(*sums.numpy()) == two_steps._replace(skipped=1, skipped_in_a_row=1)
    assert optimizer.iterations.numpy() == 3
    for replica_mems in two_replicas.experimental_local_results(mems):
        assert not any(memory.numpy().any() for memory in replica_mems.hidden)
        np.testing.assert_array_equal(replica_mems.length, 4 if mem_init == "zeros" else 0)

    mems, sums = loop(iterator, mems, sums, tf.constant(2))
    after = Sums(*sums.numpy())
    assert np.isfinite(after.loss) and after.loss > two_steps.loss
    assert (after.skipped, after.skipped_in_a_row) == (1, 0)
    np.testing.assert_allclose(after.means(5), (after.loss / 4, after.grad_norm / 4))
    copies = bytes_of_each_replica()
    assert all((first == second) != parts for (first, second), parts in zip(copies, cut, strict=True))
    assert not set(map(tuple, copies)) & set(map(tuple, before)), "every weight, moment and average moves again"


@pytest.mark.parametrize(("loss", "norm"), [(np.nan, 1.0), (1.0, np.inf), (-np.inf, 1.0), (1.0, np.nan)])
def test_loss_and_norm_must_both_be_finite(loss, norm):
    assert not is_good(tf.constant(loss), tf.constant(norm))
    assert is_good(tf.constant(1.0), tf.constant(0.0))


def test_a_lost_run_stops_and_keeps_its_good_checkpoint(corpus, tmp_path, one_device):
    """The weights turn into NaN after step 6; a save is due at 8, but would not be worth having."""
    config = TransformerXLRunConfig(
        TransformerXLConfig(n_layer=1, d_model=8, d_embed=8, n_head=2, d_head=4, d_inner=8, mem_len=4),
        DataConfig(batch_size=4, tgt_len=8),
        TrainConfig(
            train_steps=20,
            learning_rate=1e-3,
            steps_per_loop=1,
            log_steps=3,
            save_steps=4,
            eval_steps=6,
            keep_checkpoints=1,
            max_bad_steps=4,
            jit_compile=False,
        ),
    )

    def lose(model):
        model.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
        return {"loss": math.nan}

    with pytest.raises(
        InputError, match=r"stopped at step 10: .* last 4 steps had no finite loss.* checkpoint: .*ckpt-4;"
    ):
        train(config, corpus, str(tmp_path), one_device, lambda model: lambda progress: lose(model))
    assert [path.name for path in tmp_path.glob("ckpt-*.index")] == ["ckpt-4.index"]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["skipped"], line["loss"] is None) for line in lines] == [
        (3, 0, False),
        (6, 0, False),
        (9, 3, True),
    ]
    train(config, corpus, str(tmp_path), one_device)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["skipped"]) for line in lines] == [(n, 0) for n in (3, 6, 9, 12, 15, 18, 20)]
