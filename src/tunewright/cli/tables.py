"""`tunewright tables`: config tables of other tools, checked without a device and written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.completion import complete_kernel
from tunewright.cli.targets import json_option, session_to_read, store_option
from tunewright.errors import NoDecision, WireError
from tunewright.interop import findings, moe
from tunewright.interop.audit import AuditReport, audit_tables
from tunewright.interop.findings import AuditRequest, RequestedShape, Severity
from tunewright.report import formatting


@click.group()
def tables() -> None:
    """Check and write the config tables of other tools."""


@tables.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--shapes", metavar="FILE|M=1,2,4", multiple=True,
              help="What will be looked up: sizes, a file of sizes, or a recorded trace. Repeatable.")  # fmt: skip
@click.option("--device", default="", metavar="NAME", help="The device they are for, by the name its driver gives it.")
@click.option("--versions", metavar="NAME=VALUE", multiple=True,
              help="The versions they are for: triton=3.4.0, PT_VERSION=2.6.0. Repeatable.")  # fmt: skip
@json_option
def audit(folder: Path, shapes: tuple[str, ...], versions: tuple[str, ...], **options: Any) -> None:
    """Check the tables of other tools in DIR, without a device.

    Finds rows that no look-up uses, collisions, gaps, cliffs and impossible values. It reads vLLM's and SGLang's
    MoE tables, PyTorch's TunableOp results, Triton's *.autotune.json, Kernel Tuner's caches and T4 results. Exit
    status 1 if there are errors; what is only a warning costs speed.
    """
    request = AuditRequest(
        tuple(shape for text in shapes for shape in _parse_shapes(text)), options["device"], _parse_versions(versions)
    )
    report = audit_tables(folder, request)
    if options["as_json"]:
        output.print_json({"folder": findings.printable(str(folder)), **_to_json(report)})
    else:
        _print_report(report)
    if report.count(Severity.ERROR):
        sys.exit(1)


def _parse_shapes(text: str) -> tuple[RequestedShape, ...]:
    if "=" not in text or Path(text).is_file():
        if not Path(text).is_file():
            raise click.UsageError(f"--shapes {text!r} is neither a file nor sizes such as M=1,2,4")
        return findings.read_shapes(Path(text))
    try:
        return tuple(findings.parse_shapes(text))
    except WireError as error:
        raise click.UsageError(f"--shapes: {error}") from error


def _parse_versions(typed: tuple[str, ...]) -> dict[str, str]:
    versions = {}
    for text in typed:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise click.UsageError(f"--versions {text!r} is not a version; write NAME=VALUE, such as triton=3.4.0")
        versions[name] = value
    return versions


def _to_json(report: AuditReport) -> dict[str, Any]:
    return {
        "tables": report.tables,
        "passed_over": [findings.printable(name) for name in report.passed_over],
        "errors": report.count(Severity.ERROR),
        "warnings": report.count(Severity.WARNING),
        "findings": report.findings,
    }


def _print_report(report: AuditReport) -> None:
    if report.findings:
        heads = ("severity", "fault", "file", "row", "what is wrong", "what to do")
        rows = [
            (finding.severity, finding.fault, finding.file, finding.row, finding.wrong, finding.remedy)
            for finding in report.findings
        ]
        output.print_table(heads, rows)
        output.echo()
    counts = [
        formatting.counted(report.count(Severity.ERROR), "error"),
        formatting.counted(report.count(Severity.WARNING), "warning"),
    ]
    skipped = f"; {formatting.counted(len(report.passed_over), 'other file')} skipped" if report.passed_over else ""
    output.echo(f"{formatting.counted(report.tables, 'table')}: {', '.join(counts)}{skipped}")


@tables.command()
@click.argument("kernel", shell_complete=complete_kernel)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--title", required=True, help='What it is for, as in a file name: "E=8,N=14336,device_name=NVIDIA_H100".'
)
@click.option("--tool", type=click.Choice(["vllm", "sglang"]), default="vllm", show_default=True, help="Who reads it.")
@click.option("--device", default="", help="Only decisions for devices whose name contains this.")
@store_option
@json_option
def export(kernel: str, folder: Path, title: str, tool: str, device: str, **options: Any) -> None:
    """Write the decisions for KERNEL as a MoE table of vLLM or SGLang.

    A row for each size M, in a file of FOLDER under the name that these tools look for.

    `tunewright.interop.moe.seeds(FILE)` does the opposite: it makes the rows of such a table the first configs to try.
    """
    store = session_to_read(options["store"]).store
    decisions = [decision for decision in store.decisions(kernel) if device in decision.key.device.model]
    if not decisions:
        raise NoDecision(f"nothing is decided for {kernel}; `tunewright show` lists what is")
    versions = {decision.key.toolchain.get("triton", "") for decision in decisions}
    table = moe.table_from_decisions(moe.parse_name(title), decisions, versions.pop() if len(versions) == 1 else "")
    path = moe.write(table, folder, moe.Tool.VLLM if tool == "vllm" else moe.Tool.SGLANG)
    if options["as_json"]:
        output.print_json({"file": str(path), "rows": len(table.rows)})
    else:
        output.echo(f"{path}: {formatting.counted(len(table.rows), 'row')}")
