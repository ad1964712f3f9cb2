"""Audit: tables of other tools checked without a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.errors import WireError
from tunewright.interop import findings
from tunewright.interop.audit import Report, audited
from tunewright.interop.findings import Asked, Severity, Shape
from tunewright.report import words


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--shapes", metavar="FILE|M=1,2,4", multiple=True,
              help="What will be asked for: sizes, or a file of them, or a recorded trace. Repeatable.")  # fmt: skip
@click.option("--device", default="", metavar="NAME", help="Where they are to serve, as its driver calls it.")
@click.option("--versions", metavar="NAME=VALUE", multiple=True,
              help="What they are to serve with: triton=3.4.0, PT_VERSION=2.6.0. Repeatable.")  # fmt: skip
@json_option
def audit(folder: Path, shapes: tuple[str, ...], versions: tuple[str, ...], **options: Any) -> None:
    """Check the tables of other tools in DIR, without a device.

    Finds rows no look-up asks for, collisions, gaps, cliffs, values that cannot be. It reads vLLM's and SGLang's
    MoE tables, PyTorch's TunableOp results, Triton's *.autotune.json, Kernel Tuner's caches and T4 results. Exit
    status 1 if there are errors; warnings cost speed, not more.
    """
    asked = Asked(tuple(shape for text in shapes for shape in _shapes(text)), options["device"], _versions(versions))
    report = audited(folder, asked)
    if options["as_json"]:
        output.as_json({"folder": findings.printable(str(folder)), **_plain(report)})
    else:
        _tell(report)
    if report.count(Severity.ERROR):
        sys.exit(1)


def _shapes(text: str) -> tuple[Shape, ...]:
    if "=" not in text or Path(text).is_file():
        if not Path(text).is_file():
            raise click.UsageError(f"--shapes {text!r} is neither a file nor sizes such as M=1,2,4")
        return findings.shapes_in(Path(text))
    try:
        return tuple(findings.shapes_of(text))
    except WireError as error:
        raise click.UsageError(f"--shapes: {error}") from error


def _versions(said: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in said:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise click.UsageError(f"--versions {text!r} is no version; write NAME=VALUE, such as triton=3.4.0")
        found[name] = value
    return found


def _plain(report: Report) -> dict[str, Any]:
    return {
        "tables": report.tables,
        "passed_over": [findings.printable(name) for name in report.passed_over],
        "errors": report.count(Severity.ERROR),
        "warnings": report.count(Severity.WARNING),
        "findings": report.findings,
    }


def _tell(report: Report) -> None:
    if report.findings:
        heads = ("severity", "fault", "file", "row", "what is wrong", "what to do")
        rows = [(one.severity, one.fault, one.file, one.row, one.wrong, one.remedy) for one in report.findings]
        output.table(heads, rows)
        output.say()
    counts = [
        words.counted(report.count(Severity.ERROR), "error"),
        words.counted(report.count(Severity.WARNING), "warning"),
    ]
    passed = f"; {words.counted(len(report.passed_over), 'other file')} passed over" if report.passed_over else ""
    output.say(f"{words.counted(report.tables, 'table')}: {', '.join(counts)}{passed}")
