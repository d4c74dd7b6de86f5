"""Progress bars: redrawn in place on a terminal, now and then a line elsewhere, and what they say."""

import io
import sys
import time

import pytest

from txl_tf.progress import progress_bar, reported


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A function that lets time pass, for tqdm alone."""
    import tqdm.std

    now = [1000.0]
    monkeypatch.setattr(tqdm.std, "time", lambda: now[0])

    def advance(seconds):
        now[0] += seconds

    return advance


@pytest.fixture
def stderr(monkeypatch):
    def use(file):
        monkeypatch.setattr(sys, "stderr", file)
        return file

    return use


def test_a_log_has_a_line_every_15_seconds_and_nothing_of_short_work(clock, stderr):
    log = stderr(io.StringIO())
    with progress_bar("reading", 4_000_000, "B") as bar:
        for _ in range(40):
            clock(1)
            bar.update(100_000)
    assert "\r" not in log.getvalue()
    assert log.getvalue().splitlines() == [
        "reading [###########...................]  38 %, 1.50M of 4.00M, 100kB/s, 00:25 left",
        "reading [######################........]  75 %, 3.00M of 4.00M, 100kB/s, 00:10 left",
    ]
    with progress_bar("reading", 4, "B") as bar:
        clock(14)
        bar.update(4)
    assert len(log.getvalue().splitlines()) == 2


def test_a_terminal_has_one_line_that_is_redrawn_and_ends_complete(clock, stderr):
    terminal = stderr(Terminal())
    with reported("evaluating", " segments") as report:
        for done in range(1, 11):
            clock(1)
            report(done, 10, loss=done / 4)
    drawn = terminal.getvalue()
    assert drawn.count("\n") == 1 and drawn.count("\r") >= 9
    last = drawn.strip().split("\r")[-1]
    assert last.startswith("evaluating [##############################] 100 %, 10 of 10")
    assert last.rstrip().endswith(", loss=2.5000")


def test_speed_counts_from_the_first_report(clock, stderr):
    """The time before it is compilation."""
    terminal = stderr(Terminal())
    with reported("evaluating", " steps") as report:
        clock(100)
        report(50, 100)
        clock(10)
        report(60, 100)
    assert "1.00 steps/s, 00:40 left" in terminal.getvalue()


def test_what_fails_is_not_shown_as_done(clock, stderr):
    terminal = stderr(Terminal())
    with pytest.raises(ValueError), reported("evaluating", " steps") as report:
        report(1, 4)
        clock(1)
        report(2, 4)
        raise ValueError
    assert "100 %" not in terminal.getvalue() and " 50 %" in terminal.getvalue()


def test_nothing_is_drawn_that_is_not_to_be_shown(clock, stderr):
    terminal = stderr(Terminal())
    with progress_bar("scoring", 2, " lines", shown=False) as bar:
        clock(time.time())
        bar.update(2)
    assert not terminal.getvalue()


def test_work_in_unlike_pieces_has_no_speed(clock, stderr):
    log = stderr(io.StringIO())
    with progress_bar("tracing signatures", 4, "") as bar:
        clock(20)
        bar.update(1)
    assert log.getvalue() == "tracing signatures [#######.......................]  25 %, 1 of 4, 01:00 left\n"
