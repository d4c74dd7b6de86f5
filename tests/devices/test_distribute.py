"""How functions are called: see txl_tf/devices/distribute.py."""

import pytest
import tensorflow as tf

from txl_tf.devices.distribute import run, without_grappler
from txl_tf.ops import platform


@pytest.mark.parametrize("before", [False, True])
def test_grappler_is_off_only_during_the_call(before):
    @tf.function
    def fails_for_zero(x):
        seen.append(switched_off())
        tf.debugging.assert_none_equal(x, 0)
        return 2 * x

    seen = []
    set_to(before)
    try:
        call = without_grappler(fails_for_zero)
        assert call(tf.constant(3)).numpy() == 6
        assert seen == [True]
        assert switched_off() == before
        with pytest.raises(tf.errors.InvalidArgumentError):
            call(tf.constant(0))
        assert switched_off() == before
        assert call.__wrapped__.experimental_get_tracing_count() == 1
    finally:
        set_to(False)


def switched_off():
    return tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)


def set_to(off):
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off})


@pytest.mark.parametrize(
    "strategy", [tf.distribute.OneDeviceStrategy("/cpu:0"), tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])]
)
def test_replicas_run_operations_for_their_devices(strategy, monkeypatch):
    """Not for those that the process has besides, and in each replica's thread."""
    monkeypatch.setattr(platform, "_device", lambda: "gpu")
    seen = []
    tf.function(lambda: run(strategy, lambda: seen.append(platform.program().target)), autograph=False)()
    assert seen == ["cpu"] * strategy.num_replicas_in_sync
