"""A bench of implementations that misbehave."""

from pathlib import Path

import pytest

from tunewright.bench.calls import OperatorCall
from tunewright.bench.rounds import RoundOptions
from tunewright.bench.runner import BenchPlan, list_operators, run_benchmark
from tunewright.bench.worker import Build
from tunewright.measure.evaluator import Limits

TROUBLED = f"{Path(__file__).with_name('troubled.py')}:implementations"
CALL = OperatorCall("reduce", {"M": 16, "N": 64})


@pytest.fixture
def benched():
    """Runs some of the troubled implementations."""

    def run(*names, isolated=True, calls=(CALL,), repeats=1, rounds=12, deadline=120.0):
        plan = BenchPlan(
            Limits(build=60.0, run=deadline, memory=512 << 20),
            RoundOptions(rounds=rounds, seconds=120.0),
            repeats,
            isolated,
            Build(providers=(TROUBLED,)),
        )
        return run_benchmark(plan, list_operators(plan.build, plan.limits), list(calls), names, lambda message: None)

    return run
