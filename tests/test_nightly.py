"""The nightly run: a failure stops nothing, a limit holds, a run can be resumed, and figures are compared."""

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import nightly_figures  # noqa: E402
import nightly_run  # noqa: E402
import nightly_steps  # noqa: E402
from nightly_steps import Step  # noqa: E402


def python(name: str, *codes: str, limit: float = 600.0, **more) -> Step:
    return Step(name, tuple((sys.executable, "-c", code) for code in codes), limit, **more)


@pytest.fixture
def perform(tmp_path, capsys):
    """Run steps as the program does; the exit status, and what is known of each step."""

    def night(steps, *, resume: bool = False, retry_failed: bool = False):
        run = nightly_run.Run(tmp_path / "commit", steps)
        given = argparse.Namespace(resume=resume, retry_failed=retry_failed)
        status = nightly_run.night(run, steps, given, tmp_path / "commit.json")
        return status, run.results()

    return night


@pytest.fixture(autouse=True)
def usual_signals():
    """The program takes over a signal."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_failing_step_does_not_stop_the_rest(perform, tmp_path) -> None:
    status, results = perform([python("bad", "raise SystemExit(3)"), python("good", "print('fine')")])
    assert status == 1
    assert {name: one.status for name, one in results.items()} == {"bad": "failed", "good": "passed"}
    assert "status 3" in results["bad"].note
    assert "bad.log" in results["bad"].note
    assert "fine" in (tmp_path / "commit" / "logs" / "good.log").read_text()
    table = (tmp_path / "commit" / "table.md").read_text()
    assert "| bad | failed |" in table
    assert "| good | passed |" in table


def test_the_limit_stops_a_hanging_step(perform) -> None:
    status, results = perform([python("hangs", "import time; time.sleep(600)", limit=1.0), python("after", "")])
    assert status == 1
    assert {name: one.status for name, one in results.items()} == {"hangs": "limit", "after": "passed"}
    assert "limit of 1 s" in results["hangs"].note


HANGS = """
import subprocess, sys, time
inner = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid()) + chr(10)); time.sleep(600)"
for place, apart in zip(sys.argv[1:], (False, True)):
    subprocess.Popen([sys.executable, "-c", inner, place], start_new_session=apart)
