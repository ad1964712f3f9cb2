"""Searching: how near to the best config in how few trials, on recorded spaces, beside Kernel Tuner's strategies.

    python benchmarks/search.py [--quick] [--json] [--spaces DIR] [--peers DIR] [--seeds 50] [--strategies A,B]
                                [--only PART] [--out DIR] [--exact]

DIR holds recordings of real devices (NAME.parquet, NAME.json); without it, those of the project's `spaces/` are
searched, or one that is made up. The first strategy named is judged by the goals; the others stand beside it, and so
do Kernel Tuner's, in the same run, through the replay script in the peers' folder. A name may have settings:
`portfolio?elite=1`. Parts:

- from-scratch: r25 .. r200 (optimum / best so far after so many evaluations, mean over seeds and spaces), e5, e1
  (evaluations until within 5 % and 1 %, median over seeds, then over spaces), within1 (share of runs within 1 % at
  the end). Failed configs count as evaluations. `scratch_vs_best_arm` is the least lead, of any space at 100 or 200,
  over the best other strategy of ours, if those are named.
- loko: the same where the settings used on a kernel were chosen without that kernel: `loko.json`, {kind: settings}.
- cpu: the same on the project's own recorded CPU spaces, each another kind. Times are drawn from the spread of each
  row, and what counts after k evaluations is the config that a final race would choose; `--exact` takes the recorded
  times as they are. The first strategy is judged with settings that were chosen on the other kinds (`loko.json`).
  `worst_vs_best_arm` is the same least lead as above, `cpu_vs_peers` the least over Kernel Tuner's best at 50, 100
  or 200, where nobody's times have noise.
- transfer: each strategy that takes a prior is told 200 random trials from each other space of the same kernel;
  `transfer_worst` is the least gain over from-scratch of any space, at 50 or 100 evaluations.
- batches: r at 96 evaluations one at a time, minus the same in batches of 8.
- cost: CPU time of a proposal on the largest recorded space and on the largest that is defined, with made-up times;
  peak memory of a fresh process.

Finished runs are kept in --out, if that is given, and not repeated. The full run takes hours on two cores.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from figures import Goal, Report, parser
from search_cost import costs
from search_peers import Peers

from tunewright import Knob, Space
from tunewright.backends.replay import Recording
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.replay.ledger import TraceLog
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayJob, ReplayOptions, Trace, make_jobs
from tunewright.replay.scores import TraceScore, checkpoints, group_scores, summarize
from tunewright.replay.tables import RecordingFile
from tunewright.replay.workers import collect_traces
from tunewright.report import regret

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
SHARED = PROJECT.parent / "shared"
OWN = PROJECT / "spaces"
LOKO = HERE / "loko.json"
LEFT_OUT = {"pnpoly-TITANRTX", "gemm-RTX3060L"}
"""Broken timings; a partial table."""

PARTS = ("from-scratch", "loko", "cpu", "transfer", "batches", "cost")
AIMS = {"r25": 0.92, "r50": 0.96, "r100": 0.985, "r200": 0.995, "e5": 20, "e1": 45, "within1": 0.95}
DRAWN = 200
BATCH, BATCHED = 8, 96
GOALS = (
    *(Goal(name, "<=" if name[0] == "e" else ">=", aim) for name, aim in AIMS.items()),
    *(Goal(f"loko_{name}", ">=", round(AIMS[name] - 0.01, 3)) for name in ("r25", "r50", "r100", "r200", "within1")),
    *(Goal(f"ahead_at_{budget}", "==", True) for budget in (25, 50, 100, 200)),
    Goal("scratch_vs_best_arm", ">=", -0.01),
    Goal("cpu_r100", ">=", 0.98),
    Goal("cpu_r200", ">=", 0.995),
    Goal("cpu_within1", ">=", 0.9),
    Goal("worst_vs_best_arm", ">=", -0.01),
    Goal("cpu_vs_peers", ">=", 0.0),
    Goal("transfer_e5", "<=", 5),
    Goal("transfer_e1", "<=", 15),
    Goal("transfer_worst", ">=", -0.01),
    Goal("batch8_gap", "<=", 0.01),
    Goal("cost_ms", "<=", 20),
    Goal("large_cost_ms", "<=", 100),
    Goal("large_peak_mb", "<", 1000),
)

Scores = dict[str, list[TraceScore]]
"""By strategy."""


def settings_for(kind: str, file: Path = LOKO) -> dict[str, Any]:
    """What a strategy is made with on this kind: chosen on the others alone; the defaults if nothing was chosen."""
    return dict(json.loads(file.read_text()).get(kind, {})) if file.is_file() else {}


def contender(text: str) -> ReplayedStrategy:
    """The strategy that a name with settings means, such as `portfolio?trees=false&elite=1`."""
    name, _, settings = text.partition("?")
    pairs = (pair.partition("=") for pair in settings.split("&") if pair)
    return ReplayedStrategy(name, {key: json.loads(value) for key, _, value in pairs})


def name_of(trace: Trace) -> str:
    """The name of a trace's strategy with its settings, as `contender` takes it."""
    settings = "&".join(f"{key}={json.dumps(value)}" for key, value in trace.key.settings.items())
    return f"{trace.key.strategy}?{settings}" if settings else trace.key.strategy


