"""Scripts of evidence/ as modules."""

import importlib
import pathlib

import pytest


@pytest.fixture(scope="module")
def evidence_script():
    """A function: the path of a script in evidence/ -> its module. The script finds what lies beside it."""
    with pytest.MonkeyPatch.context() as patch:

        def load(path):
            script = pathlib.Path(__file__).parents[2] / "evidence" / path
            patch.syspath_prepend(script.parent)
            return importlib.import_module(script.stem)

        yield load
