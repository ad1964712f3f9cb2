"""A line about long searches: on terminals and in notebooks alone, and gone at the end."""

import contextlib
import os
import pty
import subprocess
import sys
import textwrap
import threading
import types

import pytest

from tunewright import Knob, Session, Space
from tunewright.model.decision import Problem
from tunewright.model.event import DecisionMade, FinalRaceStarted, SearchStarted, TrialFinished
from tunewright.model.trial import Timing, Trial
from tunewright.report import live
from tunewright.report.live import NotebookScreen, ProgressLine, TerminalScreen, find_screen, progress_line
from tunewright.report.progress import Progress
from tunewright.testing.keys import DECISION, other_key

SPACE = Space(Knob("tile", [8, 16, 32]))


class Screen:
    def __init__(self):
        self.shown, self.ended = [], []

    def show(self, text):
        self.shown.append(text)

    def end(self, text):
        self.ended.append(text)


def started(kernel="gemm"):
    return SearchStarted(Problem(other_key(kernel=kernel), SPACE, SPACE[0]), "random", 6, 60.0)


def test_a_long_search_is_shown_with_best_trials_and_time_left(wait_until) -> None:
    screen = Screen()
    line = ProgressLine(screen, delay=0, period=0.01)
    line(started())
    line(TrialFinished(Trial(SPACE[0], Timing((4e-3,)))))
    line(TrialFinished(Trial(SPACE[1], Timing((2e-3,)))))
    wait_until(lambda: screen.shown and "best 2 ms" in screen.shown[-1])
    for part in ("tuning gemm", "2 trials", "best 2 ms (2.00x the default)", "left"):
        assert part in screen.shown[-1]
    line(FinalRaceStarted(2))
    wait_until(lambda: "racing 2 finalists" in screen.shown[-1])
    line(DecisionMade(DECISION))
    line.close()
    (last,) = screen.ended
    assert last.startswith("gemm: fast=True")
    assert "4.00x the default" in last
    assert "2 trials in" in last
    assert "\n" not in last


def test_a_short_search_shows_nothing() -> None:
    screen = Screen()
    line = ProgressLine(screen, delay=60)
    line(started())
    line(DecisionMade(DECISION))
    line.close()
    assert not screen.shown
    assert not screen.ended


def test_a_search_that_fails_leaves_an_empty_line_and_no_thread(wait_until, monkeypatch) -> None:
    screen = Screen()
    monkeypatch.setattr(live, "find_screen", lambda: screen)
    monkeypatch.setattr(live.ProgressLine.__init__, "__defaults__", (0.0, 0.01))
    session = Session(store="memory:")
    before = len(session.listeners)

    def search():
        with progress_line(session):
            session.emit(started())
            wait_until(lambda: screen.shown)
            raise RuntimeError("every config failed")

    with pytest.raises(RuntimeError):
        search()
    assert screen.ended == [""]
    assert len(session.listeners) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "tunewright progress"]


def test_searches_of_other_threads_do_not_mix(wait_until) -> None:
    screen = Screen()
    line = ProgressLine(screen, delay=0, period=0.01)
    line(started("mine"))
    other = threading.Thread(target=lambda: [line(started("other")), line(DecisionMade(DECISION))])
    other.start()
    other.join()
    wait_until(lambda: len(screen.shown) > 2)
    line.close()
    assert all("mine" in text for text in screen.shown)
    assert screen.ended == [""]


@pytest.mark.parametrize(
    "hides", [{"mode": "frozen"}, {"mode": "record"}, {"mode": "strict"}, {"mode": "off"}, {"progress": False}]
)
def test_nothing_is_shown_in_production_or_if_a_setting_says_so(hides, monkeypatch) -> None:
    monkeypatch.setattr(live, "find_screen", Screen)
    for options, shown in ((hides, False), ({}, True)):
        session = Session(store="memory:", **options)
        with progress_line(session):
            assert any(isinstance(one, ProgressLine) for one in session.listeners) is shown


def test_the_variable_hides_it(monkeypatch) -> None:
    monkeypatch.setattr(live, "find_screen", Screen)
    monkeypatch.setenv("TUNEWRIGHT_PROGRESS", "0")
    session = Session(store="memory:")
    with progress_line(session):
        assert len(session.listeners) == 1


