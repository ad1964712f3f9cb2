import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunewright.errors import PluginError, SettingsError
from tunewright.laboratory.contenders import Contender
from tunewright.laboratory.crew import run, traces
from tunewright.laboratory.ledger import Ledger
from tunewright.laboratory.replays import Terms, jobs, perform

GREEDY = str(Path(__file__).parent / "greedy.py")


def wanted(origin, seeds=4, strategy="random"):
    return jobs([origin], [Contender(strategy)], range(seeds), Terms(8))


def test_processes_find_the_same_as_this_one(recorded) -> None:
    some = jobs([recorded("toy-A"), recorded("toy-B", 2)], [Contender(f"{GREEDY}:Greedy")], range(3), Terms(8))
    here = [perform(job) for job in some]
    there = {(t.table, t.stamp.seed): t.rows for t in run(some, workers=2)}
    assert there == {(t.table, t.stamp.seed): t.rows for t in here}


def test_an_error_in_a_process_is_the_error_here(recorded) -> None:
    with pytest.raises(PluginError, match="raised ZeroDivisionError"):
        list(run(wanted(recorded(), strategy=f"{GREEDY}:Broken"), workers=2))


def test_a_process_that_dies_is_noticed(recorded, tmp_path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os\nclass Deadly:\n    def __init__(self, space, rng): pass\n    def ask(self, count): os._exit(3)\n"
    )
    with pytest.raises(PluginError, match="a process died while"):
        list(run(wanted(recorded(), strategy=f"{tmp_path}/deadly.py:Deadly"), workers=2))


def test_what_is_known_is_not_replayed(recorded, tmp_path) -> None:
    said = []
    with Ledger(tmp_path / "out") as ledger:
        first = traces(wanted(recorded(), 3), ledger, workers=1)
        more = traces(wanted(recorded(), 5), ledger, workers=1, after=lambda *seen: said.append(seen))
        assert more[:3] == first
        assert said == [(3, 3), (4, 3), (5, 3)]
        assert ledger.path.read_bytes().count(b"\n") == 5
        fresh = traces(wanted(recorded(), 5), ledger, workers=1, fresh=True)
        assert [trace.rows for trace in fresh] == [trace.rows for trace in more]
        assert ledger.path.read_bytes().count(b"\n") == 10


def test_another_recording_budget_batch_or_setting_is_another_run(recorded, tmp_path) -> None:
    contender = Contender(f"{GREEDY}:Greedy")
    with Ledger(tmp_path / "out") as ledger:
        for number, some in enumerate(
            (
                jobs([recorded()], [contender], [0], Terms(8)),
                jobs([recorded()], [contender], [0], Terms(9)),
                jobs([recorded()], [contender], [0], Terms(8, 4)),
                jobs([recorded()], [Contender(contender.name, {"first": 2})], [0], Terms(8)),
                jobs([recorded(best_tile=1)], [contender], [0], Terms(8)),
            ),
            start=1,
        ):
            traces(some, ledger, workers=1)
            assert ledger.path.read_bytes().count(b"\n") == number


def test_a_torn_line_costs_one_run_only(recorded, tmp_path) -> None:
    some = wanted(recorded(), 3)
    with Ledger(tmp_path) as ledger:
        whole = traces(some, ledger, workers=1)
    ledger.path.write_bytes(ledger.path.read_bytes()[:-40])
    with Ledger(tmp_path) as ledger:
        assert len(ledger.known(job.stamp for job in some)) == 2
        assert [t.rows for t in traces(some, ledger, workers=1)] == [t.rows for t in whole]
    with Ledger(tmp_path) as ledger:
        assert len(ledger.known(job.stamp for job in some)) == 3


def test_a_folder_that_cannot_be_written_is_explained(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--out"):
        Ledger(tmp_path / "file")


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
from tunewright.laboratory.contenders import Contender
from tunewright.laboratory.crew import traces
from tunewright.laboratory.ledger import Ledger
from tunewright.laboratory.replays import Terms, jobs
from tunewright.laboratory.tables import on_disk

if __name__ == "__main__":
    spaces, strategy, out = sys.argv[1:]
    with Ledger(Path(out)) as ledger:
        traces(jobs(on_disk([Path(spaces)]), [Contender(strategy)], range(12), Terms(8)), ledger, workers=2)
"""


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
