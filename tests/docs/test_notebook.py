"""The notebook as it is committed; `make notebook` runs it."""

import json
import pathlib

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "tour.ipynb"


def test_it_was_run_from_the_first_cell_to_the_last_without_an_error():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)] and len(cells) > 10
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3


def test_it_is_small():
    assert NOTEBOOK.stat().st_size < 400_000
