"""The benchmark of the auditor counts what it says it counts."""

import json
import sys
from pathlib import Path

import pytest

from tunewright.interop.audit import AuditReport

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def audit(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import audit

    yield audit
    for name in ("audit", "audit_tables", "figures"):
        sys.modules.pop(name, None)


def figures(audit, capsys, *arguments):
    assert audit.main(["--json", "--draws", "1", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_planted_fault_is_found_and_nothing_else_with_another_seed_too(audit, capsys) -> None:
    said = figures(audit, capsys, "--seed", "99")
    assert said["planted"] == said["found"] >= 25
    assert (said["missed"], said["false_alarms"], said["which"]) == (0, 0, [])
    tools = {kind.partition(":")[0] for kind in said["kinds"]}
    assert tools == {"vLLM", "SGLang", "TunableOp", "Triton", "Kernel Tuner", "T4"}
    kinds = {kind.partition(": ")[2] for kind in said["kinds"]}
    assert kinds >= {"unreachable", "collision", "alias", "gap", "cliff", "version", "far", "untuned"}


def test_a_blind_auditor_misses_everything_and_one_that_sees_ghosts_gives_alarms(audit, capsys, monkeypatch) -> None:
    real = audit.audit_tables
    monkeypatch.setattr(audit, "audit_tables", lambda folder, asked: AuditReport(1, (), ()))
    said = figures(audit, capsys)
    assert (said["found"], said["false_alarms"]) == (0, 0)
    assert said["missed"] == said["planted"]

    def everywhere(folder, asked):
        (folder / "E=1,N=1.json").write_text("{}")
        return real(folder, asked)

    monkeypatch.setattr(audit, "audit_tables", everywhere)
    assert figures(audit, capsys)["false_alarms"] > 50