time.sleep(600)
"""


def test_what_a_step_started_ends_with_it_in_whatever_session(perform, tmp_path, monkeypatch, wait_until) -> None:
    places, wait, limit = [tmp_path / "same", tmp_path / "another"], subprocess.Popen.wait, 599.0

    def reached(process, timeout=None):
        """The limit is reached as soon as everything runs."""
        if timeout != limit:
            return wait(process, timeout)
        wait_until(lambda: all(place.exists() and place.read_text().endswith("\n") for place in places), "all to run")
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", reached)
    _, results = perform([Step("hangs", ((sys.executable, "-c", HANGS, *map(str, places)),), limit)])
    assert results["hangs"].status == "limit"
    for place in places:
        number = int(place.read_text())
        wait_until(lambda number=number: gone(number), f"the end of the process in {place.name}")


def gone(number: int) -> bool:
    stat = Path(f"/proc/{number}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_resuming_does_not_run_again_what_passed(perform, tmp_path) -> None:
    runs = tmp_path / "runs"
    count = f"open({str(runs)!r}, 'a').write('%s\\n')"
    fails = f"{count % 'bad'}; raise SystemExit(not __import__('os').path.exists({str(tmp_path / 'mended')!r}))"
    steps = [python("good", count % "good"), python("bad", fails)]
    assert perform(steps)[0] == 1
    assert perform(steps, resume=True)[0] == 1
    assert runs.read_text().split() == ["good", "bad"]
    (tmp_path / "mended").touch()
    assert perform(steps, retry_failed=True)[0] == 0
    assert runs.read_text().split() == ["good", "bad", "bad"]
    assert perform(steps)[0] == 0
    assert runs.read_text().split() == ["good", "bad", "bad", "good", "bad"]


def test_an_interrupted_step_ends_and_is_run_again_when_resumed(perform, tmp_path, monkeypatch) -> None:
    steps = [python("first", ""), python("second", "print()"), python("third", "")]
    real = nightly_run.processes.run

    def interrupted(command, *given, **more):
        if command == steps[1].commands[0]:
            raise KeyboardInterrupt
        return real(command, *given, **more)

    monkeypatch.setattr(nightly_run.processes, "run", interrupted)
    status, results = perform(steps)
    assert status == 1
    assert {name: one.status for name, one in results.items()} == {"first": "passed", "second": "interrupted"}
    assert "| third | not run |" in (tmp_path / "commit" / "table.md").read_text()
    monkeypatch.undo()
    assert perform(steps, resume=True)[0] == 0


def test_what_a_step_starts_has_a_cache_of_its_own(perform) -> None:
    code = "import os; print('measurements', len(os.listdir(os.environ['XDG_CACHE_HOME']))); "
    code += "open(os.environ['XDG_CACHE_HOME'] + '/kept', 'w')"
    _, results = perform([python("twice", code, code, ends_with="measurements 1")])
    assert results["twice"].status == "passed"
    _, results = perform([python("once", code, ends_with="measurements 1")])
    assert results["once"].status == "failed"
    assert "measurements 0" in results["once"].note


def test_figures_are_kept_by_commit_with_their_spreads(perform, tmp_path) -> None:
    said = {"ratio": 5.5, "spread": [5.0, 6.0], "us": {"get": {"median": 2.0, "low": 1.0, "high": 3.0, "values": [2]}}}
    said |= {"imports_clean": True, "goals": {"ratio": {"met": True}}, "wrong": [], "name": "text"}
    perform([python("benchmark-launch", f"print({json.dumps(said)!r})", prints="figures")])
    whole = json.loads((tmp_path / "commit.json").read_text())
    assert {"schema", "commit", "date", "machine", "load", "steps"} <= whole.keys()
    step = whole["steps"]["benchmark-launch"]
    assert step["figures"] == {"ratio": 5.5, "us.get": 2.0, "imports_clean": 1, "wrong": 0}
    assert step["spreads"] == {"ratio": [5.0, 6.0], "us.get": [1.0, 3.0]}
    assert "ratio 5.5, imports_clean 1" in (tmp_path / "commit" / "table.md").read_text()


def test_a_benchmark_that_prints_no_figures_fails(perform) -> None:
    _, results = perform([python("benchmark-launch", "print('nothing')", prints="figures")])
    assert results["benchmark-launch"].status == "failed"
    assert "no JSON" in results["benchmark-launch"].note


@pytest.mark.parametrize(
    ("said", "exits", "fails"), [("expected", 0, 0), ("unexpected", 0, 0), ("failed", 1, 1), ("unavailable", 1, 1)]
)
def test_a_row_of_the_matrix_says_how_its_step_ended(perform, said, exits, fails) -> None:
    row = {"status": said, "reason": "because", "passed": 3, "failed": 1, "skipped": 2}
    code = f"print({json.dumps({'rows': [row]})!r}); raise SystemExit({exits})"
    status, results = perform([python("matrix-torch-0.0", code, prints="row")])
    assert status == fails
    assert results["matrix-torch-0.0"].status == said
    assert "because" in results["matrix-torch-0.0"].note


def figures(cpu: str = "one", **steps: dict[str, float]) -> dict:
    made = {f"benchmark-{name}": {"status": "passed", "figures": found} for name, found in steps.items()}
    return {"schema": 1, "machine": {"cpu": cpu}, "steps": made}


def compared(tmp_path, old: dict, new: dict) -> int:
    for name, one in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    return nightly_run.compare(tmp_path / "old.json", tmp_path / "new.json", everything=False)


def test_a_figure_that_got_worse_is_found(tmp_path, capsys) -> None:
    assert compared(tmp_path, figures(launch={"ratio": 6.0}), figures(launch={"ratio": 3.0})) == 1
    assert "benchmark-launch ratio: 6 -> 3" in capsys.readouterr().out


def test_a_figure_within_its_spread_or_without_one_is_not_judged_worse(tmp_path, capsys) -> None:
    old = figures(launch={"ratio": 6.0, "triton_lookup_us": 1.0})
    assert compared(tmp_path, old, figures(launch={"ratio": 5.5, "triton_lookup_us": 90.0})) == 0
    assert "1 figures judged, 0 worse" in capsys.readouterr().out


def test_what_must_not_happen_is_worse_whatever_happened_before(tmp_path) -> None:
    assert compared(tmp_path, figures(audit={"missed": 2}), figures(audit={"missed": 1})) == 1
    assert compared(tmp_path, figures(), figures(audit={"missed": 1})) == 1


def test_times_of_another_machine_are_not_judged(tmp_path, capsys) -> None:
    old, new = {"ratio": 6.0, "overhead_us": 1.0}, {"ratio": 6.0, "overhead_us": 9.0}
    assert compared(tmp_path, figures(launch=old), figures(launch=new)) == 1
    assert compared(tmp_path, figures(launch=old), figures("another", launch=new)) == 0
    assert "not comparable" in capsys.readouterr().out


def test_what_is_missing_or_new_is_said(tmp_path, capsys) -> None:
    old, new = figures(launch={"ratio": 6.0}, audit={"missed": 0}), figures(launch={}, torture={"lost": 0})
    assert compared(tmp_path, old, new) == 0
    said = capsys.readouterr().out
    assert "benchmark-audit: passed before, now not run" in said
    assert "benchmark-launch ratio: was 6" in said
    assert "benchmark-torture: nothing to compare with" in said


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(SystemExit, match="run scripts/nightly again"):
        nightly_run.read(tmp_path / "other.json")
    with pytest.raises(SystemExit, match="name a file"):
        nightly_run.read(tmp_path / "none.json")


def test_every_benchmark_that_can_be_quick_is_a_step() -> None:
    names = {step.name for step in nightly_steps.steps()}
    able = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if takes_quick(path.read_text())}
    assert able
    assert {f"benchmark-{name}" for name in able} == {name for name in names if name.startswith("benchmark-")}


def takes_quick(text: str) -> bool:
    shared = "import" in text and "parser(" in text and "parse_args(" in text
    return "def parser(" not in text and (shared or '"--quick"' in text)


def test_every_judged_figure_belongs_to_a_benchmark_and_every_benchmark_has_one() -> None:
    able = {step.name.removeprefix("benchmark-") for step in nightly_steps.benchmarks()}
    assert nightly_figures.HEADLINES.keys() == able
    for rows in nightly_figures.HEADLINES.values():
        assert len({row.figure for row in rows}) == len(rows)
        assert all(row.why and row.spread >= 0 and row.slack >= 0 for row in rows)


def test_steps_have_names_of_their_own_and_programs_that_exist() -> None:
    steps = nightly_steps.steps()
    assert len({step.name for step in steps}) == len(steps)
    named = {word for step in steps for command in step.commands for word in command if "/" in word}
    assert all((ROOT / word).exists() for word in named if not word.startswith(("-", "/")))


def test_steps_are_chosen_by_pattern_and_an_unknown_one_is_refused() -> None:
    known = [python(name) for name in ("benchmark-a", "benchmark-b", "gallery")]
    assert [step.name for step in nightly_run.select(known, ["benchmark-*"], ["*-b"])] == ["benchmark-a"]
    with pytest.raises(SystemExit, match="--list"):
        nightly_run.select(known, ["benchmark-c"], [])


def test_changed_files_are_another_revision_than_the_commit(monkeypatch) -> None:
    said = {"rev-parse": "0123456789abcdef\n", "diff": "", "ls-files": ""}
    monkeypatch.setattr(nightly_run, "git", lambda command, *_: said[command])
    clean = nightly_run.revision()
    said["diff"] = "a change"
    assert clean == "0123456789ab"
    assert nightly_run.revision().startswith(f"{clean}-")
