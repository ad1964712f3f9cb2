"""Resource model: tells before compiling which configs cannot run well on a GPU, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any

from tunewright.errors import SettingsError
from tunewright.spaces.feature import Feature
from tunewright.spaces.rule import Rule
from tunewright.spaces.space import Space
from tunewright.triton.static import requirements
from tunewright.triton.static.calibration import RegisterLimit, register_limit
from tunewright.triton.static.features import KnobFunction
from tunewright.triton.static.kernels import KernelDeclaration
from tunewright.triton.static.requirements import LaunchOptions, ResourceEstimate
from tunewright.triton.static.targets import TargetSpec
from tunewright.triton.static.tiles import KernelTiles, read_tiles

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas")
NO_MODEL = "no model for this kernel: its source has no tl.dot or reduction over blocks of known shape"


@dataclass(frozen=True)
class ResourceCheck:
    """One requirement on configs: its name, its text, and a function that returns why a config fails it, or ""."""

    name: str
    requirement: str
    objection: Callable[[ResourceEstimate, TargetSpec, RegisterLimit], str]


def _check_registers(estimate: ResourceEstimate, target: TargetSpec, limit: RegisterLimit) -> str:
    limit_text = f"it spills from {limit.registers:g} of {target.registers_thread}"
    if estimate.registers < limit.registers:
        return ""
    if estimate.operands:
        needs = f"accumulators need {estimate.accumulators:g} registers per thread and operands {estimate.operands:g}"
        return f"{needs}; {limit_text}"
    has_dot = estimate.engine is not requirements.MatrixEngine.NONE
    subject = "accumulators need" if has_dot else "its largest block needs"
    return f"{subject} {estimate.accumulators:g} registers per thread; {limit_text}"


def _register_split(estimate: ResourceEstimate) -> str:
    if estimate.engine is requirements.MatrixEngine.NONE:
        return f"{estimate.accumulators:g} for its largest block"
    return f"{estimate.accumulators:g} for accumulators, {estimate.operands:g} for operands"


def _check_shared(estimate: ResourceEstimate, target: TargetSpec, limit: RegisterLimit) -> str:
    if estimate.shared <= target.shared_block:
        return ""
    return (
        f"operands of {estimate.launch.stages} stages need {estimate.shared:,} bytes of shared memory per block; "
        f"{target} has {target.shared_block:,}"
    )


def _check_tensor_memory(estimate: ResourceEstimate, target: TargetSpec, limit: RegisterLimit) -> str:
    if estimate.tensor_columns <= target.tensor_columns:
        return ""
    return f"accumulators need {estimate.tensor_columns} tensor-memory columns; {target} has {target.tensor_columns}"


def _check_idle_warps(estimate: ResourceEstimate, target: TargetSpec, limit: RegisterLimit) -> str:
    if estimate.engine is requirements.MatrixEngine.NONE or estimate.launch.warps <= max(1, estimate.pieces):
        return ""
    return f"the smallest dot has {estimate.pieces} tiles of 16 x 8 for {estimate.launch.warps} warps: some do the same"


def _check_clusters(estimate: ResourceEstimate, target: TargetSpec, limit: RegisterLimit) -> str:
    has_clusters = "num_ctas" in target.options
    return f"{target} has no clusters of blocks" if estimate.launch.ctas > 1 and not has_clusters else ""


CHECKS = (
    ResourceCheck("registers", "accumulators and operands fit in registers", _check_registers),
    ResourceCheck("shared", "operands of all stages fit in shared memory", _check_shared),
    ResourceCheck("tensor", "accumulators fit in tensor memory", _check_tensor_memory),
    ResourceCheck("idle", "there is work for every warp", _check_idle_warps),
    ResourceCheck("clusters", "blocks form clusters only where there are clusters", _check_clusters),
)


class ResourceModel:
    """Estimates and checks the resources of a kernel's configs on one target, for one call.

    It drops only what it is sure of: if shapes are not known from the source, it has no objections.
    """

    def __init__(
        self,
        declaration: KernelDeclaration,
        target: TargetSpec,
        call: tuple[Sequence[Any], Mapping[str, Any]],
        *,
        checks: Sequence[ResourceCheck] = CHECKS,
        limit: RegisterLimit | None = None,
    ) -> None:
        self.declaration, self.target, self.checks = declaration, target, tuple(checks)
        self.limit = limit or register_limit(target)
        self._call = call
        self._tiles: dict[tuple[tuple[str, Any], ...], KernelTiles] = {}

    def without_checks(self, *names: str) -> ResourceModel:
        """Returns a model without the named checks."""
        known = {check.name for check in self.checks}
        if unknown := sorted(set(names) - known):
            raise SettingsError(f"unknown check {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return self._replace([check for check in self.checks if check.name not in names], self.limit)

    def with_checks(self, *checks: ResourceCheck) -> ResourceModel:
        """Returns a model with further checks."""
        return self._replace([*self.checks, *checks], self.limit)

    def with_limit(self, limit: RegisterLimit) -> ResourceModel:
        """Returns a model with another register limit."""
        return self._replace(self.checks, limit)

    def _replace(self, checks: Sequence[ResourceCheck], limit: RegisterLimit) -> ResourceModel:
        return ResourceModel(self.declaration, self.target, self._call, checks=checks, limit=limit)

    def tiles(self, config: Mapping[str, Any]) -> KernelTiles:
        """Returns the tiles of the kernel under a config."""
        args, kwargs = self._call
        settings = self.declaration.settings(args, kwargs, config)
        arguments = dict(zip(self.declaration.function.arg_names, args, strict=False)) | settings
        names = [name for name in self.declaration.function.arg_names if name in settings]
        key = tuple((name, settings[name]) for name in names)
        if key not in self._tiles:
            self._tiles[key] = read_tiles(self.declaration.function, arguments)
        return self._tiles[key]

    def estimate(self, config: Mapping[str, Any]) -> ResourceEstimate | None:
        """Returns what a config needs; None if there is no model for this kernel."""
        args, kwargs = self._call
        launch = LaunchOptions.from_settings(self.declaration.settings(args, kwargs, config), self.target)
        return requirements.estimate_resources(self.tiles(config), self.target, launch)

    def objections(self, config: Mapping[str, Any]) -> list[str]:
        """Returns why a config is hopeless; empty if it is worth compiling, or nothing is known."""
        estimate = self.estimate(config)
        if estimate is None:
            return []
        return [objection for check in self.checks if (objection := check.objection(estimate, self.target, self.limit))]

    def explain(self, config: Mapping[str, Any]) -> str:
        """Returns estimate and objections of a config as text."""
        estimate = self.estimate(config)
        if estimate is None:
            return NO_MODEL
        launch = estimate.launch
        options = f"num_warps={launch.warps} num_stages={launch.stages}"
        lines = [f"{self.declaration.name} on {self.target}: {options}, {estimate.engine}"]
        lines += [
            f"  dot {dot.m} x {dot.n} x {dot.k}, {dot.left.bits} by {dot.right.bits} bits"
            for dot in self.tiles(config).dots
        ]
        lines += [
            f"  registers per thread {_register_split(estimate)}; "
            f"limit {self.limit.registers:g} of {self.target.registers_thread} ({self.limit})",
            f"  shared memory        {estimate.shared:,} of {self.target.shared_block:,} bytes per block",
        ]
        if self.target.tensor_columns:
            lines.append(f"  tensor memory        {estimate.tensor_columns} of {self.target.tensor_columns} columns")
        objections = self.objections(config)
        return "\n".join(lines + ([f"  hopeless: {objection}" for objection in objections] or ["  worth compiling"]))

    def cost(self, config: Mapping[str, Any]) -> float:
        """Returns the relative cost of a compile, by registers and spills; 0 if unknown."""
        estimate = self.estimate(config)
        if estimate is None:
            return 0.0
        return estimate.registers * max(1.0, estimate.registers / self.limit.registers)

    def rules(self, knobs: Iterable[str]) -> list[Rule]:
        """Returns the checks as rules of a space with these knobs."""
        names = self._known_names(knobs)
        return (
            [
                Rule(check.requirement, KnobFunction(names, self._replace([check], self.limit).is_viable))
                for check in self.checks
            ]
            if names
            else []
        )

    def features(self, knobs: Iterable[str]) -> list[Feature]:
        """Returns the estimates as features, for strategies to learn from."""
        names = self._known_names(knobs)
        feature_names = ("accumulators", "operands", "shared", "tensor_columns")
        return (
            [Feature(name, KnobFunction(names, partial(self._feature, name))) for name in feature_names]
            if names
            else []
        )

    def narrow(self, space: Space) -> Space:
        """Returns a space with the checks added as rules and the estimates as features."""
        names = [knob.name for knob in space.knobs]
        rules, features = [*space.rules, *self.rules(names)], [*space.features, *self.features(names)]
        return Space(*space.knobs, rules=rules, variants=space.variants, features=features)

    def is_viable(self, config: Mapping[str, Any]) -> bool:
        """Whether there is no objection to a config."""
        return not self.objections(config)

    def _feature(self, name: str, config: Mapping[str, Any]) -> float:
        estimate = self.estimate(config)
        return nan if estimate is None else float(getattr(estimate, name))

    def _known_names(self, knobs: Iterable[str]) -> tuple[str, ...]:
        known = {*self.declaration.function.arg_names, *LAUNCH_OPTIONS}
        return tuple(name for name in knobs if name in known)
