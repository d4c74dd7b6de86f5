"""How functions are called: see txl_tf/devices/distribute.py."""

import pytest
import tensorflow as tf

from txl_tf.devices.distribute import run
from txl_tf.ops import platform


@pytest.mark.parametrize(
    "strategy", [tf.distribute.OneDeviceStrategy("/cpu:0"), tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])]
)
def test_replicas_run_operations_for_their_devices(strategy, monkeypatch):
    """Not for those that the process has besides, and in each replica's thread."""
    monkeypatch.setattr(platform, "_device", lambda: "gpu")
    seen = []
    tf.function(lambda: run(strategy, lambda: seen.append(platform.program().target)), autograph=False)()
    assert seen == ["cpu"] * strategy.num_replicas_in_sync
