"""The least memory of a training run, against the model and the state that it makes."""

import dataclasses

import pytest
import tensorflow as tf

from txl_tf import families
from txl_tf.devices import host_memory
from txl_tf.training.needs import require_memory


@pytest.mark.parametrize("preset", ["demo", "xlnet_demo"])
@pytest.mark.parametrize("n_layer", [1, 3])
def test_bytes_are_those_of_the_model(preset, n_layer, monkeypatch):
    found = {}
    monkeypatch.setattr(host_memory, "require", found.update)
    config = families.presets()[preset].config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, n_layer=n_layer))
    model = families.make_model(config)
    objective = families.task_of(config).objective(model, config)
    require_memory(config, tf.distribute.OneDeviceStrategy("/cpu:0"), objective)

    state = objective.initial_state(config.data.batch_size)
    weights, mems = (
        sum(tensor.numpy().nbytes for tensor in tensors) for tensors in (model.variables, tf.nest.flatten(state))
    )
    assert list(found.values()) == [4 * weights, mems]  # a weight, its gradient, two moments
