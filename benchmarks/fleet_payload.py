"""What `fleet.py` hands to devices: attempts that take a given time and do nothing else."""

from __future__ import annotations

import time
from typing import Any

from tunewright.model.trial import Stage, Timing, Trial, TrialRequest


class Payload:
    """Stands where a tuned kernel stands; its bench sleeps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.nbytes = 0

    def make_evaluator(self, cases: Any, cache: Any) -> Payload:
        return self

    def prepare(self) -> None: ...

    def build_artifacts(self, config: Any) -> list[Any]:
        return []

    def __call__(self, entry: TrialRequest, watch: Any) -> Trial:
        watch(Stage.TIME)
        return answer(entry, self.seconds)


def answer(entry: TrialRequest, seconds: float) -> Trial:
    time.sleep(seconds)
    return Trial(entry.config, Timing((1e-3,) * 12, "wall"), 0.0, seconds, at=time.time())


ten = Payload(0.010)
hundred = Payload(0.100)


class Told(Payload):
    """Takes as long as its config says."""

    def __call__(self, entry: TrialRequest, watch: Any) -> Trial:
        watch(Stage.TIME)
        return answer(entry, float(entry.config["micro"]) / 1e6)  # type: ignore[arg-type]


told = Told(0.0)