def test_there_are_not_two_displays_of_one_search(monkeypatch) -> None:
    monkeypatch.setattr(live, "find_screen", Screen)
    session = Session(store="memory:", listeners=[Progress(speak=True)])
    with progress_line(session):
        assert not any(isinstance(one, ProgressLine) for one in session.listeners)


def test_a_pipe_a_closed_or_a_missing_error_stream_is_no_screen(monkeypatch) -> None:
    assert find_screen() is None, "pytest captures standard error"
    monkeypatch.setattr(sys, "stderr", None)
    assert find_screen() is None
    with open(os.devnull) as file:
        pass
    monkeypatch.setattr(sys, "stderr", file)
    assert find_screen() is None


def test_the_line_of_a_terminal_is_cut_to_its_width_and_removed() -> None:
    master, slave = pty.openpty()
    screen = TerminalScreen(slave)
    screen.show("x" * 500)
    screen.show("short")
    screen.end("")
    os.close(slave)
    said = everything(master)
    assert "\n" not in said
    assert "\x1b" not in said
    assert max(map(len, said.split("\r"))) < 80
    assert visible(said) == ""


def visible(said: str) -> str:
    """What a terminal shows at the end of what was written to one line."""
    cells: list[str] = []
    column = 0
    for char in said:
        if char == "\r":
            column = 0
        else:
            cells[column : column + 1] = char
            column += 1
    return "".join(cells).rstrip()


def test_a_terminal_that_is_gone_does_not_end_the_search() -> None:
    master, slave = pty.openpty()
    os.close(master)
    os.close(slave)
    TerminalScreen(slave).show("text")


def test_a_notebook_gets_one_output_that_is_updated(monkeypatch) -> None:
    calls = []

    class Handle:
        def update(self, content, raw):
            calls.append(("update", content["text/plain"]))

    def display(content, raw, display_id):
        calls.append(("display", content["text/plain"]))
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    screen = find_screen()
    assert isinstance(screen, NotebookScreen)
    screen.show("a")
    screen.show("b")
    screen.end("c")
    assert calls == [("display", "a"), ("update", "b"), ("update", "c")]
    shell.kernel = None  # IPython in a pipe
    assert find_screen() is None


PROGRAM = textwrap.dedent("""
    import sys, time, numpy as np, tunewright as tw
    from tunewright.report import live
    live.ProgressLine.__init__.__defaults__ = (0.2, 0.1)
    @tw.tune(tw.Space(tw.Knob("step", [1, 2, 3, 4])), reference=lambda x: 2 * x, name="slow")
    def slow(x: tw.In("N"), *, step):
        time.sleep(0.002)
        return 2 * x
    slow(np.ones(3))
    print("IPython" in sys.modules)
""")


@pytest.mark.slow
def test_a_program_on_a_terminal_shows_a_line_and_one_in_a_pipe_nothing(tmp_path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py"]
    quick = {"TUNEWRIGHT_STORE": "memory:", "TUNEWRIGHT_POOL": "serial"}
    environ = {**os.environ, **quick}
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environ)
    assert (piped.stdout, piped.stderr) == ("False\n", "")
    said = on_terminal(command, tmp_path, quick)
    assert "tuning slow: " in said
    last, rest = said.rsplit("\n", 2)[0].rpartition("\r")[2], said.rsplit("\n", 2)[1:]
    assert last.startswith("slow: step=")
    assert rest == ["", ""] or not "".join(rest).strip()
    assert "tuning" not in on_terminal(command, tmp_path, {**quick, "TUNEWRIGHT_MODE": "frozen"})


def on_terminal(command, folder, environ) -> str:
    """What a program writes to standard error if that is a terminal."""
    master, slave = pty.openpty()
    environ = {**os.environ, **environ}
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=slave, env=environ) as process:
        os.close(slave)
        said = everything(master)
    assert process.returncode == 0, said
    return said.replace("\r\n", "\n")


def everything(master: int) -> str:
    """What was written to a terminal until it was closed."""
    said = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(master, 4096):
            said += part
    os.close(master)
    return said.decode()
