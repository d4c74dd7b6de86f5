"""Learning rates by hand; the cosine's are in test_step.py."""

import math

import numpy as np
import pytest

from txl_tf.errors import InputError
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.schedules import Schedule


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        # 2 * step / 4 below update 4; then from 2 to 0.2 in 6 updates, 0.3 less in each; after the last it stays.
        ({"warmup_steps": 4, "min_lr_ratio": 0.1}, [0, 0.5, 1, 1.5, 2, 1.7, 1.4, 1.1, 0.8, 0.5, 0.2, 0.2]),
        ({"warmup_steps": 0, "min_lr_ratio": 0.0}, [2, 1.8, 1.6, 1.4, 1.2, 1, 0.8, 0.6, 0.4, 0.2, 0, 0]),
    ],
)
def test_linear_schedule(settings, rates):
    schedule = Schedule(TrainConfig(train_steps=10, learning_rate=2.0, lr_schedule="linear", **settings))
    assert float(schedule(0)) == rates[0]
    np.testing.assert_allclose([schedule(step) for step in range(12)], rates, rtol=1e-6, atol=1e-7)


def test_the_setting_chooses():
    settings = {"train_steps": 3, "learning_rate": 2.0, "min_lr_ratio": 0.0}
    found = [float(Schedule(TrainConfig(**settings, **one))(1)) for one in ({}, {"lr_schedule": "linear"})]
    assert found == pytest.approx([1 + math.cos(math.pi / 3), 4 / 3])


def test_the_second_phase_has_a_rate_of_its_own():
    """The line ends at the phase's first update, where it would have reached 0.5; from there on 2 * 0.3."""
    phases = {"warmup_steps": 2, "min_lr_ratio": 0.25, "average_from_step": 5, "average_lr_ratio": 0.3}
    schedule = Schedule(TrainConfig(train_steps=8, learning_rate=2.0, lr_schedule="linear", **phases))
    np.testing.assert_allclose([schedule(step) for step in range(9)], [0, 1, 2, 1.5, 1, 0.6, 0.6, 0.6, 0.6], rtol=1e-6)


def test_a_second_phase_needs_a_first_one():
    with pytest.raises(InputError, match=r"average_lr_ratio=0.5 needs average_from_step above warmup_steps=4"):
        TrainConfig(warmup_steps=4, average_from_step=4, average_lr_ratio=0.5)
