"""The report of the acceptance kit: one signed JSON file for machines, one Markdown page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import WireError
from tunewright.stores import files
from tunewright.triton.acceptance.notes import StageResult

SCHEMA = 1
MAX_BYTES = 64 << 20
KEY_NAME = "acceptance.pem"
RUNGS = {2: "simulated driver (rung 2): shows behavior, says nothing about a GPU", 5: "real GPU (rung 5)"}


class AcceptanceReport(msgspec.Struct, frozen=True):
    """What was tested where, and the result of each stage."""

    made: str
    tunewright: str
    rung: int
    host: str
    card: str
    stages: list[StageResult]
    schema: int = SCHEMA

    @property
    def is_good(self) -> bool:
        """Whether all stages passed, or had nothing to test."""
        return all(stage.is_good for stage in self.stages)


class _SignedReport(msgspec.Struct, frozen=True):
    """The file: the report as it was signed, and the signature."""

    report: msgspec.Raw
    signature: str


def write_report(report: AcceptanceReport, folder: Path, key: Path) -> tuple[Path, Path]:
    """Writes the signed report and its page; makes the key if there is none. Returns where they are."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    if not key.exists():
        key.parent.mkdir(parents=True, exist_ok=True)
        signing.generate_key(key)
    body = msgspec.json.encode(report)
    signature = signing.sign_report(body, signing.load_private_key(key))
    folder.mkdir(parents=True, exist_ok=True)
    machine, page = folder / "report.json", folder / "report.md"
    files.write_atomic(machine, msgspec.json.encode(_SignedReport(msgspec.Raw(body), signature)))
    files.write_atomic(page, render_page(report).encode())
    return machine, page


def read_report(path: Path) -> tuple[AcceptanceReport, str]:
    """Returns a report and the public key of its signer; raises BundleError if it was changed."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        signed = msgspec.json.decode(files.read_bounded(path, MAX_BYTES), type=_SignedReport)
        signer = signing.verify_report_signer(signed.signature, bytes(signed.report))
        report = msgspec.json.decode(signed.report, type=AcceptanceReport)
    except (OSError, msgspec.MsgspecError) as error:
        raise WireError(f"{path} is no report of `tunewright gpu accept`: {error}") from error
    if report.schema != SCHEMA:
        raise WireError(
            f"{path} has schema {report.schema}, this version reads {SCHEMA}; use the version that wrote it"
        )
    return report, signing.encode_public_key(signer)


def render_page(report: AcceptanceReport) -> str:
    """Returns the page for people: verdicts, findings, figures, and the ends of the logs of what failed."""
    verdict = "all stages passed" if report.is_good else "not all stages passed"
    lines = [
        f"# Acceptance: {report.card}",
        "",
        f"{verdict}. {RUNGS.get(report.rung, f'rung {report.rung}')}. tunewright {report.tunewright}, {report.made}, "
        f"{report.host}.",
        "",
        "| stage | verdict | seconds | findings |",
        "|---|---|---|---|",
    ]
    for stage in report.stages:
        findings = "<br>".join(_cell(finding) for finding in stage.findings) or _cell(stage.figures.get("skipped", ""))
        lines.append(f"| {stage.name} | {stage.verdict} | {stage.seconds:.1f} | {findings} |")
    for stage in report.stages:
        lines += ["", f"## {stage.name}", "", *_figure_lines(stage)]
        if stage.log.strip() and not stage.is_good:
            tail = "\n".join(stage.log.strip().splitlines()[-30:]).replace("```", "'''")
            lines += ["", "```text", tail, "```"]
    return "\n".join(lines) + "\n"


def _figure_lines(stage: StageResult) -> list[str]:
    lines = [f"- {name}: {_cell(_shown(value))}" for name, value in stage.figures.items()]
    for name, samples in stage.samples.items():
        if samples:
            lines.append(f"- {name}: {len(samples)} samples, {min(samples):.4g} to {max(samples):.4g}")
    return lines or ["No figures."]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: Any) -> str:
    """Returns text that stays in its cell, and is no markup."""
    plain = " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
    return plain if len(plain) <= 500 else f"{plain[:500]}..."
