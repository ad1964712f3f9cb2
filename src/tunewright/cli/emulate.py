"""`tunewright emulate`: executes PTX on the CPU and says what is wrong; also behind `tunewright triton check`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.emulator import Emulation, GridLaunch, Options, PtxError, PtxFault, emulate
from tunewright.emulator import words as argument_words
from tunewright.errors import SignatureError

if TYPE_CHECKING:
    from tunewright.emulator.triton_kernels import Verdict
    from tunewright.triton.static.prebuild import PrebuildResult

RUNG = "emulated"
"""The kind of evidence: the compiled code was executed on a CPU. Nothing is said about speed."""

SHOWN_LINES = 12

CHECKED_BLOCKS = 8
"""Blocks of each config that `tunewright triton prebuild --check` executes, those at the edges among them."""


def parse_triple(text: str) -> tuple[int, int, int]:
    """Returns grid or block from a text such as 4,2 or 4x2."""
    try:
        sizes = [int(word) for word in text.replace("x", ",").split(",")]
    except ValueError:
        raise click.UsageError(f"{text!r} is no size; write up to three numbers, as 4,2,1") from None
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise click.UsageError(f"{text!r} is no size; write up to three numbers above 0, as 4,2,1")
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


@click.command("emulate")
@click.argument("file", metavar="FILE.ptx|FILE.py:KERNEL")
@click.option("--kernel", help="Which kernel of a PTX file, if it has several.")
@click.option("--grid", default="1", show_default=True, help="Blocks of a PTX kernel, as 4,2,1.")
@click.option("--block", help="Threads of a block, as 128 (default: what the PTX requires).")
@click.option("--shared", type=click.IntRange(min=0), default=0, help="Bytes of dynamic shared memory.")
@click.option("--args", "arguments", default="", help='Arguments, as "*fp16[128x64],*fp32[64]=nan,64,0.5".')
@click.option(
    "--order",
    type=click.Choice(["ascending", "descending", "random"]),
    default="ascending",
    help="In which order the warps of a block run.",
)
@click.option("--blocks", type=click.IntRange(min=1), help="Execute so many blocks, those at the edges among them.")
@click.option("--seed", type=int, default=0, help="Of random arguments, blocks and orders.")
@click.option("--target", default="sm_80", show_default=True, help="GPU to compile a Triton kernel for.")
@click.option("--config", "setting", help="Config of a Triton kernel, as BLOCK=64,num_warps=4.")
@click.option("--shape", help="Sizes for the kernel's inputs(), as M=64,N=64.")
@json_option
def emulate_command(file: str, **options: Any) -> None:
    """Execute compiled GPU code on the CPU: results, faults and counts.

    FILE.ptx is executed with --grid, --block, --shared and --args. FILE.py:KERNEL is a Triton kernel, compiled for
    --target and checked as `tunewright triton check` does. The counts are of what is executed (rung: emulated); they
    are not times. Exit status 1 if there is a fault or a wrong result.
    """
    if not file.endswith(".ptx"):
        check_kernel(file, **options)
        return
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"no file {file}; name a .ptx file, or a Triton kernel as FILE.py:KERNEL")
    from tunewright.emulator.ptx_text import parse_module  # noqa: PLC0415 - only for a PTX file

    module = parse_module(path.read_text())
    code = module.kernel(options["kernel"])
    if options["block"] is None and not code.threads:
        raise click.UsageError(f"{code.name} requires no number of threads; give --block")
    block = parse_triple(options["block"]) if options["block"] else (*code.threads, 1, 1)[:3]
    launch = GridLaunch(parse_triple(options["grid"]), block, options["shared"])  # type: ignore[arg-type]
    args = argument_words.parse_words(options["arguments"], options["seed"])
    how = Options(blocks=options["blocks"], order=options["order"], seed=options["seed"])
    done = emulate(module, launch, args, how, code.name)
    report(done, done.faults, {"target": module.target, "orders": [options["order"]]}, as_json=options["as_json"])


class EmulatedKernel:
    """A Triton kernel with the inputs and the reference that its file declares, to be executed in the emulator."""

    def __init__(self, kernel: str, shape: str | None) -> None:
        from tunewright.cli import triton as triton_commands  # noqa: PLC0415 - an extension of its own

        self.declaration, inputs, self._reference = triton_commands.load_checked(kernel)
        self._arguments = dict(inputs(**{name: int(value) for name, value in parse_pairs(shape).items()}))
        if "grid" not in self._arguments:
            raise SignatureError("inputs() returns no grid; add it, as {'grid': (4, 4), 'x': ...}")
        self._grid = self._arguments.pop("grid")

    def check(self, config: Mapping[str, Any], target: str, how: Options) -> Verdict:
        """Compiles a config for a target, executes it and compares with the reference."""
        from tunewright.emulator import triton_kernels  # noqa: PLC0415 - needs Triton

        settings = self.declaration.settings((), self._arguments, config)
        only = {name: value for name, value in settings.items() if name not in self._arguments}
        call = triton_kernels.TritonCall(self.declaration.function, self._arguments, self._grid, only)
        return triton_kernels.check_call(call, triton_kernels.compile_call(call, target), self._reference, how)


def check_kernel(kernel: str, **options: Any) -> None:
    """Compiles a Triton kernel for a target, executes it and compares with its reference."""
    from tunewright.cli.triton import require_triton  # noqa: PLC0415 - an extension of its own

    with require_triton():
        emulated = EmulatedKernel(kernel, options["shape"])
        given = parse_pairs(options["setting"])
        config = {name: _value(text) for name, text in given.items()} or emulated.declaration.configs[0]
        how = Options(blocks=options["blocks"], seed=options["seed"])
        verdict = emulated.check(config, options["target"], how)
    said = {"target": options["target"], "orders": verdict.orders, "config": {k: str(v) for k, v in config.items()}}
    said["wrong"] = verdict.wrong
    folders = [Path(inspect.getfile(emulated.declaration.function.fn)).parent]
    report(verdict.emulation, verdict.faults, said, as_json=options["as_json"], folders=folders)


def drop_wrong(kernel: str, shape: str | None, rows: Iterable[PrebuildResult]) -> Iterator[PrebuildResult]:
    """Yields rows of a prebuild; those that are kept for NVIDIA's GPUs are executed, and dropped if they are wrong."""
    emulated = EmulatedKernel(kernel, shape)
    for row in rows:
        yield _checked(emulated, row) if row.keep and row.target.startswith("sm_") else row


