"""`tunewright cuda`: CUDA C++ kernels, compiled for GPUs that are not here and executed in the emulator."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from tunewright.cli import output
from tunewright.cli.completion import complete_target
from tunewright.cli.lazy_group import MissingExtension, is_installed
from tunewright.cli.race_candidates import parse_config
from tunewright.cli.targets import dtype_option, json_option, load_kernel, resolve_sizes, use_dtype
from tunewright.cuda.backend import Cuda
from tunewright.cuda.checking import CheckedConfig, CheckOutcome, check_configs
from tunewright.kernel.tuned import Tuned
from tunewright.model.signature import Signature
from tunewright.ports.backend import Kernel
from tunewright.report import formatting
from tunewright.settings import Settings
from tunewright.spaces.config import Config

if TYPE_CHECKING:
    from tunewright.emulator import Options


@click.group()
def cuda() -> None:
    """Check CUDA C++ kernels for GPUs that are not here."""


@cuda.command("check")
@click.argument("kernel", metavar="FILE.py:KERNEL|FILE.cu:KERNEL", shell_complete=complete_target)
@click.option("--target", help="GPU to compile for, as sm_90 (default: as declared).")
@click.option("--config", "typed", multiple=True, help="As TILE=32,ROWS=8; may be repeated (default: the default).")
@click.option("--all", "every", is_flag=True, help="Check every config of the space.")
@click.option("--configs", type=click.IntRange(min=1), help="Check this many configs, drawn at random.")
@click.option("--shape", help="Sizes, as M=64,N=64 (default: the first that is declared).")
@click.option("--grid", default="1", show_default=True, help="Blocks of a kernel in a .cu file, as 4,2,1.")
@click.option("--block", default="32", show_default=True, help="Threads of a block of a .cu file's kernel, as 32,8.")
@click.option(
    "--args", "arguments", default="", help='Arguments of a .cu file\'s kernel, as "*fp32[500],*fp32[500]=nan,500".'
)
@click.option("--blocks", type=click.IntRange(min=1), help="Execute so many blocks, those at the edges among them.")
@click.option("--seed", type=int, default=0, help="Of configs, blocks and orders.")
@dtype_option
@json_option
def check(kernel: str, target: str | None, **options: Any) -> None:
    """Say which configs of a CUDA kernel are right, wrong, or do not fit a GPU that is not here.

    The kernel is declared with backend=tw.Cuda(...). Each config is compiled by nvcc and executed in the emulator with
    its warps in three orders; results are compared with the reference, and faults have their source line (rung:
    emulated). Registers, spills, shared memory and occupancy are those of the compiled code. Nothing is timed, and no
    config is chosen. A kernel in FILE.cu has no reference: it is executed with --grid, --block and --args, and only
    faults are found. Exit status 1 if a config is not right.
    """
    if not is_installed("emulator"):
        raise MissingExtension("emulator", "tunewright cuda check")
    from tunewright.emulator import Options  # noqa: PLC0415 - an extension of its own

    how = Options(blocks=options["blocks"], seed=options["seed"])
    if kernel.rpartition(":")[0].endswith(".cu"):
        _check_file(kernel, target or "sm_80", how, options)
        return
    tuned = load_kernel(kernel)
    if not isinstance(tuned.backend, Cuda):
        raise click.UsageError(f"{tuned.name} is no CUDA kernel; declare it with backend=tw.Cuda(...)")
    if target is not None:
        tuned.backend.compile_for(target)
    use_dtype(tuned, options["dtype"])
    sizes = resolve_sizes(tuned, (options["shape"],) if options["shape"] else ())[0]
    rows = list(check_configs(tuned, tuned.example(sizes), _chosen(tuned, options), how))
    if options["as_json"]:
        output.print_json(_facts(tuned, sizes, rows))
    else:
        _print(tuned, tuned.backend.arch, rows)
    if any(row.outcome is not CheckOutcome.RIGHT for row in rows):
        sys.exit(1)


def _check_file(place: str, target: str, how: Options, options: Mapping[str, Any]) -> None:
    """Compiles and executes one config of a kernel in a CUDA file; there is nothing to compare with."""
    from tunewright.cli import emulate as emulation  # noqa: PLC0415 - an extension of its own
    from tunewright.emulator import words  # noqa: PLC0415

    if len(options["typed"]) > 1 or options["every"] or options["configs"]:
        raise click.UsageError("a .cu file has no space; give one --config, or declare the kernel in a .py file")
    file, _, name = place.rpartition(":")
    grid, block = emulation.parse_triple(options["grid"]), emulation.parse_triple(options["block"])
    backend = Cuda(file, name, grid=lambda: grid, block=block, target=target)
    config = Config(emulation.parse_pairs("".join(options["typed"])))
    kernel = Kernel(name, _check_file, (), Settings.read().cache_path)
    launch = backend.load_emulated(kernel, backend.build(kernel, config, Signature()))
    done = launch.execute(words.parse_words(options["arguments"], options["seed"]), how)
    used = launch.build.resources
    said = {"target": backend.arch, "orders": [how.order], "config": config, "resources": used,
            "occupancy": used.occupancy(backend.target, launch.shape)}  # fmt: skip
    if not options["as_json"]:
        spilled, occupancy = used.spill_stores + used.spill_loads, f"{said['occupancy']:.0%}"
        output.echo(f"{used.registers} registers, {spilled} B spilled, {used.shared:,} B shared, occupancy {occupancy}")
    emulation.report(done, done.faults, said, as_json=options["as_json"], folders=[backend.path.parent])


def _chosen(tuned: Tuned, options: dict[str, Any]) -> Sequence[Config]:
    """Returns the configs to check."""
    if sum(map(bool, (options["typed"], options["every"], options["configs"]))) > 1:
        raise click.UsageError("--config, --all and --configs exclude each other; give one of them")
    if options["every"]:
        return list(tuned.space)
    if options["configs"]:
        return tuned.space.sample(np.random.default_rng(options["seed"]), options["configs"])
    return [parse_config(tuned, text) for text in options["typed"]] or [tuned.default]


def _facts(tuned: Tuned, sizes: dict[str, int], rows: Sequence[CheckedConfig]) -> dict[str, Any]:
    from tunewright.cli.emulate import RUNG, source_text  # noqa: PLC0415 - an extension of its own

    assert isinstance(tuned.backend, Cuda)
    return {
        "kernel": tuned.name, "target": tuned.backend.arch, "rung": RUNG, "sizes": sizes,
        "outcomes": {str(outcome): sum(row.outcome is outcome for row in rows) for outcome in CheckOutcome},
        "configs": [_row(row) for row in rows],
        "source": source_text([row.emulation for row in rows if row.emulation], [tuned.backend.path.parent]),
    }  # fmt: skip


def _row(row: CheckedConfig) -> dict[str, Any]:
    from tunewright.cli.emulate import plain_fault  # noqa: PLC0415 - an extension of its own

    done = row.emulation
    return {
        "config": row.config, "outcome": str(row.outcome), "reason": row.reason, "orders": row.orders,
        "faults": [plain_fault(fault) for fault in row.faults], "resources": row.resources,
        "occupancy": row.occupancy if row.resources else None,
        "blocks": len(done.blocks) if done else 0, "whole": bool(done and done.whole),
        "counters": done.counters.totals() if done else {}, "lines": done.counters.by_line() if done else [],
    }  # fmt: skip


def _print(tuned: Tuned, arch: str, rows: Sequence[CheckedConfig]) -> None:
    heads = ("config", "", "registers", "spilled", "shared", "occupancy", "load sectors", "shared wavefronts")
    output.print_table(heads, map(_cells, rows))
    output.echo()
    for row in rows:
        if row.outcome is not CheckOutcome.RIGHT:
            output.echo(f"{row.config}: {row.outcome}: {row.reason}")
    counts = Counter(row.outcome for row in rows)
    found = ", ".join(f"{counts[outcome]} {outcome}" for outcome in CheckOutcome if counts[outcome])
    output.echo(f"{tuned.name} for {arch}: {found}")
    output.echo("rung: emulated; nothing was timed, so no config is chosen")


def _cells(row: CheckedConfig) -> list[str]:
    used, totals = row.resources, row.emulation.counters.totals() if row.emulation else {}
    if used is None:
        return [str(row.config), str(row.outcome), *[""] * 6]
    spilled = f"{used.spill_stores + used.spill_loads} B" if used.spill_stores + used.spill_loads else ""
    return [
        str(row.config), str(row.outcome), str(used.registers), spilled, formatting.size(used.shared),
        f"{row.occupancy:.0%}", f"{totals.get('load_sectors', 0):,}", f"{totals.get('shared_wavefronts', 0):,}",
    ]  # fmt: skip
