"""Probes: the results of configs for the same rows at many sizes, as fingerprints; nothing is verified or timed.

A probe is a set of cases whose arguments are cut from the largest ones, so that equal rows have equal contents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.arguments import Arguments
from tunewright.cases.inputs import Inputs
from tunewright.cases.validation import PreparedCase, fingerprint
from tunewright.errors import BackendError, TunewrightError
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.model.signature import Parameter
from tunewright.ports.backend import Launch
from tunewright.ports.candidate import HasClock, WrongResult
from tunewright.spaces.config import Config

Row = tuple[int, ...]
"""A place along the dimensions on which results must not depend."""

CaseRows = dict[str, str]
"""Fingerprints by row, written as `0,3`; empty where the config is refused."""


def row_name(row: Row) -> str:
    """Returns a row as text."""
    return ",".join(map(str, row))


class ProbeWorkload(KernelWorkload, dict=True):
    """Runs configs on cases that share rows along `dims`."""

    dims: tuple[str, ...] = ()

    max_sets = 1

    @cached_property
    def _largest(self) -> dict[str, int]:
        return {name: max(case.dims[name] for case in self.cases) for name in self.dims}

    @cached_property
    def _whole(self) -> dict[int, Sequence[Any]]:
        return {}

    def prepare(self) -> None:
        """Makes the arguments; nothing is expected of results."""
        _ = self.sets

    def renew(self) -> None:
        """Does nothing: probes are drawn by whoever makes the cases."""

    def prepare_case(self, number: int, seed: int) -> PreparedCase:
        """Returns the arguments of a case, cut from those of the largest sizes."""
        inputs, parameters = self.cases[number], self.kernel.parameters
        if inputs.seed not in self._whole:
            self._whole[inputs.seed] = self.make(msgspec.structs.replace(inputs, dims=inputs.dims | self._largest))
        sizes = {name: inputs.dims[name] for name in self.dims}
        args = [_cut(p, arg, sizes) for p, arg in zip(parameters, self._whole[inputs.seed], strict=True)]
        return PreparedCase(parameters, Arguments(parameters, args, structured=True))

    def build(self, config: Config) -> list[Any]:
        """Returns the artifact for each case; None where the config is refused."""
        return [self._build_or_none(config, case) for case in self.first_sets]

    def _build_or_none(self, config: Config, case: PreparedCase) -> Any:
        try:
            return self._build(config, case)
        except TunewrightError:
            return None

    def load(self, config: Config, artifact: Sequence[Any]) -> ProbeCandidate:  # type: ignore[override]
        """Loads the artifacts in this process."""
        launches = [None if part is None else self.backend.load(self.kernel, part) for part in artifact]
        return ProbeCandidate(self, launches)


class _Clock:
    clock: str = "wall"


class ProbeCandidate:
    """A loaded config, whose `verify` returns the fingerprints of its rows."""

    launches = 0
    launch_seconds = 0.0
    timers: Sequence[HasClock] = (_Clock(),)
    first_sample = (1.0, "wall")

    def __init__(self, workload: ProbeWorkload, launches: Sequence[Launch | None]) -> None:
        self._workload, self._launches = workload, launches

    def verify(self, seconds: float = inf) -> tuple[str | None, str]:
        """Returns the fingerprints of each case as JSON; a case for which the config could not be built has none."""
        results = [
            self._run(launch, case) for launch, case in zip(self._launches, self._workload.first_sets, strict=True)
        ]
        axes = _axes(self._workload, results)
        found = [_rows(inputs, one, axes) for inputs, one in zip(self._workload.cases, results, strict=True)]
        return None, msgspec.json.encode(found).decode()

    @staticmethod
    def _run(launch: Launch | None, case: PreparedCase) -> dict[str, Any] | None:
        results = None if launch is None else case.run(launch)
        if damage := case.arguments.damage() if results is not None else None:
            raise WrongResult(damage)
        return results

    def hurry(self) -> None:
        """Does nothing: there are no samples."""

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns a second: a probe takes no times."""
        return 1.0

    def check(self, draw: int, *, launches: int) -> str | None:
        """Finds nothing wrong: results were verified in a trial."""
        return None


def _cut(parameter: Parameter, arg: Any, sizes: Mapping[str, int]) -> Any:
    """Returns an argument of the largest sizes for smaller ones."""
    if parameter.role is None or not parameter.role.dims:
        return sizes.get(parameter.name, arg) if isinstance(arg, int) else arg
    if not isinstance(arg, np.ndarray):
        raise BackendError(f"{parameter.name} is no numpy array, so its rows cannot be compared; leave out invariant=")
    part = arg[tuple(slice(sizes.get(str(dim))) for dim in parameter.role.dims)]
    return part.copy(order="K")


def _axes(workload: ProbeWorkload, results: Sequence[dict[str, Any] | None]) -> dict[str, dict[int, int]]:
    """Returns, for each result, its axes with the number of the dimension that each of them is.

    Those of what a kernel returns are found by their sizes, which change from case to case.
    """
    declared = {p.name: p.role.dims for p in workload.kernel.parameters if p.role and p.role.writes}
    if declared:
        return {
            name: {dims.index(dim): number for number, dim in enumerate(workload.dims) if dim in dims}
            for name, dims in declared.items()
        }
    ran = [
        (case.dims, one["the result"])
        for case, one in zip(workload.cases, results, strict=True)
        if one is not None and isinstance(one.get("the result"), np.ndarray)
    ]
    rank = min((result.ndim for _, result in ran), default=0)
    found = {
        axis: number
        for number, dim in enumerate(workload.dims)
        for axis in range(rank)
        if all(result.shape[axis] == sizes[dim] for sizes, result in ran)
    }
    return {"the result": found} if ran else {}


def _rows(inputs: Inputs, results: dict[str, Any] | None, axes: Mapping[str, Mapping[int, int]]) -> CaseRows:
    """Returns the fingerprints of the rows of one case."""
    if results is None:
        return {}
    arrays = {name: np.asarray(results[name]) for name, own in axes.items() if own and name in results}
    if not arrays:
        raise BackendError(
            "no result has a dimension that invariant= names; name it in the output, as in "
            '`c: Out("M", "N")`, or leave it out of invariant='
        )
    found = {}
    for row in inputs.rows:
        parts = {
            name: array[tuple(row[axes[name][i]] if i in axes[name] else slice(None) for i in range(array.ndim))]
            for name, array in arrays.items()
        }
        found[row_name(row)] = fingerprint(parts)
    return found