ARMS = ("learned", "evolve", "anneal")
"""Single strategies of ours that the first one is compared with."""


@dataclass(frozen=True)
class Bench:
    """What is searched, by whom, how often, and where the traces are kept."""

    origins: Sequence[RecordingFile]
    names: Sequence[str]
    seeds: int
    budget: int
    workers: int
    ledger: TraceLog

    def run(self, wanted: Sequence[ReplayJob], part: str) -> list[Trace]:
        """Traces of jobs, with a line of progress now and then."""
        began, said = time.monotonic(), [0.0]

        def after(done: int, known: int) -> None:
            if time.monotonic() - said[0] > 30 or done == len(wanted):
                said[0], spent = time.monotonic(), time.monotonic() - began
                left = spent / max(1, done - known) * (len(wanted) - done)
                say(f"{part}: {done} of {len(wanted)} runs, about {left / 60:.0f} min left")

        return collect_traces(wanted, self.ledger, workers=self.workers, after=after)

    def scratch(
        self, part: str, origins: Sequence[RecordingFile], *, at: Sequence[int] = (), noise: bool = False
    ) -> Scores:
        """Every strategy on some spaces, knowing nothing."""
        options = ReplayOptions(self.budget, noise=noise)
        wanted = make_jobs(origins, [contender(name) for name in self.names], range(self.seeds), options)
        return self.scored(self.run(wanted, part), at)

    def scored(self, found: Sequence[Trace], at: Sequence[int] = ()) -> Scores:
        """Scores by strategy; also after `at` evaluations."""
        scores: Scores = {}
        for trace in found:
            scores.setdefault(name_of(trace), []).append(TraceScore.of(trace, (*checkpoints(trace.key.budget), *at)))
        return scores


def kernel_of(origin: RecordingFile) -> str:
    """Which kernel a recording is of."""
    return str(json.loads(origin.path.with_suffix(".json").read_text())["kernel"])


def kind_of(origin: RecordingFile) -> str:
    """Which kind of space a recording is of: its kernel; those of CPUs are kinds of their own."""
    return f"cpu {kernel_of(origin)}" if origin.path.parent == OWN else kernel_of(origin)


def told(scores: Scores, report: Report, title: str, *, each: bool = True) -> None:
    """The table of all strategies, then one for each kernel."""
    parts = {title: scores}
    kernels = sorted({score.kernel for some in scores.values() for score in some})
    for kernel in kernels if each and len(kernels) > 1 else ():
        parts[f"  {kernel}"] = {
            name: group_scores(some, lambda s: s.kernel).get(kernel, []) for name, some in scores.items()
        }
    for heading, group in parts.items():
        heads, body = regret.summary_table({name: summarize(some) for name, some in group.items() if some})
        widths = [max(len(row[i]) for row in [heads, *body]) for i in range(len(heads))]
        report.lines.append(heading)
        for row in [heads, *body]:
            first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            report.lines.append(f"  {row[0].ljust(len(first))}  " + "  ".join(rest))
        report.lines.append("")


