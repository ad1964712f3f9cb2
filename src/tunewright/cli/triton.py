"""Triton: kernels in Triton, looked at and compiled for GPUs that are not here."""

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
from tunewright.cli.targets import json_option, session_for, store_option
from tunewright.errors import BackendError, NoDecision, PluginError, TunewrightError
from tunewright.pools.loading import find
from tunewright.report import resources, words
from tunewright.settings import Settings

if TYPE_CHECKING:
    from tunewright.backends.triton.compiling import Call
    from tunewright.backends.triton.subjects import Subject
    from tunewright.fronts.prebuilding import Plan, Row, Standing

DECLARED = "prebuild_args"
"""The function of a kernel's file that says with which arguments it is called."""


@click.group()
def triton() -> None:
    """Kernels written in Triton; no GPU is needed."""


@triton.command()
@click.argument("kernel", metavar="FILE:KERNEL")
@click.option("--targets", help="GPUs, as sm_80,sm_90,sm_100,gfx942 (default: those declared, else sm_80,sm_90).")
@click.option("--signature", help='Arguments, as "*fp16,*fp16,i32:16,i32,1,GROUP=8"; numbers are those of a call.')
@click.option("--configs", type=click.IntRange(min=1), help="Compile so many configs, drawn at random.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Compilers side by side.")
@click.option("--deadline", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds each.")
@click.option("--model/--no-model", default=True, help="Drop what cannot work before compiling (the default).")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw heat maps: .png, .svg or .html.")
@click.option("--install", type=click.Path(file_okay=False, path_type=Path), help="Fill this Triton cache with it.")
@json_option
def prebuild(kernel: str, targets: str | None, signature: str | None, plot: Path | None, **options: Any) -> None:
    """Compile the configs of a Triton kernel for GPUs that are not here.

    Says which are worth launching: registers, spills, shared memory, occupancy, and keep or drop with the reason.
    What is compiled is kept; run again, the command goes on where it was stopped. Figures are those of real
    compiles (rung 1); nothing is run, so nothing is said of speed. Exit status 1 if no config is kept.
    """
    with _needing_triton():
        from tunewright.fronts import prebuilding  # noqa: PLC0415 - loads Triton

        subject, call = _asked(kernel, signature)
        places = targets.split(",") if targets else _said(subject, "targets") or ("sm_80", "sm_90")
        made = prebuilding.plan(subject, call, places, most=options["configs"], model=options["model"])
        cache, rows = Settings.read().cache_path, []
        stopped = False
        watch = _Watch(prebuilding.Standing(made.total), quiet=options["as_json"])
        try:
            for row in prebuilding.prebuild(made, cache, width=options["jobs"], deadline=options["deadline"]):
                rows.append(row)
                watch.note(row)
        except KeyboardInterrupt:
            stopped = True
        finally:
            watch.stop()
        installed = _installed(rows, cache, options["install"])
    _told(made, rows, {"stopped": stopped, "installed": installed}, as_json=options["as_json"])
    if plot is not None and rows:
        points = [resources.Point(row.target, row.config, _occupancy(row)) for row in rows]
        resources.draw(plot, subject.name, points)
    if stopped:
        raise KeyboardInterrupt
    if not any(row.keep for row in rows):
        sys.exit(1)


@triton.command()
@click.argument("kernel")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--title", required=True, help='What for, as in a file name: "E=8,N=14336,device_name=NVIDIA_H100".')
@click.option("--tool", type=click.Choice(["vllm", "sglang"]), default="vllm", show_default=True, help="Who reads it.")
@click.option("--device", default="", help="Only decisions for devices whose name contains this.")
@store_option
@json_option
def moe(kernel: str, folder: Path, title: str, tool: str, device: str, **options: Any) -> None:
    """Write what is decided for KERNEL as a table of vLLM or SGLang.

    A row for each size M, in a file of FOLDER under the name that these tools ask for.

    `tunewright.interop.moe.seeds(FILE)` goes the other way: what such a table says is raced first.
    """
    from tunewright.interop import moe as tables  # noqa: PLC0415 - for this command alone

    store = session_for(None, {"store": options["store"]}).store
    chosen = [decision for decision in store.decisions(kernel) if device in decision.key.device.model]
    if not chosen:
        raise NoDecision(f"nothing is decided for {kernel}; `tunewright show` lists what is")
    versions = {decision.key.toolchain.get("triton", "") for decision in chosen}
    table = tables.gathered(tables.title_of(title), chosen, versions.pop() if len(versions) == 1 else "")
    path = tables.write(table, folder, tables.Tool.VLLM if tool == "vllm" else tables.Tool.SGLANG)
    if options["as_json"]:
        output.as_json({"file": str(path), "rows": len(table.rows)})
    else:
        output.say(f"{path}: {words.counted(len(table.rows), 'row')}")


@contextlib.contextmanager
def _needing_triton() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise PluginError("compiling Triton kernels needs triton; pip install 'tunewright[triton]'") from error


def _asked(named: str, signature: str | None) -> tuple[Subject, Call]:
    """The kernel at FILE.py:NAME or module:NAME, and the call it is to be compiled for."""
    from tunewright.backends.triton import calls  # noqa: PLC0415 - loads Triton
    from tunewright.backends.triton.compiling import Call  # noqa: PLC0415
    from tunewright.backends.triton.subjects import subject  # noqa: PLC0415

    place, _, name = named.rpartition(":")
    if not place:
        raise click.UsageError(f"{named!r} names no kernel; write FILE.py:NAME or module:NAME")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise click.UsageError(f"no file {place}; a kernel is named as FILE.py:NAME or module:NAME")
        sys.path.insert(0, str(Path(place).resolve().parent))
        place = str(Path(place).resolve())
    else:
        sys.path.insert(0, "")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the program prints is not our answer
            found = subject(find(f"{place}:{name}"))
    except TunewrightError:
        raise
    except Exception as error:
        raise click.UsageError(f"loading {place} raised {type(error).__name__}: {error}") from error
    if signature is not None:
        return found, Call(*calls.arguments(signature))
    if (inputs := _said(found, "inputs")) and (shapes := _said(found, "shapes")):
        told = inputs(**shapes[0])
        return found, Call((), {arg: value for arg, value in told.items() if arg != "grid"})
    args, kwargs = _declared(place, name, found)
    return found, Call(calls.spoken(args), kwargs)


def _said(found: Subject, part: str) -> Any:
    """What our drop-in was told of a kernel, if it is under it."""
    told = (getattr(wrapper, "said", None) for wrapper in found.wrappers)
    return next((getattr(one, part) for one in told if one is not None), None)


def _declared(place: str, name: str, found: Subject) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments that the kernel's file declares, those by name in a mapping; or a mapping from kernels to them."""
    try:
        said = find(f"{place}:{DECLARED}")()
    except BackendError:
        named = [arg for arg in found.function.arg_names if arg not in found.configs[0]]
        raise click.UsageError(
            f"say with which arguments {name} is called: --signature for {', '.join(named)}, "
            f'such as "*fp16,i32:16,1"; or declare inputs= and shapes=; or let its file define {DECLARED}()'
        ) from None
    if isinstance(said, Mapping):
        if name not in said:
            raise click.UsageError(f"{DECLARED}() knows {', '.join(said)}, not {name}; add it, or give --signature")
        said = said[name]
    paired = len(said) == 2 and isinstance(said[1], Mapping)  # those by position, and those by name
    return (said[0], said[1]) if paired else (said, {})


def _installed(rows: Sequence[Row], cache: Path, folder: Path | None) -> int:
    if folder is None:
        return 0
    from tunewright.backends.triton.artefacts import install_into_triton_cache  # noqa: PLC0415 - loads Triton
    from tunewright.fronts.prebuilding import kept  # noqa: PLC0415

    return install_into_triton_cache(kept(rows, cache), folder)


def _occupancy(row: Row) -> float | None:
    return row.resources.occupancy if row.keep and row.resources else None


class _Watch:
    """A live line while compilers run: how far, the best so far, the time left."""

    def __init__(self, standing: Standing, *, quiet: bool) -> None:
        self._standing, self._live = standing, None
        self._said = time.monotonic()
        self._speaks = not quiet
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where someone looks
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, get_renderable=self._drawing)
            self._live.start()

    def note(self, row: Row) -> None:
        """Take one more row into account; off a terminal, say something now and then."""
        self._standing.note(row)
        if self._live is None and self._speaks and time.monotonic() - self._said > 10:
            self._said = time.monotonic()
            click.echo(self._line(), err=True)

    def _line(self) -> str:
        now = self._standing
        parts = [f"{now.done} of {now.total}", f"{now.compiled} compiled", f"{now.kept} kept"]
        if now.best is not None and now.best.resources is not None:
            best = now.best.resources
            parts.append(f"most occupancy {best.occupancy:.0%} ({_settings(now.best.config)} on {now.best.target})")
        if now.left is not None:
            parts.append(f"{words.clock(now.left)} left")
        return " · ".join(parts)

    def _drawing(self) -> Any:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only where someone looks
        from rich.table import Table  # noqa: PLC0415

        grid = Table.grid(padding=(0, 2))
        grid.add_row(ProgressBar(total=self._standing.total, completed=self._standing.done, width=30), self._line())
        return grid

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()


