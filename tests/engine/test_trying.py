"""What kills the process or the machine is not tried a second time."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tunewright import Config, Knob, Session, Space
from tunewright.errors import BackendError
from tunewright.model.decision import Problem
from tunewright.model.trial import Failure, Kind, Timing, Trial
from tunewright.pools.kernel_loader import load_target
from tunewright.stores import trying
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.trying import Trying
from tunewright.testing.keys import KEY

A, B, C = (Config(tile=tile) for tile in (1, 2, 4))
PROBLEM = Problem(KEY, Space(Knob("tile", [1, 2, 4])), A)


def marks():
    return sorted((Session().settings.cache_path / "trying").glob("[!.]*"))


KERNEL = """
import os, signal, sys, time
import numpy as np
import tunewright as tw

WHAT = os.environ.get("WHAT", "")

def launched(step):
    with open(os.environ["LAUNCHED"], "a") as file:
        file.write(f"{step}\\n")

reference = None if "alone" in WHAT else lambda x: 2 * x

@tw.tune(tw.Space(tw.Knob("step", range(4))), reference=reference, default={"step": 0})
def double(x: tw.In("N"), *, step):
    launched(step)
    if step == 2 and WHAT == "kill" or step == 0 and "kill the default" in WHAT:
        os.kill(os.getpid(), signal.SIGKILL)
    while step == 2 and WHAT == "wait" and not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    return 2 * x

if __name__ == "__main__":
    session = tw.Session(pool="serial", strategy="exhaustive", features={"flights": False})
    double.using(session)
    decision = double.tune(np.ones(64), fresh="fresh" in sys.argv)
    print(session.counts["measurements"], decision.evidence.failures, decision.config["step"])
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    path = tmp_path / "killing.py"
    path.write_text(KERNEL)
    monkeypatch.setenv("LAUNCHED", str(tmp_path / "launched"))
    monkeypatch.setenv("GO", str(tmp_path / "go"))
    return path


def start(script, *args):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(script), *args], stdout=pipe, stderr=pipe, text=True)


def run(script, *args):
    """Runs the script; returns its status, what it said, and what was launched."""
    launched = script.parent / "launched"
    launched.write_text("")
    process = start(script, *args)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err, set(launched.read_text().split())


def trials(script):
    problem = load_target(f"{script}:double").problem([np.ones(64)])
    return {trial.config["step"]: trial.outcome for trial in Session().store.trials(problem.key)}


@pytest.mark.parametrize(("what", "killer"), [("kill", "2"), ("kill the default", "0")])
def test_what_kills_the_process_is_not_tried_a_second_time(script, monkeypatch, what, killer) -> None:
    monkeypatch.setenv("WHAT", what)
    status, _, _, launched = run(script)
    assert status == -signal.SIGKILL
    assert killer in launched
    for _ in range(2):
        status, out, err, launched = run(script)
        assert (status, out.split()[1]) == (0, "1"), err
        assert f"step={killer} is not tried: the process ended while it was tried; run with fresh=True" in err
        assert launched
        assert killer not in launched
        assert set(trials(script)) == {0, 1, 2, 3}
        outcome = trials(script)[int(killer)]
        assert isinstance(outcome, Failure)
        assert outcome.kind is Kind.CRASHED
    assert run(script, "fresh")[0] == -signal.SIGKILL
    monkeypatch.setenv("WHAT", "")
    assert killer in run(script, "fresh")[3]
    assert "is not tried" not in run(script)[2], "the mark is gone"


def test_a_default_that_kills_the_process_is_not_run_as_the_reference_either(script, monkeypatch) -> None:
    monkeypatch.setenv("WHAT", "kill the default alone")
    assert run(script)[0] == -signal.SIGKILL
    status, _, err, launched = run(script)
    assert (status, launched) == (1, set())
    assert "without a reference every trial runs the default (step=0), but the process ended while it was tried" in err


@pytest.mark.slow
def test_two_processes_at_once_do_not_blame_each_other(script, monkeypatch, wait_until, tmp_path) -> None:
    monkeypatch.setenv("WHAT", "wait")
    processes, launched = [], tmp_path / "launched"
    launched.touch()
    try:
        for count in (1, 2):  # the second waits for the device, which the first has
            processes.append(start(script))
            wait_until(lambda: len(marks()) == count, f"{count} marks")  # noqa: B023 - now
            wait_until(lambda: "2" in launched.read_text().split(), "the config that waits")
        (tmp_path / "go").touch()
        for process in processes:
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            assert out.split()[1] == "0"
            assert "is not tried" not in err
    finally:
        for process in processes:
            process.kill()
    assert marks() == []


class Attempt:
    """Tries configs in this process; `does` is called with each."""

    def __init__(self, does=lambda config: None):
        self.does, self.tried = does, []

    def __call__(self, request):
        self.tried.append(request.config)
        self.does(request.config)
        return Trial(request.config, Timing((1e-3,) * 5), at=time.time())


def tune(tmp_path, attempt, *, fresh=False):
    session = Session(store=SqliteStore(tmp_path / "s.sqlite"), pool="serial", strategy="exhaustive")
    return session.tune(PROBLEM, attempt, fresh=fresh)


