"""Figures that benchmarks print: which of them are judged, and which got worse between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Headline:
    """A figure that is judged. It got worse if it left `spread` (a share of the old value) plus `slack` (absolute).

    `zero` counts what must not happen: any other value is worse, whatever it was before. An `absolute` figure is a
    time, a rate or a size that depends on the machine: on another one it is not judged.
    """

    figure: str
    better: Literal["higher", "lower", "zero"]
    why: str
    spread: float = 0.0
    slack: float = 0.0
    absolute: bool = False

    def worse(self, old: float | None, new: float) -> bool:
        """Whether the new value is worse than the old one allows."""
        if self.better == "zero":
            return new != 0
        if old is None:
            return False
        if self.better == "higher":
            return new < old - abs(old) * self.spread - self.slack
        return new > old + abs(old) * self.spread + self.slack


def higher(figure: str, why: str, spread: float = 0.0, slack: float = 0.0) -> Headline:
    """More is better, as for a ratio to a peer."""
    return Headline(figure, "higher", why, spread, slack)


def lower(figure: str, why: str, spread: float = 0.0, slack: float = 0.0) -> Headline:
    """Less is better."""
    return Headline(figure, "lower", why, spread, slack)


def zero(figure: str) -> Headline:
    """Must not happen."""
    return Headline(figure, "zero", "must not happen")


def absolute(figure: str, better: Literal["higher", "lower"], why: str, spread: float) -> Headline:
    """A time, a rate or a size of this machine."""
    return Headline(figure, better, why, spread, absolute=True)


FIXED = "no clock and no chance in it"
ONE_FLIP = "one of 14 near ties more or less is 0.07"
BUSY = "the shared machine takes 1.0 to 1.8 times as long within a minute"
FEW_SEEDS = "two seeds: with ten the same code gave .89 to .92"
FEW_RACED = "four are raced: one is 0.25"

HEADLINES: dict[str, tuple[Headline, ...]] = {
    "artifacts": (
        zero("loaded"),
        zero("wrong_results"),
        higher("rebuilt", FIXED),
        absolute("first_load_us.checked", "lower", BUSY, 1.0),
        absolute("key_ms.warm", "lower", BUSY, 1.0),
    ),
    "attest": (
        zero("alarms"),
        higher("detected.2x.rate", FEW_RACED, slack=0.25),
        higher("detected.1.3x.rate", FEW_RACED, slack=0.25),
        lower("simulated.share", "70 entries at a level of 5 %: four more are chance", slack=0.06),
    ),
    "audit": (zero("missed"), zero("false_alarms")),
    "buckets": (
        lower("tunings_over_buckets", FIXED),
        zero("answers_without_tier"),
        lower("regret.mean", "a replay: it moves only with the search", slack=0.02),
    ),
    "bundle_pull": (
        lower("bytes", FIXED),
        absolute("at_once_1.pull_ms", "lower", BUSY, 1.0),
        absolute("at_once_1.server_ms", "lower", "counted in ticks of 10 ms", 1.0),
    ),
    "bundles": (
        absolute("verify_mb_s", "higher", BUSY, 0.5),
        absolute("open_ms", "lower", "the highest of its repeats", 2.0),
    ),
    "compare": (
        higher("found_10", "two repeats: one is 0.5", slack=0.5),
        lower("false_alarms", "two repeats: one is 0.5", slack=0.5),
        zero("wrong_sign_10"),
        lower("typical_error_percent", "in percent: what a busy machine adds to two repeats", slack=1.0),
    ),
    "dashboard": (zero("complaints"), absolute("first_paint_ms", "lower", "one visit to each page", 1.0)),
    "emulator": (zero("false_alarms"), higher("right", FIXED), higher("found_share", FIXED)),
    "knowing": (
        higher("spearman_median", "the pool is drawn by a fixed seed", 0.02),
        higher("r10_gain", "the searches have fixed seeds", 0.02),
    ),
    "faults": (zero("total.lost"), higher("total.injected", "chance decides a few of them", 0.2)),
    "fleet": (
        higher("overhead_ratio_10ms", "0.88 to 0.93 in a quiet run, less on a busy machine", 0.15),
        higher("overhead_ratio_100ms", "0.99 in all pairs of a run", 0.05),
        higher("overlap_gain", "1.27 with one core busy, 1.93 with none", 0.4),
    ),
    "fleet_sim": (
        higher("speedup_8", "simulated; the cost of a trial is measured", 0.15),
        lower("quality_8", "a replay with few seeds", 0.03),
        lower("check_error", "one real run on a busy machine", slack=0.15),
    ),
    "fleet_storm": (zero("lost"), zero("doubled"), zero("overlaps"), higher("finished", FIXED)),
    "gate": (zero("false_alarms"), higher("found_3_of_40", "four races at the load of the night", 0.5)),
    "gpu_faults": (
        *(zero(figure) for figure in ("wrong_published", "repeated_crashes", "parent_died")),
        higher("culprit_named", FIXED),
        lower("memory_ratio", "1.009 on a simulated device", slack=0.05),
        lower("storm_searches", FIXED),
        lower("fresh_int_ratio", "0.79 to 0.81 on a busy machine", 0.2),
        lower("dynamo_configs", FIXED),
    ),
    "gpu_accept": (zero("false_alarms"), zero("unfinished"), higher("found_share", FIXED)),
    "herd": (
        zero("redis.bare.failed"),
        zero("postgres.bare.failed"),
        lower("redis.session.commands_per_process", "counted by the server", slack=0.5),
        lower("postgres.session.commands_per_process", "counted by the server", slack=0.5),
    ),
    "hostile": tuple(
        zero(figure) for figure in ("wrong_configs", "code_runs", "crashes", "leaks", "losses", "refused")
    ),
    "interleavings": (zero("stale"), zero("lost"), zero("unfinished")),
    "invariance": (zero("row_0_differs"), zero("rows_differ"), higher("planted_found", FIXED)),
    "launch": (
        higher("ratio", "5.3 to 5.9 between runs of 120 blocks; quick ones have 30", 0.3),
        higher("imports_clean", FIXED),
        absolute("overhead_us", "lower", "1.0 to 2.1 us between runs", 1.0),
        absolute("import_ms", "lower", "25 to 45 ms between runs", 1.0),
    ),
    "lint": (
        higher("needless.precision", "few are planted in a quick run", slack=0.2),
        higher("needless.recall", "few are planted in a quick run", slack=0.2),
        higher("missing.precision", "few are planted in a quick run", slack=0.2),
        higher("missing.recall", "few are planted in a quick run", slack=0.2),
    ),
    "loko": (
        higher("scores.as shipped.convolution11", "one seed", slack=0.08),
        higher("scores.as shipped.convolution", "one seed", slack=0.08),
        higher("scores.as shipped.cpu channels", "one seed", slack=0.08),
        higher("scores.as shipped.cpu conv", "one seed", slack=0.08),
    ),
    "budgets": (lower("worst_overrun", "processes start slowly on a busy machine", slack=0.1), zero("failures")),
    "memo": (
        higher("store.get", "medians of few blocks that wait for a disk", 0.4),
        higher("store.put", "medians of few blocks that wait for a disk", 0.4),
        lower("hit.unbounded.ratio", "medians of 30 blocks, beside lru_cache in turn", 0.4),
        lower("hit.bounded.ratio", "medians of 30 blocks, beside lru_cache in turn", 0.4),
    ),
    "methodology": (higher("score", "three repeats instead of a hundred", slack=0.25), higher("ahead", FIXED)),
    "mlir": (
        higher("vs_openblas_512", "four trials find one of several structures", 0.6),
        lower("shipped", "eight rounds instead of 60", 0.2),
    ),
    "mlir_experiments": (
        higher("packed_filters", "eight rounds instead of 60", 0.3),
        higher("prefetched_rows", "eight rounds instead of 60", 0.3),
    ),
    "mlir_exported": (higher("geomean_vs_written", "12 trials and 8 rounds of each", 0.5), higher("right", FIXED)),
    "online_softmax": (higher("greatest_gain", "10 rounds of each width on a shared machine", 0.3),),
    "mlir_odd_sizes": (higher("geomean", "12 trials and 40 rounds of each", 0.35), higher("right", FIXED)),
    "mlir_structures": (lower("trials_predicted", "the mean of five seeds", 0.2),),
    "mlir_payloads": (
        higher("geomean_all", "40 trials and 40 rounds of each", 0.25),
        higher("geomean_fused", "40 trials and 40 rounds of each", 0.25),
        higher("right", FIXED),
    ),
    "operators": (
        lower("worst_vs_best", "the largest of few medians of nine", 0.4),
        lower("geomean_vs_torch", "medians of nine neighbours", 0.35),
        absolute("dispatched_us", "lower", BUSY, 0.8),
    ),
    "power": (zero("power_lost"), zero("power_torn"), higher("power_states", "which states are alike is chance", 0.1)),
    "referee": tuple(
        zero(f"{language}.{count}")
        for language in ("python", "c", "torch", "triton")
        for count in ("chosen", "refused", "errors")
    ),
    "referee_attacks": (zero("missed"), zero("falsely_accused"), zero("planted.false_alarms")),
    "racing": (
        higher("idle.saving", "two repeats", 0.5),
        higher("loaded.saving", "two repeats", 0.5),
    ),
    "record_spaces": (
        lower("gemm.failed", FIXED),
        lower("conv.failed", FIXED),
        lower("gemm.spread", "the noise of three passes, by how busy the machine is", slack=0.1),
        lower("conv.spread", "the noise of three passes, by how busy the machine is", slack=0.1),
    ),
    "record_programs": (
        lower("zstd.spread", "the noise of three passes, by how busy the machine is", slack=0.1),
        lower("sqlite.spread", "the noise of three passes, by how busy the machine is", slack=0.1),
    ),
    "search": (
        higher("r25", FEW_SEEDS, slack=0.08),
        higher("r50", FEW_SEEDS, slack=0.08),
        higher("cpu_r50", FEW_SEEDS, slack=0.08),
        absolute("cost_ms", "lower", BUSY, 0.8),
    ),
    "service": (
        higher("lookup_ratio", "few rounds of a second on two cores that the load shares", 0.3),
        higher("batch_ratio", "few rounds of a second on two cores that the load shares", 0.3),
        higher("bundle_ratio", "few rounds of a second on two cores that the load shares", 0.3),
    ),
    "service_storm": (
        zero("lost"),
        zero("wrong"),
        lower("memory_growth", "20 s, in which caches fill", 0.3),
    ),
    "shapes": (
        lower("kernels.gemm.buckets.mean", "a replay", slack=0.001),
        lower("kernels.gemm.table_4.greedy.mean", "a replay", slack=0.001),
        lower("kernels.gemm.trials_seeds", "a replay with 20 draws", 0.5),
        lower("p95", "a replay", slack=0.005),
        lower("untuned_mean", "a replay; libraries of linear algebra round differently", slack=0.03),
        lower("cover_configs", FIXED),
        lower("rule_extra", "a replay", slack=0.005),
    ),
    "shapes_many": (
        lower("joint_200", "a replay; libraries of linear algebra round differently", slack=0.02),
        lower("served_200", "a replay; libraries of linear algebra round differently", slack=0.03),
    ),
    "space": (
        higher("hotspot_speedup", "medians of few builds in a busy moment", 0.35),
        higher("gemm_speedup", "medians of few builds in a busy moment", 0.35),
        higher("large_speedup", "45 to 94 between runs", 0.5),
        higher("stencil_speedup", "medians of few builds in a busy moment", 0.35),
    ),
    "stopping": (
        lower("rule.regret", "two spaces, one seed", slack=0.03),
        lower("rule.evaluations_mean", "two spaces, one seed", 0.5),
    ),
    "store_sizes": (
        lower("sqlite.decision", "bytes; pages are rounded up", 0.05),
        lower("redis.decision", "bytes; the server's own use varies", 0.1),
        lower("postgres.decision", "bytes; pages are rounded up", 0.1),
        lower("bundle.decision", FIXED),
    ),
    "stores": (
        higher("sqlite.get", "0.79 to 0.85 in the middle half of a run", 0.3),
        higher("redis.get", "0.95 to 1.64 in the middle half of a run", 0.4),
        higher("postgres.get", "0.85 to 0.89 in the middle half of a run", 0.2),
        lower("postgres_p50", "1.11 in the long run; quick ones have 1,000 calls", 0.25),
    ),
    "torch_compile": (
        higher("geomean_vs_default", "one tiny model in one sitting", 0.25),
        higher("worst_vs_best", "one tiny model in one sitting", 0.15),
    ),
    "torch_models": (
        higher("geomean_vs_default", "one model in one sitting", 0.25),
        zero("symbolic_searches"),
        lower("overrun", "one search", 0.3),
    ),
    "torch_ship": (
        higher("cold_start_ratio", "one cold start", 0.5),
        zero("started"),
        zero("compiles"),
        zero("autotunes"),
    ),
    "torture": (
        lower("flip_rate", ONE_FLIP, slack=0.08),
        *(zero(f"{front}{count}") for front in ("", "torch_", "triton_") for count in ("losers_vs_default", "lost")),
        lower("wrong_winners", "simulated noise; one tuning of a scenario", slack=2),
    ),
    "triton_build": (
        higher("sm_80.compile_saving", "three configs, by their CPU time", slack=0.3),
        higher("sm_90.compile_saving", "three configs, by their CPU time", slack=0.3),
        higher("sm_80.drop_precision", FIXED),
        higher("sm_90.drop_precision", FIXED),
    ),
    "triton_launch": (lower("launch_ratio", "1.11 to 1.13 on a busy machine", 0.1),),
}
"""By benchmark. Spreads are those of `--quick`, which is what runs every night."""


def flat(printed: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Numbers that a benchmark printed, by their path, and the spreads that it stated.

    A series counts by its median. Lists are left out, but `wrong` is how many mistakes there were.
    """
    figures: dict[str, float] = {}
    spreads: dict[str, list[float]] = {}
    for name, value, spread in _walk(printed, ""):
        figures[name] = value
        if spread:
            spreads[name] = spread
    if isinstance(printed.get("wrong"), list):
        figures["wrong"] = len(printed["wrong"])
    return figures, spreads


