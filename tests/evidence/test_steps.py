"""The steps that evidence/compilers/aot_compile.py lowers: their inputs are what such a step needs."""

import pytest
from aot import steps

from txl_tf import families
from txl_tf.inference.generation.generator import CHUNK

pytestmark = pytest.mark.xla
SIZES = {"vocab_size": 40, "n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "mem_len": 0}


@pytest.fixture(scope="module")
def config():
    tuned = families.tuned_configs()["classification"]()
    return tuned.replace(model=SIZES | {"reuse_len": 0, "n_class": 3}, data={"tgt_len": 8, "batch_size": 4})


@pytest.fixture(scope="module")
def weights(config):
    """The paths of the trained weights, and of all variables."""
    model = families.make_model(config)
    paths = {variable.path for variable in model.variables}
    return {variable.path for variable in model.trainable_variables}, paths


def test_prediction_reads_texts_without_labels_and_the_weights_alone(config, weights):
    trained, paths = weights
    step = steps.predict(config, 2)
    batch = {name for name in step.parameters if name.startswith("batch/")}
    assert len(batch) == 3  # tokens, segments and padding
    read = {name for name in step.parameters if not name.startswith("constant/")} - batch
    assert read <= paths
    assert {name for name in trained - read if not name.endswith("mask_embedding")} == set()


def test_fine_tuning_reads_labels_and_updates_every_weight(config, weights):
    trained, _ = weights
    step = steps.train(config, 2)
    assert sum(name.startswith("batch/") for name in step.parameters) == 5  # label and weight, too
    moments = {f"adam/{path}/{moment}" for path in trained for moment in ("momentum", "velocity")}
    assert trained | moments <= set(step.parameters)


def test_replicas_that_share_the_optimizers_state_reduce_scatter_and_gather(config):
    """Every matrix, and one sum for what is left: biases, norms, the loss."""
    shared = config.replace(train={"shard_optimizer": True})
    found = {}
    for replicas in (1, 2):
        hlo = steps.train(shared, 2, replicas).hlo
        found[replicas] = [hlo.count(opcode) > 0 for opcode in (b"reduce-scatter", b"all-gather", b"all-reduce")]
    assert found == {1: [False] * 3, 2: [True] * 3}


def test_generation_reads_tokens_of_texts_and_the_weights():
    sizes = {"vocab_size": 40, "n_layer": 1, "d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 32}
    config = families.presets()["demo"].config.replace(model=sizes, eval={"mem_len": 12})
    step = steps.generate(config, 2)
    assert step.parameters["batch/0"] == ([2, CHUNK], "int32")
    read = {name for name in step.parameters if not name.startswith(("constant/", "batch/", "state/"))}
    trained = {variable.path for variable in families.make_model(config).trainable_variables}
    assert read <= trained and {name for name in trained - read if "position_kernel" not in name} == set()