def _checked(emulated: EmulatedKernel, row: PrebuildResult) -> PrebuildResult:
    try:
        verdict = emulated.check(row.config, row.target, Options(blocks=CHECKED_BLOCKS))
    except PtxError as error:  # an instruction that is not known says nothing about the config
        return msgspec.structs.replace(row, reasons=[*row.reasons, f"not executed: {error}"])
    if verdict.passes:
        return row
    why = str(verdict.faults[0]) if verdict.faults else f"wrong: {verdict.wrong}"
    return msgspec.structs.replace(row, keep=False, by="emulator", reasons=[*row.reasons, why])


def parse_pairs(text: str | None) -> dict[str, str]:
    """Returns names and values from a text such as M=64,N=64."""
    pairs = [word.partition("=") for word in (text or "").split(",") if word.strip()]
    if broken := [name for name, equals, _ in pairs if not equals]:
        raise click.UsageError(f"{broken[0]!r} has no value; write NAME=VALUE,NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def plain_fault(fault: PtxFault) -> dict[str, Any]:
    """Returns a fault as JSON."""
    found = {"kind": str(fault.kind), "message": fault.message, "file": fault.place.file, "line": fault.place.line,
             "ptx_line": fault.place.ptx_line, "instruction": fault.place.text}  # fmt: skip
    if fault.other is not None:
        found["other"] = {"line": fault.other.line, "ptx_line": fault.other.ptx_line, "instruction": fault.other.text}
    return found


def source_text(runs: Iterable[Emulation], folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns the lines of the source files that were executed, as far as they are in these folders."""
    ranges: dict[str, list[int]] = {}
    for done in runs:
        for line in done.counters.by_line():
            if line["line"]:
                ranges.setdefault(line["file"], []).append(line["line"])
    found = []
    for file, lines in ranges.items():
        path = next((path for folder in folders if (path := folder / Path(file).name).is_file()), None)
        if path is not None:
            text = path.read_text(errors="replace").splitlines()[min(lines) - 1 : max(lines)]
            found.append({"file": file, "first": min(lines), "lines": text})
    return found


def report(
    done: Emulation, faults: Sequence[PtxFault], said: dict[str, Any], *, as_json: bool, folders: Sequence[Path] = ()
) -> None:
    """Prints what was found; ends with status 1 if anything is wrong. Only sources in `folders` are quoted."""
    wrong, compared = said.get("wrong", ""), said.get("wrong", "") is None
    passes = not faults and not wrong
    if as_json:
        facts = {"kernel": done.kernel, "rung": RUNG, "passes": passes, "compared": compared or bool(wrong), **said,
                 "faults": list(map(plain_fault, faults)), "blocks": len(done.blocks), "grid": list(done.grid),
                 "whole": done.whole, "counters": done.counters.totals(), "lines": done.counters.by_line(),
                 "source": source_text([done], folders)}  # fmt: skip
        output.print_json(facts)
    else:
        _print(done, faults, said)
    if not passes:
        sys.exit(1)


def _print(done: Emulation, faults: Sequence[PtxFault], said: Mapping[str, Any]) -> None:
    wrong = said.get("wrong", "")
    verdict = "wrong: " + wrong if wrong else "right" if wrong is None else "not compared: there is no reference"
    if faults:
        verdict = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    part = "all" if done.whole else f"{len(done.blocks)} of"
    total = done.grid[0] * done.grid[1] * done.grid[2]
    orders = ", ".join(said["orders"])
    output.echo(f"{done.kernel} for {said['target']} ({RUNG}): {verdict}")
    output.echo(f"{part} {total} blocks, order of warps: {orders}")
    for fault in faults:
        output.echo(str(fault))
        if fault.other is not None:
            output.echo(f"  the other access: {fault.other}")
    totals = done.counters.totals()
    output.print_table(["count", "total"], [(name, f"{value:,}") for name, value in totals.items() if value])
    lines = sorted(done.counters.by_line(), key=lambda line: -line["warp_instructions"])[:SHOWN_LINES]
    rows = [
        (f"{line['file']}:{line['line']}", line["warp_instructions"], line.get("load_sectors", 0),
         line.get("store_sectors", 0), line.get("shared_wavefronts", 0))
        for line in lines if line["line"]
    ]  # fmt: skip
    if rows:
        output.print_table(["line", "warp instructions", "load sectors", "store sectors", "shared wavefronts"], rows)