def plain(scores: Sequence[TraceScore]) -> dict[str, Any]:
    """Figures of one strategy; None where a bound was not reached."""
    said = {name: None if value == inf else round(value, 4) for name, value in summarize(scores).items()}
    return {name: value for name, value in said.items() if name[0] != "s"}


def headline(scores: Sequence[TraceScore], prefix: str = "") -> dict[str, Any]:
    """The figures of `AIMS` under their names; a bound that was not reached is infinite, so that its goal is judged."""
    return {f"{prefix}{name}": round(value, 4) for name, value in summarize(scores).items() if name in AIMS}


def from_scratch(bench: Bench, peers: Peers, report: Report) -> None:
    """Ours and theirs on all spaces, knowing nothing."""
    scores = bench.scratch("from scratch", bench.origins)
    ours, theirs = scores[bench.names[0]], peers.scores(bench.origins, bench.seeds, bench.budget, report)
    every = scores | theirs
    told(every, report, f"from scratch, {len(bench.origins)} spaces, {bench.seeds} seeds")
    report.figures |= headline(ours)
    report.figures["strategies"] = {name: plain(some) for name, some in every.items()}
    report.figures["by_kernel"] = by(every, "kernel")
    report.figures["by_space"] = by(every, "table")
    if ahead := leads_over_arms(scores, bench.names[0]):
        report.figures |= {"scratch_vs_best_arm": min(ahead.values()), "leads_over_arms": ahead}
    for mark in checkpoints(bench.budget) if theirs else ():
        best = max(summarize(some)[f"r{mark}"] for some in theirs.values())
        report.figures[f"ahead_at_{mark}"] = bool(summarize(ours)[f"r{mark}"] > best)


def by(scores: Scores, what: str) -> dict[str, dict[str, Any]]:
    """Figures of each strategy for each kernel or table."""
    return {
        name: {group: plain(own) for group, own in group_scores(some, lambda s: getattr(s, what)).items()}
        for name, some in scores.items()
    }


def left_out(bench: Bench, part: str, origins: Sequence[RecordingFile], *, noise: bool = False) -> list[TraceScore]:
    """The first strategy, on each kind with the settings chosen on the others."""
    wanted: list[ReplayJob] = []
    name = bench.names[0].partition("?")[0]
    for origin in origins:
        chosen = ReplayedStrategy(name, settings_for(kind_of(origin)))
        wanted += make_jobs([origin], [chosen], range(bench.seeds), ReplayOptions(bench.budget, noise=noise))
    return [score for some in bench.scored(bench.run(wanted, part)).values() for score in some]


def loko(bench: Bench, report: Report) -> None:
    """The first strategy, on each kernel with the settings chosen on the others."""
    scores = {bench.names[0]: left_out(bench, "loko", bench.origins)}
    told(scores, report, "settings chosen without the kernel they are used on")
    report.figures |= headline(scores[bench.names[0]], "loko_")
    report.figures["loko_by_kernel"] = by(scores, "kernel")[bench.names[0]]


def cpu(bench: Bench, peers: Peers, report: Report, *, noise: bool) -> None:
    """Ours on the project's own spaces of CPUs, then beside Kernel Tuner's, without noise."""
    origins = [RecordingFile(path) for path in sorted(OWN.glob("*.parquet"))]
    if not origins:
        report.lines.append(f"cpu: there is no recording in {OWN.name}/ of the project\n")
        return
    bench = replace(bench, names=[*bench.names, *(arm for arm in ARMS if arm not in bench.names)])
    judged = f"{bench.names[0]}, settings of the other kinds"
    scores = {judged: left_out(bench, "cpu, settings of the other kinds", origins, noise=noise)}
    scores |= bench.scratch("cpu", origins, noise=noise)
    told(scores, report, f"CPU spaces of our own: {len(origins)}" + (", with noise" if noise else ""))
    report.figures |= {"cpu_noise": noise, "cpu_kinds": len(origins)} | headline(scores[judged], "cpu_")
    report.figures["cpu_strategies"] = {name: plain(some) for name, some in scores.items()}
    report.figures["cpu_by_space"] = by(scores, "table")
    if ahead := leads_over_arms(scores, judged):
        report.figures |= {"worst_vs_best_arm": min(ahead.values()), "cpu_leads_over_arms": ahead}
    if theirs := peers.scores(origins, bench.seeds, bench.budget, report):
        exact = {judged: left_out(bench, "cpu, without noise", origins)} | theirs
        told(exact, report, "beside Kernel Tuner's strategies, without noise")
        ahead = leads(by(exact, "table"), judged, (50, 100, 200))
        report.figures |= {"cpu_vs_peers": min(ahead.values()), "cpu_leads_over_peers": ahead}
        report.figures["cpu_peers"] = {name: plain(some) for name, some in exact.items()}


