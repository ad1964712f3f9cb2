"""A bench of implementations that misbehave."""

from pathlib import Path

import pytest

from tunewright.bench.bouts import Terms
from tunewright.bench.calls import Call
from tunewright.bench.driving import Plan, driven, surveyed
from tunewright.bench.seat import Build
from tunewright.measure.attempt import Limits

TROUBLED = f"{Path(__file__).with_name('troubled.py')}:implementations"
CALL = Call("reduce", {"M": 16, "N": 64})


@pytest.fixture
def benched():
    """Runs some of the troubled implementations."""

    def run(*names, isolated=True, calls=(CALL,), sittings=1, rounds=12, deadline=120.0):
        plan = Plan(
            Limits(build=60.0, run=deadline, memory=512 << 20),
            Terms(rounds=rounds, seconds=120.0),
            sittings,
            isolated,
            Build(providers=(TROUBLED,)),
        )
        return driven(plan, surveyed(plan.build, plan.limits), list(calls), names, lambda said: None)

    return run
