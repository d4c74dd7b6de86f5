"""Model_dirs and a corpus that commit ce09e14 wrote: later commits continue, evaluate, score and export them alike."""

import json
import shutil

import old_model_dir
import pytest
from alike import assert_like

pytestmark = pytest.mark.slow

FOLDER = old_model_dir.ROOT / "tests" / "model_dir_ce09e14"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


TOLERANCE = 3e-4
"""The angles of the sinusoids are exact today; XLA or its absence rounds otherwise; Adam enlarges the difference."""


@pytest.fixture(scope="module", params=old_model_dir.RUNS)
def run(request, tmp_path_factory):
    """A run's name and a copy of its model_dir."""
    copy = tmp_path_factory.mktemp("old") / request.param
    shutil.copytree(FOLDER / request.param, copy)
    return request.param, copy


def test_it_is_used_alike(run, tmp_path):
    name, model_dir = run
    found = old_model_dir.use(name, model_dir, FOLDER / "corpus", tmp_path)
    expected = {key: value for key, value in EXPECTED[name].items() if key != "continue"}
    assert_like(found, expected, rel=TOLERANCE)


def test_it_continues_to_the_same_numbers(run):
    name, model_dir = run
    found = old_model_dir.proceed(model_dir, FOLDER / "corpus")
    assert [line["step"] for line in found["metrics"]] == [*range(201, 211)]
    assert_like(found, EXPECTED[name]["continue"], rel=TOLERANCE)