def _settings(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items() if value != 1 or name != "num_ctas")


def _told(made: Plan, rows: Sequence[Row], more: Mapping[str, Any], *, as_json: bool) -> None:
    """Every row, and what they come to."""
    saved = [row for row in rows if row.by == "model"]
    if as_json:
        summary = {"kernel": made.subject.name, "rung": 1, "modelled": made.modelled, "planned": made.total}
        output.as_json({**summary, **more, "dropped_before_compiling": len(saved), "rows": rows})
        return
    heads = ("target", "config", "", "registers", "spilled", "shared", "occupancy", "matrix", "code", "compile", "why")
    output.table(heads, map(_cells, sorted(rows, key=lambda row: (row.target, not row.keep))))
    output.say()
    counts = Counter(row.target for row in rows if row.keep)
    for place in dict.fromkeys(row.target for row in rows):
        of = sum(row.target == place for row in rows)
        output.say(f"{place}: {counts[place]} of {words.counted(of, 'config')} kept")
    if not made.modelled:
        output.say("no model for this kernel, so that nothing was dropped before compiling")
    elif saved:
        output.say(f"{words.counted(len(saved), 'compile')} spared by what the model knows (--no-model compiles them)")
    if more["installed"]:
        output.say(f"{words.counted(more['installed'], 'kernel')} put into the Triton cache")
    if more["stopped"]:
        output.say("stopped; what is done is kept, and the same command goes on from here")
    output.say("rung 1: real compiles, nothing was run")


def _cells(row: Row) -> list[str]:
    said, taken = "; ".join(row.reasons), row.resources
    if taken is None:
        return [row.target, _settings(row.config), "keep" if row.keep else "drop", *[""] * 7, said]
    return [
        row.target, _settings(row.config), "keep" if row.keep else "drop",
        str(taken.registers), f"{taken.stack} B" if taken.stack else "", words.size(taken.shared),
        f"{taken.occupancy:.0%}", str(taken.matrix), words.size(taken.code_bytes), words.seconds(row.seconds), said,
    ]  # fmt: skip
