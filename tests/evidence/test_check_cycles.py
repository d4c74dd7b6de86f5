"""Which changes of a step's costs count; the guide's test checks that all rows of the page are found."""

import check_cycles

PAGE = """
| step | flags | M cycles | official | share | HBM, GB | official |
|---|---|--:|--:|--:|--:|--:|
| small, evaluation | `--preset=small --mode=eval` | 3.8 | 19.0 | 0.20 | 0.9 | 1.4 |
| large | `--preset=large` | 161.4 | | | 9.5 | |
| cores | `--preset=large` | not measured | | | 9.5 | |
"""


def test_rows_are_those_with_flags_and_numbers():
    small, large = check_cycles.rows(PAGE)
    assert small == ("small, evaluation", "--preset=small --mode=eval", 3.8, 0.9)
    assert large == ("large", "--preset=large", 161.4, 9.5)


def test_rounding_is_no_change_and_two_percent_are():
    small, large = check_cycles.rows(PAGE)
    assert small.agrees(3.76, 0.91) and small.agrees(3.849, 0.949)
    assert not small.agrees(3.95, 0.9) and not small.agrees(3.8, 1.0)
    assert large.agrees(162.9, 9.5) and not large.agrees(164.7, 9.5) and not large.agrees(158.1, 9.5)
