"""The stages `faults`, `streams`, `compile`, `processes`, `prebuilt` and `truth`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton

from tunewright.errors import DeviceLost, TunewrightError
from tunewright.model.trial import Failure
from tunewright.session import configure, current_session
from tunewright.triton import adapter
from tunewright.triton.acceptance.children import Child, ChildTask, run_in_child
from tunewright.triton.acceptance.device import DeviceUnderTest
from tunewright.triton.acceptance.kernels import SUITE, accept_fault, accept_spin
from tunewright.triton.acceptance.notes import StageNotes
from tunewright.triton.acceptance.timing import interleaved, medians, sampler
from tunewright.triton.decorator import autotune
from tunewright.triton.dynamo import compile_graph, configs_in_graph

FAR = 1 << 40
"""Elements by which a bad config misses its memory."""

SIZE, GRID = 4096, (128,)
REGRET = 0.05
"""How much slower than the best of all configs a choice may be."""

STREAM_TURNS = 1 << 16


def _faulty() -> Any:
    settings = ((32, 0), (64, 1), (128, 0))
    return autotune([triton.Config({"BLOCK": block, "BAD": bad}, num_warps=1) for block, bad in settings], ["n"])(
        accept_fault
    )


@contextmanager
def _opened(device: DeviceUnderTest, cache: str, compiled: str) -> Iterator[None]:
    """Makes the device ready in a child of a stage, with the caches of the stage."""
    adapter.set_cache_folder(Path(compiled))
    with device.open():
        configure(cache=Path(cache))
        yield


def _child_task(device: DeviceUnderTest, work: Callable[..., Any], cache: Path, **arguments: Any) -> ChildTask:
    """Returns the task of a child that tunes with these caches."""
    caches = {"cache": str(cache), "compiled": str(triton.knobs.cache.dir)}
    return ChildTask(f"{__name__}:{work.__name__}", device.source, {**caches, **arguments})


def tune_faulty(device: DeviceUnderTest, cache: str, compiled: str) -> dict[str, Any]:
    """Tunes a kernel with a bad config, in a process of its own; returns what came of it."""
    with _opened(device, cache, compiled):
        x, out = torch.ones(SIZE, device=device.place), torch.zeros(SIZE, device=device.place)
        device.adopt(x, out)
        kernel, error, lost = _faulty(), "", False
        try:
            kernel[GRID](x, out, SIZE, FAR)
        except TunewrightError as failed:
            error, lost = str(failed), isinstance(failed, DeviceLost)
        store = current_session().store
        trials = [trial for key in list(store.keys()) for trial in store.trials(key)]
        failed_blocks = sorted({t.config["BLOCK"] for t in trials if isinstance(t.outcome, Failure)})
        decided = [decision.config["BLOCK"] for decision in store.decisions()]
        return {"error": error, "lost": lost, "failed": failed_blocks, "decided": decided}


def check_faults(device: DeviceUnderTest, notes: StageNotes, folder: Path) -> None:
    """Tunes a kernel with a config that leaves the device unusable, then again in another process."""
    task = _child_task(device, tune_faulty, folder / "faults")
    runs = [run_in_child(task, folder, f"faults {number}", device.patience) for number in (1, 2)]
    notes.figures["runs"] = [json.loads(run.result) if run.result else run.status for run in runs]
    for number, run in enumerate(runs, 1):
        if run.result is None:
            how = "hung" if run.hung else f"ended with status {run.status}"
            notes.expect(False, f"process {number} {how}: {run.log[-300:]}")
    if any(run.result is None for run in runs):
        return
    first, second = notes.figures["runs"]
    if not notes.expect(first["lost"] or first["failed"] == [64], "a store far outside of its memory went unnoticed"):
        return
    named = "BLOCK=64 " in first["error"] or first["failed"] == [64]
    notes.expect(named, f"the config at fault was not named: {first['error']}")
    notes.expect(not (first["lost"] and first["decided"]), "something was decided on a device that was lost")
    notes.expect(not second["error"], f"a new process fails on the same config: {second['error']}")
    notes.expect(bool(second["decided"]) and 64 not in second["decided"], f"it decided {second['decided']}")
    notes.expect(set(second["failed"]) <= {64}, f"configs were blamed without cause: {second['failed']}")


def check_streams(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Tunes on another stream and beside a capture: launches are where they belong, and nothing is measured in it."""
    kernel = SUITE[0]
    arguments = kernel.arguments(device.place)
    device.adopt(*arguments[:3])
    clock, want = adapter.EventClock(), kernel.expected(*arguments)
    _check_side_stream(device, clock, notes)
    tuned = autotune(kernel.configs, kernel.key)(kernel.function)
    for config in kernel.configs:  # code is loaded before a capture, as torch wants it
        kernel.function[kernel.grid](*arguments, **config.all_kwargs())
    clock.wait()
    searches = current_session().counts["searches"]
    arguments[2].zero_()
    try:
        with device.capture() as graph:
            tuned[kernel.grid](*arguments)
    except RuntimeError as error:
        notes.expect(False, f"a capture with a tuned kernel fails: {error}")
        return
    notes.expect(current_session().counts["searches"] == searches, "a search ran while a graph was captured")
    notes.expect(not bool(arguments[2].any()), "a launch ran while it was captured")
    graph.replay()
    clock.wait()
    notes.expect(bool(torch.allclose(arguments[2], want)), "the graph computes something else when it is replayed")
    tuned[kernel.grid](*arguments)
    notes.expect(current_session().counts["searches"] == searches + 1, "the first call after a capture does not tune")


