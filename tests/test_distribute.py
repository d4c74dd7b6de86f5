"""How functions are called: see txl_tf/distribute.py."""

import pytest
import tensorflow as tf

from txl_tf.distribute import without_grappler


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