def _walk(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, float, list[float] | None]]:
    for name, value in part.items():
        where = f"{path}.{name}" if path else name
        if where == "goals":
            continue
        if isinstance(value, dict) and {"median", "low", "high"} <= value.keys():
            yield where, value["median"], [value["low"], value["high"]]
        elif isinstance(value, dict):
            yield from _walk(value, where)
        elif isinstance(value, bool | int | float):
            stated = part.get("spread") if name == "ratio" else None
            yield where, value + 0, stated if isinstance(stated, list) else None


def headline(benchmark: str, figures: Mapping[str, float]) -> str:
    """The judged figures of a benchmark in a few words."""
    found = [one.figure for one in HEADLINES.get(benchmark, ()) if one.figure in figures]
    return ", ".join(f"{name} {figures[name]:.4g}" for name in found)


@dataclass
class Comparison:
    """What changed between two runs; `judged` has every figure that has a headline, worse ones included."""

    same_machine: bool
    worse: list[str] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """Judge every headline figure of the new run by the old one."""
    before, after = (
        {name: step.get("figures", {}) for name, step in one["steps"].items() if step["status"] == "passed"}
        for one in (old, new)
    )
    found = Comparison(old["machine"] == new["machine"])
    for name in sorted(before.keys() | after.keys()):
        benchmark = name.removeprefix("benchmark-")
        was, now = before.get(name, {}), after.get(name, {})
        if name not in after:
            status = new["steps"].get(name, {}).get("status", "not run")
            found.missing.append(f"{name}: passed before, now {status}")
            continue
        if name not in before:
            found.new.append(f"{name}: nothing to compare with")
        rows = {row.figure: row for row in HEADLINES.get(benchmark, ())}
        for row in rows.values():
            _judge(found, name, row, was.get(row.figure), now.get(row.figure))
        for figure in sorted((was.keys() | now.keys()) - rows.keys()):
            found.others.append(f"{name} {figure}: {_shown(was.get(figure))} -> {_shown(now.get(figure))}")
    return found


def _judge(found: Comparison, step: str, row: Headline, old: float | None, new: float | None) -> None:
    where = f"{step} {row.figure}"
    if new is None:
        if old is not None:
            found.missing.append(f"{where}: was {_shown(old)}")
        return
    line = f"{where}: {_shown(old)} -> {_shown(new)} ({_allowed(row)})"
    if row.absolute and not found.same_machine:
        found.left_out.append(line)
        return
    found.judged.append(line)
    if row.worse(old, new):
        found.worse.append(line)


def _allowed(row: Headline) -> str:
    if row.better == "zero":
        return "must be 0"
    parts = [f"{row.spread:.0%}"] if row.spread else []
    parts += [f"{row.slack:g}"] if row.slack else []
    return f"{row.better} is better, spread {' + '.join(parts) or 0}: {row.why}"


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.5g}"