def leads_over_arms(scores: Scores, judged: str) -> dict[str, float]:
    """The difference to the best single strategy of ours, on each space after 100 and 200 evaluations."""
    arms = {name: some for name, some in scores.items() if name in (judged, *ARMS)}
    return leads(by(arms, "table"), judged, (100, 200))


def leads(by_space: dict[str, dict[str, Any]], judged: str, marks: Sequence[int]) -> dict[str, float]:
    """The difference to the best of the other strategies, on each space after so many evaluations."""
    return {
        f"{space} at {mark}": round(own[f"r{mark}"] - max(others), 4)
        for space, own in by_space[judged].items()
        for mark in marks
        if f"r{mark}" in own
        and (others := [some[space][f"r{mark}"] for name, some in by_space.items() if name != judged and space in some])
    }


def transfer(bench: Bench, report: Report) -> None:
    """Those that take a prior, told trials from other spaces of the same kernel."""
    able = [name for name in bench.names if hasattr(contender(name).load(), "inform")]
    kernels = {origin: kernel_of(origin) for origin in bench.origins}
    sources = {
        origin: [other for other in bench.origins if other != origin and kernels[other] == kernels[origin]]
        for origin in bench.origins
    }
    origins = [origin for origin in bench.origins if sources[origin]]
    if not able or not origins:
        why = "no strategy named has `inform`" if origins else "no kernel was recorded on two devices"
        report.lines.append(f"transfer: {why}\n")
        return
    contenders = [contender(name) for name in able]
    wanted = make_jobs(
        origins, contenders, range(bench.seeds), ReplayOptions(min(100, bench.budget), source_trials=DRAWN), sources
    )
    warm = bench.scored(bench.run(wanted, "transfer"))
    cold = bench.scratch("from scratch", origins)
    shown = warm | {f"{name}, cold": cold[name] for name in able}
    told(
        {n: trimmed(s, warm[able[0]][0]) for n, s in shown.items()}, report, f"told {DRAWN} trials of each other space"
    )
    gains: dict[str, dict[str, float]] = {}
    for table, some in group_scores(warm[able[0]], lambda s: s.table).items():
        before = summarize(group_scores(cold[able[0]], lambda s: s.table)[table])
        gains[table] = {
            r: round(v - before[r], 4) for r, v in summarize(some).items() if r in ("r50", "r100") and r in before
        }
    said = summarize(warm[able[0]])
    report.figures |= {f"transfer_{name}": said[name] for name in ("e5", "e1")}
    report.figures["transfer_worst"] = min(gain for one in gains.values() for gain in one.values())
    report.figures["transfer_gains"] = gains
    report.figures["transfer_by_space"] = by(warm, "table")[able[0]]


def trimmed(scores: Sequence[TraceScore], like: TraceScore) -> list[TraceScore]:
    """Scores with the budgets of another only, so that they fit into one table."""
    return [replace(score, ratios={mark: score.ratios[mark] for mark in like.ratios}) for score in scores]


def batches(bench: Bench, report: Report) -> None:
    """Several at once against one at a time, after as many evaluations."""
    mark = min(BATCHED, bench.budget)
    singly = bench.scratch("from scratch", bench.origins, at=[mark])
    wanted = make_jobs(
        bench.origins, [contender(n) for n in bench.names], range(bench.seeds), ReplayOptions(mark, BATCH)
    )
    together = bench.scored(bench.run(wanted, "batches"))
    report.lines.append(f"r{mark} one at a time, in batches of {BATCH}, and the difference")
    for name in bench.names:
        one, many = (summarize(some[name])[f"r{mark}"] for some in (singly, together))
        report.lines.append(f"  {name:<24} {one:.3f}  {many:.3f}  {one - many:+.3f}")
        if name == bench.names[0]:
            report.figures |= {f"batch{BATCH}_gap": round(one - many, 4), "batch8_r": many, "batch1_r": one}
    report.lines.append("")


