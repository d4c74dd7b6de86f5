"""A long piece of work says that it goes on, and no longer once it has ended."""

import itertools
import time
import types

import pytest
from aot import going_on


def test_it_says_what_begins_and_how_long_it_takes(capsys, monkeypatch):
    clock = itertools.count(0, 15)
    monkeypatch.setattr(going_on, "SECONDS", 0.05)
    monkeypatch.setattr(going_on, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    said, end = "", time.monotonic() + 60
    with pytest.raises(ValueError, match="broken"), going_on.going_on("compiling it"):
        while said.count("so far") < 2 and time.monotonic() < end:
            time.sleep(0.01)
            said += capsys.readouterr().err
        raise ValueError("broken")
    first, *further = (said + capsys.readouterr().err).splitlines()
    assert first == "compiling it .." and len(further) > 1
    assert further == [f"compiling it: {15 * (i + 1)} s so far" for i in range(len(further))]
    time.sleep(0.2)
    assert not capsys.readouterr().err
