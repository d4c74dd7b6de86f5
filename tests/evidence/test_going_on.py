"""A long piece of work says that it goes on, and no longer once it has ended."""

import re
import time

import pytest
from aot import going_on


def test_it_says_what_begins_and_how_long_it_takes(capsys, monkeypatch):
    monkeypatch.setattr(going_on, "SECONDS", 0.05)
    with pytest.raises(ValueError, match="broken"), going_on.going_on("compiling it"):
        time.sleep(0.4)
        raise ValueError("broken")
    first, *further = capsys.readouterr().err.splitlines()
    assert first == "compiling it .." and len(further) > 1
    assert all(re.fullmatch("compiling it: 0 s so far", line) for line in further)
    time.sleep(0.2)
    assert not capsys.readouterr().err
