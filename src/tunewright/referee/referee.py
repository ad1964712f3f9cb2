"""The referee: has a candidate and baselines run the same drawn launches, compares results, and judges."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

import numpy as np

from tunewright.backends.gpu_targets import TARGETS
from tunewright.backends.host import cpu
from tunewright.measure.noise import ConditionsMonitor
from tunewright.referee.match import MatchSetup, Sitting
from tunewright.referee.messages import SandboxReport
from tunewright.referee.physics import least_seconds
from tunewright.referee.submissions import Submission, load_submission, reference_submission
from tunewright.referee.task import Task, TaskError
from tunewright.referee.task_files import load_task
from tunewright.referee.transcripts import Party, RefereeTranscript, digest_source
from tunewright.referee.verdict import REFUSED, Incident, LaunchRecord, MatchRules, judge
from tunewright.version import __version__

EMULATED = tuple(name for name in TARGETS if name.startswith("sm_"))
"""The GPUs that Triton kernels can be compiled for."""


class Referee:
    """Judges candidates for a task without trusting them.

    A candidate runs in a sandboxed process of its own that has neither the clock nor the expected results. `seconds` is
    how long a match takes at most, besides the starts of processes; each of `sittings` starts new ones. Differences
    within `margin` are ties. `without` leaves out parts of the sandbox, to test the others. Triton kernels run in
    Triton's interpreter; with `gpu="sm_90"` they are compiled for that GPU, and the emulator executes them.

    Example: `Referee("task.py").run("candidate.py").verdict`
    """

    def __init__(
        self, task: Task | str | Path, *, seconds: float = 20.0, sittings: int = 8, margin: float = 0.01,
        without: Sequence[str] = (), gpu: str | None = None,
    ) -> None:  # fmt: skip
        self.task = task if isinstance(task, Task) else load_task(task)
        if sittings < 1 or seconds <= 0:
            raise TaskError("a match needs one sitting and some seconds at least")
        self.seconds, self.sittings, self.margin = seconds, sittings, margin
        if gpu is not None and gpu not in EMULATED:
            raise TaskError(f"the emulator knows no GPU {gpu!r}; it knows {', '.join(EMULATED)}")
        self._without, self._gpu = tuple(without), gpu or ""

    def run(
        self, candidate: Submission | str | Path, against: Sequence[Submission | str | Path] = ()
    ) -> RefereeTranscript:
        """Returns the transcript of a match, which has the verdict; without baselines, against the reference."""
        parties = [each if isinstance(each, Submission) else load_submission(each) for each in (candidate, *against)]
        if not against:
            parties.append(reference_submission(self.task))
        if breach := parties[0].find_breach(self.task):
            return self._transcript(parties, (), [Incident(REFUSED, breach)], MatchRules(self.margin))
        with tempfile.TemporaryDirectory(prefix="tunewright-referee-") as folder:
            return self._hold(parties, Path(folder))

    def _hold(self, parties: Sequence[Submission], folder: Path) -> RefereeTranscript:
        """Holds the sittings of a match, until the candidate fails or the time is over."""
        monitor, random = ConditionsMonitor(), SystemRandom()
        setup = MatchSetup(self.task, tuple(parties), folder, self._without, self._gpu)
        records: list[LaunchRecord] = []
        incidents: list[Incident] = []
        seeds: list[int] = []
        reports: list[SandboxReport] = []
        least: tuple[float, ...] = ()
        for number in range(1 if setup.untimed else self.sittings):
            seeds.append(random.getrandbits(31))
            sitting = Sitting(setup, number, seeds[-1])
            if not number:
                sitting.checker.require_sensitive([random.getrandbits(31) for _ in range(3)], seeds[0])
                least = () if setup.untimed else least_seconds(self.task, sitting.checker, seeds[0])
            try:
                sitting.start()
                reports += sitting.reports
                sitting.run(time.monotonic() + self.seconds / self.sittings)
            finally:
                sitting.close()
            records += sitting.records
            incidents += sitting.incidents
            if incidents:
                break
        report = reports[0] if reports else SandboxReport()
        load = monitor.stop().load
        rules = MatchRules(self.margin, setup.clock, least, setup.untimed)
        return self._transcript(parties, records, incidents, rules, (seeds, report, load))

    def _transcript(
        self,
        parties: Sequence[Submission],
        records: Sequence[LaunchRecord],
        incidents: Sequence[Incident],
        rules: MatchRules,
        rest: tuple[Sequence[int], SandboxReport, float] = ((), SandboxReport(), 0.0),
    ) -> RefereeTranscript:
        seeds, report, load = rest
        return RefereeTranscript(
            task=Path(self.task.path).name or self.task.entry_name,
            task_digest=digest_source(self.task.source),
            shapes=tuple(dict(shape) for shape in self.task.shapes),
            parties=tuple(Party(party.name, party.digest) for party in parties),
            rules=rules,
            sandbox=report,
            records=tuple(records),
            incidents=tuple(incidents),
            constant_seeds=tuple(seeds),
            verdict=judge(records, incidents, rules, [party.name for party in parties[1:]]),
            machine=f"{cpu().model}, {os.cpu_count()} processors, Linux {platform.release()}",
            versions={"tunewright": __version__, "python": sys.version.split()[0], "numpy": np.__version__},
            load=load,
            notes=tuple(f"the sandbox has no {name}: {reason}" for name, reason in report.missing.items()),
            made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
