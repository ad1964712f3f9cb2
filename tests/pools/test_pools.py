import os
import signal
import threading
import time

import pytest

from tunewright import Config, Knob, Session, Space, tune
from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError, PluginError
from tunewright.measure.evaluator import Limits
from tunewright.model.trial import Failure, Stage, TrialRequest
from tunewright.pools.process import ProcessPool
from tunewright.pools.serial import SerialPool
from tunewright.pools.worker import IsolatedAttempt, Worker
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
        return TUNED.make_evaluator([Inputs()], tmp_path)
    limits = Limits(run=600.0)
    return IsolatedAttempt(lambda: TUNED.make_evaluator([Inputs()], tmp_path), (Inputs(),), tmp_path, limits=limits)


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
            while not (workers := [w for w in list(pool._busy) if w.request.config == Config(step=99) and w.stage]):
                time.sleep(0.01)
            os.kill(workers[0].pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        trials = list(pool.run(attempt, [TrialRequest(Config(step=step)) for step in (1, 99, 2, 8)]))
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
        assert attempt(TrialRequest(Config(step=2))).works
        assert isinstance(attempt(TrialRequest(Config(step=4))).outcome, Failure)

    def test_no_worker_outlives_its_pool(self, pool, attempt) -> None:
        run = pool.run(attempt, ENTRIES)
        next(run)
        pids = [worker.pid for worker in pool._busy + pool._idle]
        assert pids
        run.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_a_worker_that_saw_a_wrong_write_is_not_used_again(tmp_path) -> None:
    worker = Worker(IsolatedAttempt(lambda: TUNED.make_evaluator([Inputs()], tmp_path), (Inputs(),), tmp_path))
    try:
        for step, retired in ((1, False), (4, True)):
            worker.submit(TrialRequest(Config(step=step)))
            while worker.poll(5) is None:
                pass
            assert worker.retired is retired
    finally:
        worker.close()


@pytest.mark.slow
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


class Raising:
    """An evaluator that is broken itself: it raises what is no failure of a config."""

    nbytes = 0

    def prepare(self) -> None: ...

    def __call__(self, request, on_stage):
        on_stage(Stage.TIME)
        raise RuntimeError("the evaluator is broken")


def test_a_forked_worker_that_raises_while_it_serves_is_a_failure_with_its_reason(tmp_path) -> None:
    trial = IsolatedAttempt(Raising, (Inputs(),), tmp_path)(TrialRequest(Config(step=1)))
    assert isinstance(trial.outcome, Failure)
    assert "exited with status 1" in trial.outcome.reason
    assert "RuntimeError: the evaluator is broken" in trial.outcome.reason


def test_a_forked_worker_that_raises_before_it_is_ready_says_why(tmp_path) -> None:
    def make():
        raise LookupError("no such input")

    with pytest.raises(BackendError, match=r"exited with status 1\).*LookupError: no such input"):
        IsolatedAttempt(make, (Inputs(),), tmp_path)(TrialRequest(Config(step=1)))
