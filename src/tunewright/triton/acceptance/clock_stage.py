"""The stage `clock`: whether times of the device are right, ordered, repeatable and taken with flushed caches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import isfinite
from typing import Any

import torch

from tunewright.measure.race import RaceOptions, run_race
from tunewright.model.trial import median
from tunewright.triton import adapter
from tunewright.triton.acceptance.device import DeviceUnderTest
from tunewright.triton.acceptance.kernels import accept_read, accept_spin
from tunewright.triton.acceptance.notes import StageNotes
from tunewright.triton.acceptance.timing import interleaved, medians, sampler

TARGET_SECONDS = 2e-4
"""How long the spin takes that others are multiples of."""

MAX_TURNS = 1 << 26
SHORT_SECONDS = (8e-6, 1e-5, 1.25e-5, 1.6e-5)
"""Short kernels that must be told apart."""

WALL_SECONDS = 0.05
SLOPES, WALL, DRIFT, FLUSH = 1.15, 1.3, 0.1, 1.05
"""How far slopes, the host's clock and repeated samples may differ, and how much slower flushed caches must be."""

BUFFER = 1 << 20
"""Elements of a buffer that fits into the caches."""


def check_clock(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Checks the clock."""
    clock = adapter.EventClock()
    out, other = torch.zeros(1, device=device.place), torch.zeros(1, device=device.place)

    def spin(turns: int, result: Any = out) -> Callable[[], Any]:
        return lambda: accept_spin[(1,)](result, turns, WARPS=1, num_warps=1)

    turns = _turns(clock, spin, notes)
    if turns is None:
        return
    seconds = _check_slopes(clock, spin, turns, notes)
    _check_wall(device, clock, spin, turns, notes)
    _check_short(clock, spin, turns / seconds, notes)
    _check_equal(clock, [spin(turns, out), spin(turns, other)], notes)
    _check_drift(clock, spin(turns), notes)
    _check_flush(device, clock, notes)


def _turns(clock: adapter.EventClock, spin: Callable[[int], Callable[[], Any]], notes: StageNotes) -> int | None:
    """Returns how many turns take the target time; None if the clock is of no use."""
    turns = 256
    while turns <= MAX_TURNS:
        try:
            seconds = sampler(clock, spin(turns))()
        except ValueError as error:
            notes.expect(False, f"the clock is invalid: {error}")
            return None
        if seconds >= TARGET_SECONDS:
            return turns
        turns *= 2
    notes.expect(False, f"the clock does not advance: {MAX_TURNS:,} turns took less than {TARGET_SECONDS:g} s")
    return None


def _check_slopes(clock: adapter.EventClock, spin: Any, turns: int, notes: StageNotes) -> float:
    """Checks that time is proportional to work; returns the seconds of `turns`."""
    factors = (1, 2, 4, 8)
    times = medians(samples := interleaved([sampler(clock, spin(turns * factor)) for factor in factors], 9))
    notes.samples |= {f"spin x{factor}": each for factor, each in zip(factors, samples, strict=True)}
    if not notes.expect(all(map(isfinite, times)) and min(times) > 0, f"the clock measured {times} s"):
        return TARGET_SECONDS
    slopes = [(late - early) / (b - a) for (a, early), (b, late) in pairwise(zip(factors, times, strict=True))]
    notes.figures["slopes"] = [slope / times[0] for slope in slopes]
    is_linear = min(slopes) > 0 and max(slopes) / min(slopes) <= SLOPES
    notes.expect(is_linear, f"time is not proportional to work: spins of 1, 2, 4 and 8 units took {times} s")
    return times[0]


def _check_wall(device: DeviceUnderTest, clock: adapter.EventClock, spin: Any, turns: int, notes: StageNotes) -> None:
    """Compares the clock with the host's."""
    start, end = clock.event(), clock.event()
    long_spin = spin(int(turns * WALL_SECONDS / TARGET_SECONDS))
    long_spin()
    clock.wait()
    began = device.wall()
    start.record()
    long_spin()
    end.record()
    clock.wait()
    wall, seconds = device.wall() - began, start.elapsed_time(end) * 1e-3
    notes.figures["events over wall"] = seconds / wall if wall else None
    notes.expect(
        wall > 0 and 1 / WALL <= seconds / wall <= WALL,
        f"events say {seconds:.4g} s where the host's clock says {wall:.4g} s",
    )


def _check_short(clock: adapter.EventClock, spin: Any, turns_per_second: float, notes: StageNotes) -> None:
    """Checks that short kernels are ordered right."""
    kernels = [sampler(clock, spin(max(1, int(seconds * turns_per_second)))) for seconds in SHORT_SECONDS]
    times = medians(samples := interleaved(kernels, 15))
    notes.samples |= {f"short {1e6 * want:g} us": each for want, each in zip(SHORT_SECONDS, samples, strict=True)}
    notes.figures["short kernels us"] = [1e6 * seconds for seconds in times]
    is_ordered = all(early < late for early, late in pairwise(times))
    notes.expect(is_ordered, f"short kernels are not ordered by their work: {times} s")


def _check_equal(clock: adapter.EventClock, launches: list[Callable[[], Any]], notes: StageNotes) -> None:
    """Races a kernel against itself, three times: chance alone sees a difference about one time in fifty."""
    fooled = 0
    for seed in range(3):
        race = run_race(
            [sampler(clock, launch) for launch in launches],
            RaceOptions(margin=0.02, rounds=60, seconds=10, seed=seed),
        )
        fooled += len(race.ties) < len(launches)
    notes.figures["differences between equals"] = fooled
    notes.expect(fooled < 2, f"a kernel differs from itself in {fooled} of 3 races")


def _check_drift(clock: adapter.EventClock, launch: Callable[[], Any], notes: StageNotes) -> None:
    """Checks that the same work takes as long in the end as in the beginning."""
    take = sampler(clock, launch)
    samples = [take() for _ in range(60)]
    notes.samples["drift"] = samples
    drift = median(samples[-20:]) / median(samples[:20]) - 1
    spread = max(samples) / min(samples) - 1
    notes.figures |= {"drift": drift, "spread": spread}
    notes.expect(abs(drift) <= DRIFT, f"the device changed its speed by {100 * drift:.0f} % during a second")


def _check_flush(device: DeviceUnderTest, clock: adapter.EventClock, notes: StageNotes) -> None:
    """Checks that the flush of the caches makes a kernel slower that reads a small buffer."""
    x, out = torch.ones(BUFFER, device=device.place), torch.zeros(BUFFER // 1024, device=device.place)

    def read() -> Any:
        return accept_read[(BUFFER // 1024,)](x, out, BUFFER, BLOCK=1024, num_warps=4)

    def sample(*, flushed: bool) -> float:
        times = []
        for _ in range(20):
            read()  # now it is in the caches
            if flushed:
                clock.flush()
            start, end = clock.event(), clock.event()
            start.record()
            read()
            end.record()
            clock.wait()
            times.append(start.elapsed_time(end) * 1e-3)
        return median(times)

    hot, cold = (median([sample(flushed=flushed) for _ in range(5)]) for flushed in (False, True))
    notes.figures["flushed over cached"] = cold / hot if hot else None
    notes.expect(
        hot > 0 and cold / hot >= FLUSH, f"the flush has no effect: {cold:.3g} s after it, {hot:.3g} s without"
    )
