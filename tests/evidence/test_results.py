"""docs/results.md is what evidence/bench/results_page.py makes of the measured files."""

import importlib.util
import pathlib

import matplotlib

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("results_page", ROOT / "evidence" / "bench" / "results_page.py")
results_page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(results_page)


def test_the_page_is_made_from_the_measured_files():
    page = results_page.page()
    assert (ROOT / "docs" / "results.md").read_text() == page
    assert len(page.splitlines()) <= 150 and "{" not in page


def test_the_readme_has_the_results_that_are_measured():
    text = (ROOT / "README.md").read_text()
    assert results_page.readme(text) == text
    assert len(results_page.highlights().splitlines()) == 2 + 6


def test_no_number_of_the_text_is_typed_by_hand_but_sizes():
    """Sizes of models and tables from papers are not measurements."""
    assert "%" not in results_page.TEXT.read_text().replace("0.01 %", "")


def test_a_machine_has_a_panel_for_each_task_that_was_measured():
    machine = results_page.machines()[0]
    with matplotlib.rc_context():  # the picture's settings must not reach other tests
        figure = results_page.drawing(machine)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert titles == [
        task.replace(": ", "\n")
        for task in results_page.TASKS
        if results_page.rates(machine, task) and "T 512" not in task
    ]
    assert machine["machine"] in figure.get_supxlabel()
