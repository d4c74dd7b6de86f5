"""tpu/first_run.py, tried on a CPU: it finds nothing wrong here, and whatever is made wrong."""

import importlib.util
import pathlib
import sys

import contract
import processes
import pytest
import tensorflow as tf

PROGRAM = pathlib.Path(__file__).parents[2] / "tpu" / "first_run.py"
CASES = "^(attend|heads|cluster nll|write a token)$"


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("first_run", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(command, **options):
    return processes.Popen(command[1:], **options)


def test_what_an_operation_computes_wrong_is_found(program, monkeypatch):
    def checks():
        return list(program.operations(tf.distribute.OneDeviceStrategy("/cpu:0"), "^heads$", on_cpu=True))

    assert [(check.what, check.is_right) for check in checks()] == [("heads, float32", True), ("heads, bfloat16", True)]
    heads = contract.CASES["heads"]
    monkeypatch.setitem(contract.CASES, "heads", heads._replace(call=lambda *given: 1.01 * heads.call(*given)))
    assert [check.is_right for check in checks()] == [False, True]  # in bfloat16 one percent is rounding
    monkeypatch.setitem(contract.CASES, "heads", heads._replace(call=lambda ops, *_: 1 / 0))
    assert all("**differs** division by zero" in check.row() for check in checks())


@pytest.fixture
def optimized_graphs():
    """As in commands: the killed one's numbers are rounded as here, also by a TensorFlow without XLA for CPUs."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options(before)


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_graphs")
def test_on_a_cpu_nothing_differs(program, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "first"
    monkeypatch.setattr(sys, "argv", ["first_run.py", f"--dir={folder}", "--cpu", f"--cases={CASES}"])
    assert program.main(start) == 0
    page = (folder / "page.md").read_text()
    for what in ("continued after a kill", "memory across host loops", "training with", "evaluation with"):
        assert page.count(f"| {what}") == 1
    for name in ("attend", "heads", "cluster nll", "write a token"):
        assert f"| {name}, float32 |" in page and f"| {name}, bfloat16 |" in page
    assert "differs**" not in page and "nothing of 12 differs" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="is there already: name a new folder"):
        program.main(start)
    assert program.differing(folder, "killed") == 0 < program.differing(folder, "bfloat16")
