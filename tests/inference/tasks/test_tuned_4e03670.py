"""Model_dirs of each task that commit 4e03670 wrote: later commits predict, train and export with them alike."""

import json
import shutil

import pytest
import tuned_4e03670
from alike import assert_like

EXPECTED = json.loads((tuned_4e03670.FOLDER / "expected.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("task", tuned_4e03670.TASKS)
def test_it_is_used_alike(task, tmp_path):
    shutil.copytree(tuned_4e03670.FOLDER / task, tmp_path / task)
    shutil.copy(tuned_4e03670.FOLDER / tuned_4e03670.VOCABULARY, tmp_path / task)
    found, expected = tuned_4e03670.use(task, tmp_path / task), EXPECTED[task]
    assert_like(found, expected, task, rel=1e-4, abs=1e-5, nan_ok=True)
