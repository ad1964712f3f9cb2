"""Conditions of this machine as it is, and of machines made up in a file, where the truth is known."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from tunewright.measure import noise as quiet
from tunewright.measure.noise import ConditionsMonitor, noise_floor
from tunewright.measure.race import RaceOptions, run_race
from tunewright.model.conditions import Conditions
from tunewright.stores import serialization

CORES = os.cpu_count() or 1
needs_proc = pytest.mark.skipif(not quiet._STAT.exists(), reason="this system has no /proc/stat")

SPIN = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
print("spinning", flush=True)
while time.monotonic() < end:
    pass
"""


@contextmanager
def neighbours(count, seconds=60):
    """Other programs that want a processor each; they end by themselves if nobody ends them."""
    command = [sys.executable, "-c", SPIN, str(seconds)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout.readline() == b"spinning\n"
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def stat(user, idle, steal, running, cores=2):
    """What /proc/stat would say."""
    each = "".join(f"cpu{i} 0 0 0 0 0 0 0 0 0 0\n" for i in range(cores))
    return f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\n{each}intr 5 0\nctxt 9\nprocs_running {running}\nsoftirq 1 2\n"


def watched(monkeypatch, tmp_path, before, after, pace=()):
    """Conditions between two states of a made-up machine."""
    file = tmp_path / "stat"
    monkeypatch.setattr(quiet, "_STAT", file)
    if before is not None:
        file.write_text(before)
    watch = ConditionsMonitor()
    time.sleep(quiet.MIN_WATCH_SECONDS)
    if after is not None:
        file.write_text(after)
    return watch.stop(pace)


def test_shares_are_of_the_time_of_all_processors(monkeypatch, tmp_path) -> None:
    seen = watched(monkeypatch, tmp_path, stat(1000, 500, 7, 3), stat(1480, 1000, 27, 2))
    assert seen.seconds >= quiet.MIN_WATCH_SECONDS
    assert seen.busy == pytest.approx(0.48, abs=0.02)  # less what this process used meanwhile
    assert seen.steal == 0.02
    assert seen.load == 0.75  # two beside us at first, one in the end, on two processors


@pytest.mark.parametrize("text", [None, "", "cpu  1 2 3\n", "cpu  a b\n", stat(0, 0, 0, 1, cores=0), "Ärger"])
def test_where_the_system_says_nothing_nothing_is_claimed(monkeypatch, tmp_path, text) -> None:
    seen = watched(monkeypatch, tmp_path, text, text)
    assert (seen.busy, seen.steal, seen.load) == (0, 0, 0)
    assert seen.seconds > 0


def test_counters_that_step_back_or_stand_still_are_no_shares(monkeypatch, tmp_path) -> None:
    back = watched(monkeypatch, tmp_path, stat(100, 100, 50, 1), stat(100, 300, 40, 1))
    assert (back.busy, back.steal, back.load) == (0, 0, 0)
    still = watched(monkeypatch, tmp_path, stat(100, 100, 50, 1), stat(100, 100, 50, 1))
    assert (still.busy, still.steal) == (0, 0)


def test_a_moment_is_too_short_for_the_counters_but_not_for_the_pace(monkeypatch) -> None:
    monkeypatch.setattr(quiet, "MIN_WATCH_SECONDS", 60.0)
    seen = ConditionsMonitor().stop([1.0] * 10 + [1.5] * 10)
    assert seen.seconds < 60
    assert (seen.busy, seen.steal, seen.load, seen.switches) == (0, 0, 0, 0)
    assert seen.drift == 0.5


def pace_of(*parts):
    """Rounds at each pace in turn, with a little noise."""
    rng = np.random.default_rng(0)
    return [slow * float(np.exp(rng.normal(0, 0.005))) for slow, count in parts for _ in range(count)]


def paced(pace):
    """What the pace alone shows."""
    seen = ConditionsMonitor().stop(pace)
    return Conditions(drift=seen.drift, throttled=seen.throttled)


@pytest.mark.parametrize("at", range(6))
def test_one_outlier_is_neither_drift_nor_throttling(at) -> None:
    for strange in (0.1, 50.0):
        pace = [1.0] * 6
        pace[at] = strange
        seen = paced(pace)
        assert (seen.drift, seen.throttled) == (0, 0)
        assert seen.complaints() == []


def test_a_warming_machine_drifts() -> None:
    seen = paced(list(np.linspace(1.0, 1.3, 60)))
    assert seen.drift == pytest.approx(0.19, abs=0.03)
    assert "% longer at the end" in seen.complaints()[0]
    assert paced(list(np.linspace(1.3, 1.0, 60))).drift == pytest.approx(-0.16, abs=0.03)


def test_a_processor_of_two_speeds_is_throttled_by_the_share_of_slow_rounds() -> None:
    seen = paced(pace_of((1.0, 30), (1.8, 20), (1.0, 30)))
    assert abs(seen.drift) < 0.02
    assert seen.throttled == pytest.approx(20 / 80, abs=0.03)
    assert seen.complaints() == [
        f"the processor's speed changed: {100 * seen.throttled:.0f} % of the rounds ran slower than its best"
    ]


def test_noise_alone_is_no_change_of_speed() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert paced(list(np.exp(rng.normal(0, 0.03, 200)))).complaints() == []


def test_no_pace_or_a_short_one_says_nothing() -> None:
    for pace in ((), [1.0], [1.0, 2.0, 3.0, 4.0, 5.0], [0.0] * 9):
        seen = paced(pace)
        assert (seen.drift, seen.throttled) == (0, 0)


def test_people_are_told_what_matters_and_nothing_else() -> None:
    assert Conditions(seconds=9, load=0.4, steal=0.001, busy=0.21, switches=14, drift=0.003).complaints() == []
    said = Conditions(seconds=9, load=1.5, steal=0.06, busy=0.48, switches=140, drift=-0.31, throttled=0.5).complaints()
    assert said == [
        "other programs used 48 % of the processors",
        "as many other programs were ready to run as there are processors",
        "the hypervisor took 6 % of the time",
        "it was interrupted 140 times a second",
        "the processor's speed changed: the same work took 31 % less time at the end",
    ]


def test_conditions_travel_as_short_text() -> None:
    seen = ConditionsMonitor().stop([1.0] * 3 + [1.1234567] * 3)
    assert serialization.decode(serialization.encode(seen), Conditions) == seen
    assert len(serialization.encode(seen)) < 60
    assert serialization.encode(Conditions()) == b"{}"


@pytest.mark.clock("the quickest of 30 looks takes less than 1 ms; 40 us were measured")
def test_to_look_costs_next_to_nothing() -> None:
    costs = []
    for _ in range(30):
        began = time.perf_counter()
        quiet._read()
        costs.append(time.perf_counter() - began)
    assert min(costs) < 1e-3  # large machines have longer files


@needs_proc
@pytest.mark.clock("the share that others use is right within 0.15 of all processors over 0.7 s")
def test_what_we_use_ourselves_is_not_the_others() -> None:
    numbers = np.ones(200_000)

    def work(until):
        out = np.empty_like(numbers)
        while time.monotonic() < until:
            np.sqrt(numbers, out=out)  # lets other threads run meanwhile

    with ThreadPoolExecutor(CORES) as threads:
        watch, began = ConditionsMonitor(), time.process_time()
        list(threads.map(work, [time.monotonic() + 0.7] * CORES))
        seen, own = watch.stop(), time.process_time() - began
    # With our own counted twice this would be about 1 more.
    assert seen.busy <= 1 - own / (seen.seconds * CORES) + 0.15


@needs_proc
@pytest.mark.clock("neighbors that want every processor for 1.5 s are seen to use more than 0.4 of them")
def test_busy_neighbours_are_seen_and_complained_about() -> None:
    with neighbours(CORES):
        watch, until = ConditionsMonitor(), time.monotonic() + 1.5
        while time.monotonic() < until:
            pass
        seen = watch.stop()
    # One of CORES + 1 programs that share CORES processors fairly: whoever else is here makes it worse.
    assert seen.busy > 0.4
    assert seen.load > 0.4
    assert seen.switches > 0
    assert any("other programs used" in sentence for sentence in seen.complaints())


def test_the_floor_is_a_race_of_equals_that_tells_what_could_be_told() -> None:
    for clock in ("cpu", "wall"):
        race = noise_floor(0.5, clock)
        assert len(race.standings) == 2
        assert 0 < (race.resolution or 1.0) <= 1
        if len(race.ties) == 2:  # noise may win, rarely
            other = race.standings[1 - race.leader]
            assert other.low <= 1 <= other.high
            assert not race.settled


def test_the_floor_takes_as_long_as_it_is_given(monkeypatch) -> None:
    given = []
    monkeypatch.setattr(quiet, "run_race", lambda visits, terms: given.append(terms))
    noise_floor(0.5)
    assert [(terms.seconds, terms.margin) for terms in given] == [(0.5, 0.0)]


def noisy(noise, rounds):
    """A race of one thing against itself in made-up noise."""
    rng = np.random.default_rng(0)

    def visit():
        return 1e-3 * float(np.exp(rng.normal(0, noise)))

    return run_race([visit, visit], RaceOptions(margin=0.0, rounds=rounds))


def test_noise_hides_and_patience_reveals() -> None:
    assert (noisy(0.10, 100).resolution or 1.0) > 5 * (noisy(0.01, 100).resolution or 1.0)
    assert (noisy(0.05, 50).resolution or 1.0) > 2 * (noisy(0.05, 800).resolution or 1.0)
    assert (noisy(0.01, 3).resolution or 1.0) == 1


def test_a_difference_beyond_the_resolution_is_told_and_one_far_below_is_not() -> None:
    hidden = noisy(0.03, 100).resolution or 1.0
    told = {}
    for apart in (0.1, 3):
        found = 0
        for seed in range(20):
            rng = np.random.default_rng(seed)
            visits = [lambda t=t, rng=rng: t * float(np.exp(rng.normal(0, 0.03))) for t in (1.0, 1 + apart * hidden)]
            found += run_race(visits, RaceOptions(margin=0.0, rounds=100, seed=seed)).ties == [0]
        told[apart] = found
    assert told[3] >= 19
    assert told[0.1] <= 2
