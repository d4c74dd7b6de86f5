from txl_tf.counted import counted


def test_one_thing_has_no_plural():
    assert [counted(n, "update") for n in (0, 1, 2, 1200.0)] == ["0 updates", "1 update", "2 updates", "1,200 updates"]
    assert counted(1, "class is", "classes are") == "1 class is" and counted(3, "class is", "classes are").endswith(
        "are"
    )