def test_the_mark_is_there_while_a_config_runs_and_only_then(tmp_path) -> None:
    seen = []
    tune(tmp_path, Attempt(lambda config: seen.append(marks()[0].read_text().splitlines()[1:])))
    assert [json.loads(lines[-1]) for lines in seen] == [{"start": [dict(config)]} for config in (A, B, C)]
    assert [json.loads(line) for line in seen[-1][:2]] == [{"start": [dict(A)]}, {"end": [dict(A)]}]
    assert marks() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, BackendError])
def test_who_is_interrupted_or_raises_is_not_blamed(tmp_path, error) -> None:
    def stop(config):
        if config == B:
            raise error

    with pytest.raises(error):
        tune(tmp_path, Attempt(stop))
    assert marks() == []
    again = Attempt()
    tune(tmp_path, again)
    assert B in again.tried


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Leaves the mark of a process that died while it did `steps`."""

    def leave(*steps, isolated=False, host=None, boot=None):
        mark = Trying(tmp_path / "trying", KEY.digest, "other:1:1", isolated=isolated)
        header = mark._header
        mark._header = trying._Header(header.by, host or header.host, boot or header.boot, isolated)
        for kind, *configs in steps:
            getattr(mark, kind)(*configs)
        os.close(mark._file)
        trying._held.discard(mark._path)
        return mark._path

    return leave


def blame(tmp_path, **options):
    return list(Trying(tmp_path / "trying", KEY.digest, "me:1:1", isolated=False).find_blame(**options))


def test_what_ran_when_the_process_died_is_blamed_until_a_fresh_start(tmp_path, machine) -> None:
    path = machine(("start", A), ("end", A), ("start", B))
    for _ in range(2):
        (found,) = blame(tmp_path)
        assert (found.by, list(found.reasons), found.suspects) == ("other:1:1", [B], ())
        assert "the process ended" in found.reasons[B]
    assert path.exists()
    assert blame(tmp_path, fresh=True) == []
    assert not path.exists()


def test_in_a_worker_only_a_restart_is_the_fault_of_a_config(tmp_path, machine) -> None:
    path = machine(("start", A), ("start", B), isolated=True)
    assert [found.reasons for found in blame(tmp_path)] == [{}]
    assert not path.exists()
    machine(("start", A), ("start", B), isolated=True, boot="before")
    (found,) = blame(tmp_path)
    assert list(found.reasons) == [A, B]
    assert "the machine restarted" in found.reasons[A]


def test_another_machine_with_the_same_cache_is_not_judged(tmp_path, machine) -> None:
    path = machine(("start", A), host="elsewhere", boot="of its own")
    assert blame(tmp_path) == []
    assert path.exists()


def test_what_was_not_on_the_disk_did_not_run(tmp_path, machine) -> None:
    path = machine(("start", A), ("end", A), ("start", B))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert [found.reasons for found in blame(tmp_path)] == [{}]
    path.write_bytes(b"")
    assert blame(tmp_path) == []
    assert not path.exists()


def test_of_a_race_each_is_tried_again_alone(tmp_path, machine, caplog) -> None:
    tune(tmp_path, Attempt())
    source = machine(("start", A, C))
    os.rename(source, Session().settings.cache_path / "trying" / source.name)
    again = Attempt()
    tune(tmp_path, again)
    assert again.tried[:2] == [A, C]
    assert "a race of 2 configs ended the process or the machine; each is tried again alone" in caplog.text


def test_what_was_recorded_before_the_end_is_not_blamed(tmp_path, machine) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    store.record(KEY, [Trial(B, Timing((1e-3,)), by="other:1:1")])
    source = machine(("start", B))
    folder = Session().settings.cache_path / "trying"
    folder.mkdir()
    os.rename(source, folder / source.name)
    assert tune(tmp_path, Attempt()).evidence.failures == 0


def test_a_forked_process_neither_holds_nor_removes_the_mark(tmp_path) -> None:
    mark = Trying(tmp_path / "trying", KEY.digest, "me:1:1", isolated=False)
    mark.start(A)
    child = os.fork()
    if child == 0:
        mark.end(A)
        mark.close()
        os._exit(0)
    os.waitpid(child, 0)
    (path,) = (tmp_path / "trying").iterdir()
    assert len(path.read_text().splitlines()) == 2
    mark.close()
    assert not path.exists()


def test_where_nothing_can_be_written_there_is_no_mark(tmp_path) -> None:
    (Session().settings.cache_path / "trying").write_text("in the way")
    attempt = Attempt()
    tune(tmp_path, attempt)
    assert attempt.tried == [A, B, C]


def test_one_that_made_the_device_unusable_stays_blamed_alone(tmp_path):
    mark = Trying(tmp_path, "key", "host:1:0", isolated=False)
    mark.start(A)
    mark.start(B, C)
    mark.blame(C, "it left the device unusable")
    mark.close()  # as the end of a search does
    for _ in range(2):
        (blame,) = Trying(tmp_path, "key", "host:2:0", isolated=False).find_blame()
        assert blame.reasons == {C: "it left the device unusable; run with fresh=True to try it again"}
        assert blame.suspects == ()


def test_nobody_is_blamed_for_what_came_before(tmp_path):
    mark = Trying(tmp_path, "key", "host:1:0", isolated=False)
    mark.start(A)
    mark.blame(None, "")
    mark.close()
    assert not list(tmp_path.iterdir())
