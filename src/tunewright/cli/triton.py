"""`tunewright triton`: Triton kernels compiled for GPUs that are not here."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunewright.cli import output
from tunewright.cli.lazy_group import MissingExtension, is_installed
from tunewright.cli.targets import json_option
from tunewright.errors import BackendError, PluginError, TunewrightError
from tunewright.pools.kernel_loader import load_target
from tunewright.report import formatting
from tunewright.settings import Settings
from tunewright.triton.static import heatmap

if TYPE_CHECKING:
    from tunewright.triton.static.compile_worker import LaunchArguments
    from tunewright.triton.static.kernels import KernelDeclaration
    from tunewright.triton.static.prebuild import PrebuildPlan, PrebuildProgress, PrebuildResult

DECLARED = "prebuild_args"
"""The function of a kernel's file that returns the arguments of a call."""


@click.group()
def triton() -> None:
    """Compile Triton kernels for GPUs that are not here."""


@triton.command()
@click.argument("kernel", metavar="FILE:KERNEL")
@click.option("--targets", help="GPUs, as sm_80,sm_90,sm_100,gfx942 (default: those declared, else sm_80,sm_90).")
@click.option("--signature", help='Arguments, as "*fp16,*fp16,i32:16,i32,1,GROUP=8"; numbers are those of a call.')
@click.option("--configs", type=click.IntRange(min=1), help="Compile this many configs, drawn at random.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Compilers at once.")
@click.option("--deadline", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds each.")
@click.option("--model/--no-model", default=True, help="Drop what cannot work before compiling (the default).")
@click.option(
    "--check", "is_checked", is_flag=True, help="Execute what is kept in the emulator, and drop what is wrong."
)
@click.option("--shape", help="Sizes for inputs(), as M=64,N=64, with --check.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw heat maps: .png, .svg or .html.")
@click.option(
    "--install", type=click.Path(file_okay=False, path_type=Path), help="Put the results into this Triton cache."
)
@json_option
def prebuild(kernel: str, targets: str | None, signature: str | None, plot: Path | None, **options: Any) -> None:
    """Compile the configs of a Triton kernel for GPUs that are not here.

    Prints registers, spills, shared memory and occupancy of each, and whether to keep or drop it, with the reason.
    Results are cached: after an interruption the same command continues. The numbers come from real compiles (rung 1);
    nothing is run, so nothing is said about speed. With --check, some blocks of each config that is kept are executed
    on the CPU and compared with reference(), as by `tunewright triton check`. Exit status 1 if no config is kept.
    """
    with require_triton():
        from tunewright.triton.static import prebuild as builder  # noqa: PLC0415 - loads Triton

        declaration, call = _load_kernel(kernel, signature)
        devices = targets.split(",") if targets else _declared_option(declaration, "targets") or ("sm_80", "sm_90")
        plan = builder.plan_prebuild(declaration, call, devices, max_configs=options["configs"], model=options["model"])
        cache, rows = Settings.read().cache_path, []
        stopped = False
        progress = _ProgressLine(builder.PrebuildProgress(plan.total), quiet=options["as_json"])
        try:
            made = builder.prebuild(plan, cache, width=options["jobs"], deadline=options["deadline"])
            for row in _execute(kernel, options["shape"], made) if options["is_checked"] else made:
                rows.append(row)
                progress.note(row)
        except KeyboardInterrupt:
            stopped = True
        finally:
            progress.stop()
        installed = _install(rows, cache, options["install"])
    _print_rows(plan, rows, {"stopped": stopped, "installed": installed}, as_json=options["as_json"])
    if plot is not None and rows:
        points = [heatmap.OccupancyPoint(row.target, row.config, _occupancy(row)) for row in rows]
        heatmap.draw_heatmap(plot, declaration.name, points)
    if stopped:
        raise KeyboardInterrupt
    if not any(row.keep for row in rows):
        sys.exit(1)


@contextlib.contextmanager
def require_triton() -> Iterator[None]:
    """Turns a missing Triton into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise PluginError("compiling Triton kernels needs triton; pip install 'tunewright[triton]'") from error


@triton.command("check")
@click.argument("kernel", metavar="FILE:KERNEL")
@click.option("--target", default="sm_80", show_default=True, help="GPU to compile for.")
@click.option("--config", "setting", help="As BLOCK=64,num_warps=4 (default: the first that is declared).")
@click.option("--shape", help="Sizes for inputs(), as M=64,N=64.")
@click.option("--blocks", type=click.IntRange(min=1), help="Execute so many blocks, those at the edges among them.")
@click.option("--seed", type=int, default=0, help="Of blocks and orders.")
@json_option
def check(kernel: str, **options: Any) -> None:
    """Compile a config for a GPU that is not here, execute its PTX, and compare with the reference.

    The kernel's file, or our drop-in, has inputs() and reference(). Warps run in three orders; data races, accesses out
    of bounds and other faults are reported with their source line (rung: emulated). Exit status 1 if anything is wrong.
    """
    if not is_installed("emulator"):
        raise MissingExtension("emulator", "tunewright triton check")
    from tunewright.cli.emulate import check_kernel  # noqa: PLC0415 - an extension of its own

    check_kernel(kernel, **options)


def _execute(kernel: str, shape: str | None, rows: Iterator[PrebuildResult]) -> Iterator[PrebuildResult]:
    if not is_installed("emulator"):
        raise MissingExtension("emulator", "tunewright triton prebuild --check")
    from tunewright.cli.emulate import drop_wrong  # noqa: PLC0415 - an extension of its own

    return drop_wrong(kernel, shape, rows)


def load_checked(target: str) -> tuple[KernelDeclaration, Any, Any]:
    """Returns a kernel with its inputs() and reference(), which its decorator or its file declares."""
    from tunewright.triton.static.kernels import unwrap_kernel  # noqa: PLC0415 - loads Triton

    place, name = _place_and_name(target)
    declaration = unwrap_kernel(_load(place, name))
    inputs = _declared_option(declaration, "inputs") or _function(place, "inputs")
    reference = _declared_option(declaration, "reference") or _function(place, "reference")
    if inputs is None:
        raise click.UsageError(f"{name} has no inputs; declare inputs=, or let its file define inputs()")
    return declaration, inputs, reference


def _function(place: str, name: str) -> Any:
    try:
        return load_target(f"{place}:{name}")
    except BackendError:
        return None


def _load_kernel(target: str, signature: str | None) -> tuple[KernelDeclaration, LaunchArguments]:
    """Returns the kernel at FILE.py:NAME or module:NAME, and the arguments to compile it for."""
    from tunewright.triton.static import call_arguments  # noqa: PLC0415 - loads Triton
    from tunewright.triton.static.compile_worker import LaunchArguments  # noqa: PLC0415
    from tunewright.triton.static.kernels import unwrap_kernel  # noqa: PLC0415

    place, name = _place_and_name(target)
    declaration = unwrap_kernel(_load(place, name))
    if signature is not None:
        return declaration, LaunchArguments(*call_arguments.parse_arguments(signature))
    inputs, shapes = _declared_option(declaration, "inputs"), _declared_option(declaration, "shapes")
    if inputs and shapes:
        example = inputs(**shapes[0])
        return declaration, LaunchArguments((), {arg: value for arg, value in example.items() if arg != "grid"})
    args, kwargs = _declared_arguments(place, name, declaration)
    return declaration, LaunchArguments(call_arguments.resolve_declared(args), kwargs)


def _place_and_name(target: str) -> tuple[str, str]:
    """Splits FILE.py:NAME or module:NAME, and makes the module importable."""
    place, _, name = target.rpartition(":")
    if not place:
        raise click.UsageError(f"{target!r} names no kernel; write FILE.py:NAME or module:NAME")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise click.UsageError(f"no file {place}; a kernel is named as FILE.py:NAME or module:NAME")
        sys.path.insert(0, str(Path(place).resolve().parent))
        return str(Path(place).resolve()), name
    sys.path.insert(0, "")
    return place, name


def _load(place: str, name: str) -> Any:
    """Returns what a name stands for; errors of the file are told as such."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the command's answer
            return load_target(f"{place}:{name}")
    except TunewrightError:
        raise
    except Exception as error:
        raise click.UsageError(f"loading {place} raised {type(error).__name__}: {error}") from error


def _declared_option(declaration: KernelDeclaration, name: str) -> Any:
    """Returns an option that our drop-in was given for a kernel, or None."""
    options = (getattr(wrapper, "options", None) for wrapper in declaration.wrappers)
    return next((getattr(given, name) for given in options if given is not None), None)


def _declared_arguments(
    place: str, name: str, declaration: KernelDeclaration
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Returns the arguments that the kernel's file declares, by position and by name."""
    try:
        declared = load_target(f"{place}:{DECLARED}")()
    except BackendError:
        missing = [arg for arg in declaration.function.arg_names if arg not in declaration.configs[0]]
        raise click.UsageError(
            f"say with which arguments {name} is called: --signature for {', '.join(missing)}, "
            f'such as "*fp16,i32:16,1"; or declare inputs= and shapes=; or let its file define {DECLARED}()'
        ) from None
    if isinstance(declared, Mapping):
        if name not in declared:
            raise click.UsageError(f"{DECLARED}() knows {', '.join(declared)}, not {name}; add it, or give --signature")
        declared = declared[name]
    has_keywords = len(declared) == 2 and isinstance(declared[1], Mapping)
    return (declared[0], declared[1]) if has_keywords else (declared, {})


def _install(rows: Sequence[PrebuildResult], cache: Path, folder: Path | None) -> int:
    if folder is None:
        return 0
    from tunewright.triton.static.artifacts import install_into_triton_cache  # noqa: PLC0415 - loads Triton
    from tunewright.triton.static.prebuild import kept_artifacts  # noqa: PLC0415

    return install_into_triton_cache(kept_artifacts(rows, cache), folder)


def _occupancy(row: PrebuildResult) -> float | None:
    return row.resources.occupancy if row.keep and row.resources else None


class _ProgressLine:
    """A live line while compilers run: how many are done, the best so far, the time left."""

    def __init__(self, progress: PrebuildProgress, *, quiet: bool) -> None:
        self._progress, self._live = progress, None
        self._last_echo = time.monotonic()
        self._is_quiet = quiet
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where someone looks
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, get_renderable=self._render)
            self._live.start()

    def note(self, row: PrebuildResult) -> None:
        """Counts one more row; without a terminal, prints a line now and then."""
        self._progress.note(row)
        if self._live is None and not self._is_quiet and time.monotonic() - self._last_echo > 10:
            self._last_echo = time.monotonic()
            click.echo(self._line(), err=True)

    def _line(self) -> str:
        now = self._progress
        parts = [f"{now.done} of {now.total}", f"{now.compiled} compiled", f"{now.kept} kept"]
        if now.best is not None and now.best.resources is not None:
            best = now.best.resources
            parts.append(
                f"most occupancy {best.occupancy:.0%} ({_format_config(now.best.config)} on {now.best.target})"
            )
        if now.left is not None:
            parts.append(f"{formatting.clock(now.left)} left")
        return " · ".join(parts)

    def _render(self) -> Any:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only where someone looks
        from rich.table import Table  # noqa: PLC0415

        grid = Table.grid(padding=(0, 2))
        grid.add_row(ProgressBar(total=self._progress.total, completed=self._progress.done, width=30), self._line())
        return grid

    def stop(self) -> None:
        """Restores the terminal."""
        if self._live is not None:
            self._live.stop()


def _format_config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items() if value != 1 or name != "num_ctas")


