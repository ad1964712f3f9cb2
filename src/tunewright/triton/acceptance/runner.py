"""Runs the stages of the acceptance kit, each in a process of its own with a deadline."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunewright.errors import SettingsError, TunewrightError
from tunewright.session import configure
from tunewright.triton import adapter
from tunewright.triton.acceptance import basic_stages as basic
from tunewright.triton.acceptance import running_stages as running
from tunewright.triton.acceptance.children import Ended, run_in_child
from tunewright.triton.acceptance.clock_stage import check_clock
from tunewright.triton.acceptance.device import DeviceUnderTest
from tunewright.triton.acceptance.notes import DIED, HUNG, StageNotes, StageResult
from tunewright.triton.acceptance.report import AcceptanceReport
from tunewright.version import __version__


class AcceptanceStage(NamedTuple):
    """A stage: what it does, whether it starts processes of its own, and its deadline in seconds."""

    name: str
    check: Callable[..., None]
    needs_folder: bool = False
    seconds: float = 300.0


STAGES = (
    AcceptanceStage("inventory", basic.take_inventory),
    AcceptanceStage("adapter", basic.check_adapter),
    AcceptanceStage("clock", check_clock),
    AcceptanceStage("kernels", basic.check_kernels, seconds=600.0),
    AcceptanceStage("memory", basic.check_memory),
    AcceptanceStage("faults", running.check_faults, needs_folder=True, seconds=700.0),
    AcceptanceStage("streams", running.check_streams),
    AcceptanceStage("compile", running.check_compile),
    AcceptanceStage("processes", running.check_processes, needs_folder=True, seconds=900.0),
    AcceptanceStage("launch", basic.check_launch),
    AcceptanceStage("prebuilt", running.check_prebuilt, needs_folder=True),
    AcceptanceStage("truth", running.check_truth, seconds=600.0),
)
"""All stages, in order."""

BY_THEMSELVES = ("faults", "processes")
"""Stages whose own process does not touch the device: its children open it."""


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
    adapter.hash_compiler()
    for stage in stages:
        work = partial(_run, device, stage, folder, compiled or folder / "triton")
        ended = run_in_child(work, folder, stage.name, deadline or stage.seconds)
        yield _result(stage, ended, deadline or stage.seconds)


def _run(device: DeviceUnderTest, stage: AcceptanceStage, folder: Path, compiled: Path) -> StageResult:
    """Runs a stage, in its own process."""
    notes = StageNotes(stage.name)
    arguments = (device, notes, folder) if stage.needs_folder else (device, notes)
    try:
        adapter.set_cache_folder(compiled)
        configure(cache=folder / f"cache of {stage.name}")
        with nullcontext() if stage.name in BY_THEMSELVES else device.open():
            stage.check(*arguments)
    except (TunewrightError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        notes.expect(False, f"{type(error).__name__}: {error}")
        os.write(2, traceback.format_exc().encode(errors="replace"))
    return notes.result()


def _result(stage: AcceptanceStage, ended: Ended, deadline: float) -> StageResult:
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