def _check_side_stream(device: DeviceUnderTest, clock: adapter.EventClock, notes: StageNotes) -> None:
    """Checks that a launch is timed by events of its own stream."""
    out = torch.zeros(1, device=device.place)
    device.adopt(out)
    times = {}
    for name in ("own", "side"):
        start, end = clock.event(), clock.event()

        def timed(start: Any = start, end: Any = end) -> float:
            start.record()
            accept_spin[(1,)](out, STREAM_TURNS, WARPS=1, num_warps=1)
            end.record()
            clock.wait()
            return float(start.elapsed_time(end)) * 1e-3

        if name == "own":
            timed()
            times[name] = timed()
        else:
            with device.side_stream():
                times[name] = timed()
    notes.figures["stream seconds"] = times
    alike = 0.5 * times["own"] <= times["side"] <= 2 * times["own"]
    notes.expect(alike, f"on another stream a launch takes {times['side']:.3g} s instead of {times['own']:.3g} s")


def check_compile(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Compiles a function that calls a tuned kernel: the graph has the decided config alone, and the right result."""
    kernel = SUITE[0]
    tuned = autotune(kernel.configs, kernel.key)(kernel.function)
    x, y, out, n = kernel.arguments(device.place)
    device.adopt(x, y, out)
    tuned[kernel.grid](x, y, out, n)
    decided, graphs = tuned.best_config.all_kwargs(), []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return compile_graph(device.compile_backend, graph, inputs)

    def add(x: Any, y: Any) -> Any:
        result = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, result, n)
        return result

    with device.compiling():
        result = torch.compile(add, backend=keep, fullgraph=True, dynamic=False)(x, y)
    shown = [configs for graph in graphs for configs in configs_in_graph(graph)]
    notes.figures |= {"decided": decided, "in the graph": shown}
    notes.expect(shown == [[decided]], f"the graph has {sum(map(len, shown))} configs, not the decided one alone")
    notes.expect(bool(torch.allclose(result, x + y)), "the compiled function computes something else")


def tune_on_card(device: DeviceUnderTest, cache: str, compiled: str, card: int) -> dict[str, Any]:
    """Tunes a kernel on one of the cards, in a process of its own; returns what came of it."""
    kernel = SUITE[1]
    with _opened(device, cache, compiled):
        device.use(card)
        arguments = kernel.arguments(device.place)
        device.adopt(*arguments[:2])
        tuned = autotune(kernel.configs, kernel.key)(kernel.function)
        tuned[kernel.grid](*arguments)
        adapter.wait_for_device()
        right = bool(torch.allclose(arguments[1], kernel.expected(*arguments), atol=1e-4))
        keys = [str(key.device) for key in list(current_session().store.keys())]
        counts = dict(current_session().counts)
        return {"right": right, "config": tuned.best_config.all_kwargs(), "counts": counts, "keys": keys}


def check_processes(device: DeviceUnderTest, notes: StageNotes, folder: Path) -> None:
    """Two processes tune one kernel at once: one search, one decision. Each further card tunes for itself."""

    def start(card: int, name: str) -> Child:
        return Child(_child_task(device, tune_on_card, folder / "processes", card=card), folder, name)

    pair = [start(0, f"process {number}") for number in (1, 2)]
    ended = [child.wait(device.patience) for child in pair]
    ended += [start(card, f"card {card}").wait(device.patience) for card in range(1, device.count())]
    results = []
    for number, end in enumerate(ended):
        what = f"process {number + 1}" if number < len(pair) else f"card {number - 1}"
        if notes.expect(end.result is not None, f"{what} {'hung' if end.hung else 'died'}: {end.log[-300:]}"):
            results.append(json.loads(end.result or b""))
            notes.expect(results[-1]["right"], f"{what} computes something else")
    notes.figures["runs"] = results
    if len(results) < len(ended):
        return
    searches = sum(result["counts"].get("searches", 0) for result in results[:2])
    notes.expect(searches == 1, f"two processes that tune one kernel made {searches} searches")
    notes.expect(results[0]["config"] == results[1]["config"], "two processes use different configs for one call")


def check_prebuilt(device: DeviceUnderTest, notes: StageNotes, folder: Path) -> None:
    """Compiles the configs of a kernel in other processes; afterwards its first call compiles nothing."""
    from tunewright.triton.static import prebuild as builder  # noqa: PLC0415
    from tunewright.triton.static.artifacts import install_into_triton_cache  # noqa: PLC0415
    from tunewright.triton.static.compile_worker import LaunchArguments  # noqa: PLC0415
    from tunewright.triton.static.kernels import unwrap_kernel  # noqa: PLC0415

    kernel = SUITE[3]
    triton.knobs.cache.dir = str(folder / "prebuilt triton")
    tuned = autotune(kernel.configs, kernel.key)(kernel.function)
    arguments = kernel.arguments(device.place)
    device.adopt(*arguments[:2])
    call = LaunchArguments(arguments, {})
    plan = builder.plan_prebuild(unwrap_kernel(tuned), call, [adapter.device().architecture], model=False)
    rows = list(builder.prebuild(plan, folder / "prebuilt", width=1))
    kept = [row for row in rows if row.keep]
    notes.figures |= {"compiled": len(kept), "configs": len(rows)}
    failed = [f"{row.config}: {'; '.join(row.reasons)}" for row in rows if not row.keep]
    if not notes.expect(len(kept) == len(kernel.configs), f"not all configs could be compiled: {failed}"):
        return
    install_into_triton_cache(builder.kept_artifacts(rows, folder / "prebuilt"))
    compiled: list[str] = []
    adapter.on_compile(compiled.append)
    tuned[kernel.grid](*arguments)
    mine = [name for name in compiled if name == kernel.name]
    notes.expect(not mine, f"{len(mine)} configs were compiled again, although their code is installed")
    right = bool(torch.allclose(arguments[1], kernel.expected(*arguments), atol=1e-2))
    notes.expect(right, "prebuilt code computes something else")


def check_truth(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Times all configs of five kernels, many times in turn, and compares the best with the choice."""
    clock = adapter.EventClock()
    for kernel in SUITE:
        arguments = kernel.arguments(device.place)
        device.adopt(*(each for each in arguments if isinstance(each, torch.Tensor)))
        tuned = autotune(kernel.configs, kernel.key)(kernel.function)
        tuned[kernel.grid](*arguments)
        chosen = tuned.best_config.all_kwargs()
        settings = [config.all_kwargs() for config in kernel.configs]

        def launch(options: dict[str, Any], kernel: Any = kernel, arguments: Any = arguments) -> Callable[[], Any]:
            return lambda: kernel.function[kernel.grid](*arguments, **options)

        samples = interleaved([sampler(clock, launch(options)) for options in settings], 15)
        times = medians(samples)
        regret = times[settings.index(chosen)] / min(times) - 1
        notes.samples |= {f"{kernel.name} {options}": each for options, each in zip(settings, samples, strict=True)}
        notes.figures[f"{kernel.name} regret"] = regret
        best = settings[times.index(min(times))]
        notes.expect(regret <= REGRET, f"{kernel.name}: {chosen} is {100 * regret:.0f} % slower than {best}")
