import os
import signal
import threading
import time

import pytest

from tunewright import Config, Knob, Session, Space, tune
from tunewright.cases.inputs import Inputs
from tunewright.errors import PluginError
from tunewright.measure.attempt import Limits
from tunewright.model.trial import Entry, Failure
from tunewright.pools.isolate import Isolated, Worker
from tunewright.pools.process import ProcessPool
from tunewright.pools.serial import SerialPool
from tunewright.testing.pool_kit import CONFIGS, ENTRIES, PoolContract


def stepped(*, step):
    if step == 4:
        raise ValueError("no step 4")
    if step == 99:
        time.sleep(600)
    return 1


TUNED = tune(Space(Knob("step", [1, 2, 4, 8, 99])), default={"step": 1})(stepped)


@pytest.fixture
def attempt(request, tmp_path):
    if "Serial" in request.cls.__name__:
        return TUNED.bench([Inputs()], tmp_path)
    limits = Limits(run=600.0)
    return Isolated(lambda: TUNED.bench([Inputs()], tmp_path), (Inputs(),), tmp_path, limits=limits)


class TestSerial(PoolContract):
    @pytest.fixture
    def pool(self):
        return SerialPool()


class TestProcess(PoolContract):
    @pytest.fixture
    def pool(self):
        return ProcessPool(2)

    def test_a_killed_worker_costs_its_trial_and_nothing_else(self, pool, attempt) -> None:
        def kill() -> None:
            """Once it has begun, which may be after all others have ended; one killed before would be replaced."""
            while not (found := [w for w in list(pool._busy) if w.entry.config == Config(step=99) and w._stage]):
                time.sleep(0.01)
            os.kill(found[0]._pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        trials = list(pool.run(attempt, [Entry(Config(step=step)) for step in (1, 99, 2, 8)]))
        killer.join(120)
        outcomes = {trial.config["step"]: trial.outcome for trial in trials}
        assert set(outcomes) == {1, 2, 8, 99}
        assert isinstance(outcomes[99], Failure)
        assert "SIGKILL" in outcomes[99].reason
        assert not any(isinstance(outcomes[step], Failure) for step in (1, 2, 8))

    def test_what_cannot_travel_is_refused_with_a_way_out(self, pool) -> None:
        with pytest.raises(PluginError, match='pool="serial"'):
            list(pool.run(lambda config: None, CONFIGS))

    def test_an_attempt_may_be_called_without_a_pool(self, attempt) -> None:
        assert attempt(Entry(Config(step=2))).works
        assert isinstance(attempt(Entry(Config(step=4))).outcome, Failure)

    def test_no_worker_outlives_its_pool(self, pool, attempt) -> None:
        run = pool.run(attempt, ENTRIES)
        next(run)
        pids = [worker._pid for worker in pool._busy + pool._idle]
        assert pids
        run.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_a_worker_that_saw_a_wrong_write_is_not_used_again(tmp_path) -> None:
    worker = Worker(Isolated(lambda: TUNED.bench([Inputs()], tmp_path), (Inputs(),), tmp_path))
    try:
        for step, spent in ((1, False), (4, True)):
            worker.give(Entry(Config(step=step)))
            while worker.collect(5) is None:
                pass
            assert worker.spent is spent
    finally:
        worker.close()


def test_one_worker_times_at_a_time(tmp_path, monkeypatch) -> None:
    log = tmp_path / "log"

    def kernel(*, k):
        with log.open("a") as file:
            file.write("in\n")
        time.sleep(0.01)
        with log.open("a") as file:
            file.write("out\n")

    session = Session(pool="process:3", strategy="exhaustive")
    tune(Space(Knob("k", range(6))), session=session)(kernel)()
    # Also the expected result, which each worker computes first, and the race at the end.
    assert session.counts["measurements"] == 6
    lines = log.read_text().split()
    assert lines == ["in", "out"] * (len(lines) // 2)