def _print_rows(
    plan: PrebuildPlan, rows: Sequence[PrebuildResult], totals: Mapping[str, Any], *, as_json: bool
) -> None:
    """Prints every row, and a summary."""
    dropped = [row for row in rows if row.by == "model"]
    if as_json:
        summary = {"kernel": plan.declaration.name, "rung": 1, "modelled": plan.modelled, "planned": plan.total}
        output.print_json({**summary, **totals, "dropped_before_compiling": len(dropped), "rows": rows})
        return
    heads = ("target", "config", "", "registers", "spilled", "shared", "occupancy", "matrix", "code", "compile", "why")
    output.print_table(heads, map(_cells, sorted(rows, key=lambda row: (row.target, not row.keep))))
    output.echo()
    counts = Counter(row.target for row in rows if row.keep)
    for target in dict.fromkeys(row.target for row in rows):
        total = sum(row.target == target for row in rows)
        output.echo(f"{target}: {counts[target]} of {formatting.counted(total, 'config')} kept")
    if not plan.modelled:
        output.echo("no model for this kernel, so nothing was dropped before compiling")
    elif dropped:
        output.echo(f"{formatting.counted(len(dropped), 'compile')} saved by the model (--no-model compiles them)")
    if totals["installed"]:
        output.echo(f"{formatting.counted(totals['installed'], 'kernel')} put into the Triton cache")
    if totals["stopped"]:
        output.echo("stopped; results are kept, and the same command continues")
    output.echo("rung 1: real compiles, nothing was run on a GPU")


def _cells(row: PrebuildResult) -> list[str]:
    reasons, used = "; ".join(row.reasons), row.resources
    if used is None:
        return [row.target, _format_config(row.config), "keep" if row.keep else "drop", *[""] * 7, reasons]
    return [
        row.target, _format_config(row.config), "keep" if row.keep else "drop",
        str(used.registers), f"{used.stack} B" if used.stack else "", formatting.size(used.shared),
        f"{used.occupancy:.0%}", str(used.matrix), formatting.size(used.code_bytes),
        formatting.seconds(row.seconds), reasons,
    ]  # fmt: skip