def made_up(folder: Path) -> list[RecordingFile]:
    """Two recordings of a kernel that does not exist, where there are no others."""
    space = Space(*(Knob(name, [1, 2, 4, 8, 16]) for name in ("tile_x", "tile_y", "unroll")), Knob("pad", [0, 1]))
    for number in (1, 2):
        trials: dict[Any, Trial] = {}
        for config in space:
            x, y, unroll, pad = (int(config[name]) for name in ("tile_x", "tile_y", "unroll", "pad"))
            seconds = 1e-3 * (1 + abs(np.log2(x * y) - 4 - number / 2) + (unroll - 4 * number) ** 2 / 64 + 0.1 * pad)
            fails = x * y * unroll > 1024
            outcome = Failure(Stage.BUILD, Kind.REFUSED, "too large") if fails else Timing((float(seconds),))
            trials[config] = Trial(config, outcome, 0.5, 0.1)
        Recording("made_up", f"nothing {number}", space, trials).write(folder / f"made_up-{number}.parquet")
    return [RecordingFile(path) for path in sorted(folder.glob("made_up-*.parquet"))]


def found(given: Any, folder: Path, report: Report) -> list[RecordingFile]:
    """The recordings to search: those given, else the project's own, else made-up ones."""
    for place in (given.spaces, OWN):
        origins = [RecordingFile(path) for path in sorted(place.glob("*.parquet")) if path.stem not in LEFT_OUT]
        if origins:
            break
        report.lines.append(f"no recording in {place.name}/")
    else:
        report.lines.append("a made-up recording is searched instead")
        origins = made_up(folder)
    if not given.quick or len(origins) <= 3:
        return origins
    # The smallest, another of its kernel so that there is something to transfer, and the largest.
    small = sorted(origins, key=lambda origin: origin.path.stat().st_size)
    twin = next((o for o in small[1:-1] if kernel_of(o) == kernel_of(small[0])), small[1])
    return [small[0], twin, small[-1]]


def say(line: str) -> None:
    """Progress, apart from the report."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, judge, report."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED / "spaces", metavar="DIR", help="recordings")
    takes.add_argument("--peers", type=Path, default=SHARED / "peers", metavar="DIR", help="kernel_tuner_replay.py")
    takes.add_argument("--seeds", type=int, help="50, or 2 if quick")
    takes.add_argument("--strategies", default="portfolio,random", metavar="A,B", help="the first is judged")
    takes.add_argument("--only", choices=PARTS, action="append", help="one part instead of all; may be repeated")
    takes.add_argument("--out", type=Path, metavar="DIR", help="keep finished runs here, and do not repeat them")
    takes.add_argument("--exact", action="store_true", help="CPU spaces without noise")
    takes.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = takes.parse_args(arguments)
    names = [name.strip() for name in given.strategies.split(",") if name.strip()]
    report, parts = Report(), given.only or PARTS
    with tempfile.TemporaryDirectory() as made, TraceLog(given.out or Path(made)) as ledger:
        origins = found(given, Path(made), report)
        seeds, budget = (given.seeds or 2, 50) if given.quick else (given.seeds or 50, 200)
        bench = Bench(origins, names, seeds, budget, given.workers, ledger)
        peers = Peers(given.peers, given.out, given.workers, Path(made))
        report.figures |= {"searched": [o.name for o in origins], "seeds": seeds, "budget": budget, "judged": names[0]}
        work: Mapping[str, Any] = {
            "from-scratch": lambda: from_scratch(bench, peers, report),
            "loko": lambda: loko(bench, report),
            "cpu": lambda: cpu(bench, peers, report, noise=not given.exact),
            "transfer": lambda: transfer(bench, report),
            "batches": lambda: batches(bench, report),
            "cost": lambda: costs(
                origins, [name.partition("?")[0] for name in names], given.spaces, report, quick=given.quick
            ),
        }
        for part in parts:
            work[part]()
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
