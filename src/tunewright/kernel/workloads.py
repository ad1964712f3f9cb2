"""The workload of a tuned kernel: what evaluates its configs, made by its backend or from its cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tunewright.cases.inputs import Inputs
from tunewright.measure.clock import Regime
from tunewright.measure.kernel_workload import CheckOptions, KernelWorkload, TimingOptions
from tunewright.ports.candidate import Workload
from tunewright.stores.network_files import host_path

if TYPE_CHECKING:
    from tunewright.kernel.tuned import Tuned


def make_workload(tuned: Tuned, cases: Sequence[Inputs], cache: Path) -> Workload:
    """Returns the workload of a kernel; that of its backend, if it has one of its own."""
    kernel, declaration = tuned.kernel_in(cache), tuned.declaration
    timing = TimingOptions(declaration.threads, Regime(declaration.regime), host_path(cache / "leases" / "cpu.lock"))
    if hasattr(tuned.backend, "workload"):
        own: Workload = tuned.backend.workload(kernel, tuned.default, timing)
        return own
    check = CheckOptions(declaration.reference, declaration.tolerance, declaration.precision == "double")
    parts = tuned.backend, kernel, tuple(cases), tuned.default, check, timing, tuned.make
    if cases and cases[0].rows:
        from tunewright.kernel.probing import ProbeWorkload  # noqa: PLC0415 - only for invariant=

        return ProbeWorkload(*parts, dims=tuple(declaration.invariant))
    return KernelWorkload(*parts)
