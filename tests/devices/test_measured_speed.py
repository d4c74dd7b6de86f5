"""Which products are faster is measured, not guessed from the CPU's flags."""

import pytest

from txl_tf.devices import measured_speed


@pytest.mark.parametrize(("narrow", "fast"), [(0.55, True), (0.8, True), (0.9, False), (1.0, False), (2.5, False)])
def test_bfloat16_is_fast_if_its_fastest_product_takes_clearly_less_time(monkeypatch, narrow, fast):
    first_round, disturbed = {1: 9.0, 2: 0.1}, {5: 3.0, 8: 3.0}
    asked = []

    def seconds(multiply, a, b):
        assert a.dtype == b.dtype and a.shape[1] == b.shape[0]
        asked.append(a.dtype.name)
        return (first_round | disturbed).get(len(asked), 1.0) * (narrow if a.dtype == "bfloat16" else 1.0)

    monkeypatch.setattr(measured_speed, "_seconds", seconds)
    measured_speed.bfloat16_is_fast.cache_clear()
    try:
        assert measured_speed.bfloat16_is_fast() is fast
        assert measured_speed.bfloat16_is_fast() is fast
    finally:
        measured_speed.bfloat16_is_fast.cache_clear()
    rounds = measured_speed.FEWEST_ROUNDS if fast else measured_speed.MOST_ROUNDS
    assert asked == ["bfloat16", "float32"] * (rounds + 1)  # alternating, and only once


def test_a_machine_that_is_busy_at_first_is_measured_until_it_is_not(monkeypatch):
    asked = []

    def seconds(multiply, a, b):
        asked.append(a.dtype.name)
        busy = 2.0 if a.dtype == "bfloat16" and len(asked) < 50 else 1.0
        return busy * (0.55 if a.dtype == "bfloat16" else 1.0)

    monkeypatch.setattr(measured_speed, "_seconds", seconds)
    assert measured_speed.bfloat16_is_fast.__wrapped__()
    assert 50 < len(asked) < 54


@pytest.mark.xla
def test_xlas_products_are_measured_in_xla(monkeypatch):
    operations = set()

    def seconds(multiply, a, b):
        operations.update(node.op for node in multiply.get_concrete_function(a, b).graph.as_graph_def().node)
        return 1.0

    monkeypatch.setattr(measured_speed, "_seconds", seconds)
    assert not measured_speed.bfloat16_is_fast.__wrapped__(in_xla=True)
    assert {"MatMul", "XlaDotV2"} <= operations
