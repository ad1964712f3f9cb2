import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunewright.errors import PluginError, SettingsError
from tunewright.replay.ledger import TraceLog
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayOptions, make_jobs, run_job
from tunewright.replay.workers import collect_traces, run_jobs

GREEDY = str(Path(__file__).parent / "greedy.py")


def wanted(origin, seeds=4, strategy="random"):
    return make_jobs([origin], [ReplayedStrategy(strategy)], range(seeds), ReplayOptions(8))


def test_processes_find_the_same_as_this_one(recorded) -> None:
    some = make_jobs(
        [recorded("toy-A"), recorded("toy-B", 2)], [ReplayedStrategy(f"{GREEDY}:Greedy")], range(3), ReplayOptions(8)
    )
    here = [run_job(job) for job in some]
    there = {(t.table, t.key.seed): t.rows for t in run_jobs(some, count=2)}
    assert there == {(t.table, t.key.seed): t.rows for t in here}


def test_an_error_in_a_process_is_the_error_here(recorded) -> None:
    with pytest.raises(PluginError, match="raised ZeroDivisionError"):
        list(run_jobs(wanted(recorded(), strategy=f"{GREEDY}:Broken"), count=2))


def test_a_process_that_dies_is_noticed(recorded, tmp_path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os\nclass Deadly:\n    def __init__(self, space, rng): pass\n    def ask(self, count): os._exit(3)\n"
    )
    with pytest.raises(PluginError, match="a worker died while"):
        list(run_jobs(wanted(recorded(), strategy=f"{tmp_path}/deadly.py:Deadly"), count=2))


def test_what_is_known_is_not_replayed(recorded, tmp_path) -> None:
    progress = []
    with TraceLog(tmp_path / "out") as log:
        first = collect_traces(wanted(recorded(), 3), log, workers=1)
        more = collect_traces(wanted(recorded(), 5), log, workers=1, after=lambda *seen: progress.append(seen))
        assert more[:3] == first
        assert progress == [(3, 3), (4, 3), (5, 3)]
        assert log.path.read_bytes().count(b"\n") == 5
        fresh = collect_traces(wanted(recorded(), 5), log, workers=1, fresh=True)
        assert [trace.rows for trace in fresh] == [trace.rows for trace in more]
        assert log.path.read_bytes().count(b"\n") == 10


def test_another_recording_budget_batch_or_setting_is_another_run(recorded, tmp_path) -> None:
    strategy = ReplayedStrategy(f"{GREEDY}:Greedy")
    with TraceLog(tmp_path / "out") as log:
        for number, some in enumerate(
            (
                make_jobs([recorded()], [strategy], [0], ReplayOptions(8)),
                make_jobs([recorded()], [strategy], [0], ReplayOptions(9)),
                make_jobs([recorded()], [strategy], [0], ReplayOptions(8, 4)),
                make_jobs([recorded()], [ReplayedStrategy(strategy.name, {"first": 2})], [0], ReplayOptions(8)),
                make_jobs([recorded(best_tile=1)], [strategy], [0], ReplayOptions(8)),
            ),
            start=1,
        ):
            collect_traces(some, log, workers=1)
            assert log.path.read_bytes().count(b"\n") == number


def test_a_incomplete_line_costs_one_run_only(recorded, tmp_path) -> None:
    some = wanted(recorded(), 3)
    with TraceLog(tmp_path) as log:
        whole = collect_traces(some, log, workers=1)
    log.path.write_bytes(log.path.read_bytes()[:-40])
    with TraceLog(tmp_path) as log:
        assert len(log.lookup(job.key for job in some)) == 2
        assert [t.rows for t in collect_traces(some, log, workers=1)] == [t.rows for t in whole]
    with TraceLog(tmp_path) as log:
        assert len(log.lookup(job.key for job in some)) == 3


def test_a_folder_that_cannot_be_written_is_explained(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--out"):
        TraceLog(tmp_path / "file")


SLOW = """
import os
import time
from tunewright.strategies.random import RandomSearch

class Slow(RandomSearch):
    def ask(self, count):
        with open({log!r}, "a") as file:
            file.write(".")
        while os.path.exists({hold!r}) and os.path.exists({out!r}) and open({out!r}, "rb").read().count(b"\\n") >= 3:
            time.sleep(0.01)
        return super().ask(count)
"""
RUN = """
import sys
from pathlib import Path
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.workers import collect_traces
from tunewright.replay.ledger import TraceLog
from tunewright.replay.runs import ReplayOptions, make_jobs
from tunewright.replay.tables import list_recordings

if __name__ == "__main__":
    spaces, strategy, out = sys.argv[1:]
    tables = list_recordings([Path(spaces)])
    with TraceLog(Path(out)) as log:
        jobs = make_jobs(tables, [ReplayedStrategy(strategy)], range(12), ReplayOptions(8))
        collect_traces(jobs, log, workers=2)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(recorded, tmp_path, wait_until) -> None:
    """Its strategy goes no further once three runs are done, so that the kill finds some undone."""
    origin, log, out, hold = recorded(), tmp_path / "asked", tmp_path / "out" / "replays.jsonl", tmp_path / "hold"
    hold.touch()
    (tmp_path / "slow.py").write_text(SLOW.format(log=str(log), hold=str(hold), out=str(out)))
    (tmp_path / "go.py").write_text(RUN)
    command = [sys.executable, "go.py", str(origin.path), f"{tmp_path}/slow.py:Slow", "out"]
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 3, "three runs")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = out.read_bytes().count(b"\n")
    assert 3 <= done < 12
    log.write_text("")
    hold.unlink()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    assert len(log.read_text()) == (12 - done) * 8  # every ask of the second run was for a run the first had not done
    assert sum(line.endswith(b"}") for line in out.read_bytes().splitlines()) == 12
