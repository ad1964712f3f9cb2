"""Runs the stages of the acceptance kit, each in a process of its own with a deadline."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tunewright.errors import SettingsError, TunewrightError
from tunewright.pools.kernel_loader import load_target
from tunewright.session import configure
from tunewright.triton import adapter
from tunewright.triton.acceptance.children import ChildTask, Ended, run_in_child
from tunewright.triton.acceptance.device import DeviceUnderTest
from tunewright.triton.acceptance.notes import DIED, HUNG, StageNotes, StageResult
from tunewright.triton.acceptance.report import AcceptanceReport
from tunewright.version import __version__


class AcceptanceStage(NamedTuple):
    """A stage: where its check is found, whether it starts processes of its own, and its deadline in seconds.

    The own process of a stage that is `by_itself` does not touch the device: its children open it.
    """

    name: str
    check: str
    needs_folder: bool = False
    seconds: float = 300.0
    by_itself: bool = False


BASIC, RUNNING, CLOCK = (f"{__package__}.{name}" for name in ("basic_stages", "running_stages", "clock_stage"))

STAGES = (
    AcceptanceStage("inventory", f"{BASIC}:take_inventory"),
    AcceptanceStage("adapter", f"{BASIC}:check_adapter"),
    AcceptanceStage("clock", f"{CLOCK}:check_clock"),
    AcceptanceStage("kernels", f"{BASIC}:check_kernels", seconds=600.0),
    AcceptanceStage("memory", f"{BASIC}:check_memory"),
    AcceptanceStage("faults", f"{RUNNING}:check_faults", needs_folder=True, seconds=700.0, by_itself=True),
    AcceptanceStage("streams", f"{RUNNING}:check_streams"),
    AcceptanceStage("compile", f"{RUNNING}:check_compile"),
    AcceptanceStage("processes", f"{RUNNING}:check_processes", needs_folder=True, seconds=900.0, by_itself=True),
    AcceptanceStage("launch", f"{BASIC}:check_launch"),
    AcceptanceStage("prebuilt", f"{RUNNING}:check_prebuilt", needs_folder=True),
    AcceptanceStage("truth", f"{RUNNING}:check_truth", seconds=600.0),
)
"""All stages, in order."""


def choose_stages(names: Sequence[str]) -> list[AcceptanceStage]:
    """Returns the stages with these names, or all."""
    known = {stage.name: stage for stage in STAGES}
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"there is no stage {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(STAGES)


def run_stages(
    device: DeviceUnderTest,
    stages: Sequence[AcceptanceStage],
    folder: Path,
    *,
    deadline: float | None = None,
    compiled: Path | None = None,
) -> Iterator[StageResult]:
    """Runs stages one after the other, and yields their results; what one does ends with its process.

    Compiled code is kept in the folder `compiled`.
    """
    for stage in stages:
        arguments = {"stage": stage, "folder": str(folder), "compiled": str(compiled or folder / "triton")}
        task = ChildTask(f"{__name__}:run_stage", device.source, arguments)
        ended = run_in_child(task, folder, stage.name, deadline or stage.seconds)
        yield result_of(stage, ended, deadline or stage.seconds)


def run_stage(device: DeviceUnderTest, stage: Sequence[Any], folder: str, compiled: str) -> StageResult:
    """Runs a stage, in its own process."""
    chosen, place = AcceptanceStage(*stage), Path(folder)
    notes = StageNotes(chosen.name)
    arguments = (device, notes, place) if chosen.needs_folder else (device, notes)
    try:
        adapter.set_cache_folder(Path(compiled))
        configure(cache=place / f"cache of {chosen.name}")
        with nullcontext() if chosen.by_itself else device.open():
            load_target(chosen.check)(*arguments)
    except (TunewrightError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        notes.expect(False, f"{type(error).__name__}: {error}")
        os.write(2, traceback.format_exc().encode(errors="replace"))
    return notes.result()


def result_of(stage: AcceptanceStage, ended: Ended, deadline: float) -> StageResult:
    """Returns the result of a stage, whose process may have been ended by the device."""
    if ended.result is not None and not ended.hung:
        result = msgspec.json.decode(ended.result, type=StageResult)
        return msgspec.structs.replace(result, seconds=round(ended.seconds, 2), log=ended.log)
    if ended.hung:
        verdict, finding = HUNG, f"it did not end within {deadline:g} s"
    else:
        verdict, finding = DIED, f"its process ended with status {ended.status}"
    return StageResult(stage.name, verdict, [finding], seconds=round(ended.seconds, 2), log=ended.log)


def make_report(device: DeviceUnderTest, results: Sequence[StageResult]) -> AcceptanceReport:
    """Returns the report of all stages."""
    inventory = next((result.figures for result in results if result.name == "inventory"), {})
    return AcceptanceReport(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        tunewright=__version__,
        rung=device.rung,
        host=f"{platform.machine()}, {os.cpu_count()} processors",
        card=str(inventory.get("target", "unknown")),
        stages=list(results),
    )
