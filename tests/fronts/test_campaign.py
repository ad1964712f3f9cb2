import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import worked_time

from tunewright.cli.targets import kernel_at, sizes_of
from tunewright.errors import SettingsError, StoreError
from tunewright.fronts.campaign import plan as plans
from tunewright.fronts.campaign import ranking as ranks
from tunewright.fronts.campaign.driver import Driver, Here, Lost, Seat, slow_ones
from tunewright.fronts.campaign.ledger import Ledger, Quarantined, Standing
from tunewright.fronts.campaign.metrics import exposition
from tunewright.fronts.campaign.plan import Item
from tunewright.fronts.campaign.ranking import Ranking
from tunewright.fronts.campaign.work import Order, Outcome
from tunewright.fronts.campaign.worth import GUESS, Worth
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.sharing.records import Want
from tunewright.stores import places
from tunewright.stores.memory import MemoryStore

KERNELS = Path(__file__).parent.parent / "kernels"


def campaign(folder, *, budget="40", portion=8, settings='pool = "serial"', kernels="", devices='["here"]') -> Path:
    kernels = kernels or f'[[kernels]]\ntarget = "{KERNELS / "sleepy.py"}:sleepy"\ncalls = 100\n'
    file = folder / "campaign.toml"
    file.write_text(
        f'name = "test"\nbudget = "{budget}"\nportion = {portion}\ndevices = {devices}\n{kernels}'
        f'[settings]\nstore = "{folder / "store.sqlite"}"\n{settings}\n'
    )
    return file


def read(file) -> plans.Plan:
    return plans.read(file, kernel_at, sizes_of)


def ledger_of(plan) -> Ledger:
    return Ledger(places.truth(plan.settings["store"]), plan)


class Notes:
    """Whoever looks on, and only writes down how portions ended."""

    def __init__(self, told) -> None:
        self.told, self.gave = told, lambda seat, order: None

    def took(self, standing, outcome) -> None:
        self.told.append((standing, outcome))


def drive(plan, seats=None) -> tuple[Ledger, list]:
    ledger, told = ledger_of(plan), []
    ledger.recover()
    Driver(plan, ledger, seats or Here(), Notes(told)).run()
    return ledger, told


@pytest.fixture
def simulated(by_work, monkeypatch):
    """The kernels that are tuned here take CPU time that passes whenever they look at it."""

    def looked():
        worked_time.pause(1e-4)
        return worked_time.now()

    monkeypatch.setattr(time, "thread_time", looked)


class Scripted:
    """Seats that answer by a rule, and count what they were given."""

    def __init__(self, answer, count=1, paces=None) -> None:
        self.answer, self.seats, self._paces = answer, [Seat(f"seat {i}", "here") for i in range(count)], paces or {}
        self.busy: dict[Seat, Order] = {}
        self.given: list[Order] = []

    def free(self):
        return [seat for seat in self.seats if seat not in self.busy]

    def give(self, seat, order):
        self.given.append(order)
        self.busy[seat] = order

    def results(self):
        seat, order = next(iter(self.busy.items()))
        del self.busy[seat]
        yield order.item, self.answer(order)

    def paces(self, order):
        return {seat: self._paces[seat.name] for seat in self.seats if seat.name in self._paces}

    def close(self):
        self.busy.clear()


def test_items_are_kernels_by_shapes_by_devices(tmp_path) -> None:
    plan = read(campaign(tmp_path, devices='["A", "B"]'))
    assert [item.name for item in plan.items] == [f"sleepy N={n} @ {kind}" for n in (10, 20) for kind in "AB"]
    assert {item.calls for item in plan.items} == {100}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kernels": "kernels = []\n"}, "names no kernel"),
        ({"kernels": "colour = 3\nkernels = []\n"}, "colour"),
        ({"portion": 0}, "at least one trial"),
        ({"budget": "soon"}, "budget"),
    ],
)
def test_a_file_that_makes_no_sense_says_why(tmp_path, given, said) -> None:
    with pytest.raises(SettingsError, match=said):
        read(campaign(tmp_path, **given))


def test_a_campaign_tunes_all_items_within_its_budget(tmp_path, simulated) -> None:
    ledger, _ = drive(read(campaign(tmp_path)))
    assert {standing.state for standing in ledger.standings.values()} <= {"begun", "done"}
    assert 16 <= ledger.tried <= 40
    assert all(standing.gain > 2 for standing in ledger.standings.values())


def test_what_is_finished_is_not_begun_again(tmp_path, simulated) -> None:
    file = campaign(tmp_path, budget="200", portion=64)
    first, told = drive(read(file))
    assert {standing.state for standing in first.standings.values()} == {"done"}
    assert told
    again, told = drive(read(file))
    assert told == []
    assert again.tried == first.tried


def test_a_kernel_that_never_works_fails_alone(tmp_path, simulated) -> None:
    kernels = "".join(f'[[kernels]]\ntarget = "{KERNELS / "sleepy.py"}:{name}"\n' for name in ("broken", "settled"))
    ledger, _ = drive(read(campaign(tmp_path, kernels=kernels)))
    states = {standing.item.kernel: standing for standing in ledger.standings.values()}
    assert states["broken"].state == "failed"
    assert "never works" in states["broken"].failed
    assert states["settled"].tried > 0


def test_the_budget_in_seconds_holds(tmp_path) -> None:
    seats = Scripted(lambda order: Outcome("x", tried=order.trials, seconds=3.0, gain=2.0, remains=0.5))
    ledger, _ = drive(read(campaign(tmp_path, budget="10s", portion=4)), seats)
    assert [order.seconds for order in seats.given] == [10.0, 7.0, 4.0, 1.0]
    assert (ledger.seconds, ledger.tried) == (12.0, 16)


def test_time_goes_where_it_pays(tmp_path) -> None:
    plan = read(campaign(tmp_path, budget="80", portion=8))
    gains = {10: 1.0, 20: 4.0}

    def answer(order):
        size = order.item.sizes["N"]
        left = {10: 0.02, 20: 0.5}[size]
        return Outcome("x", tried=order.trials, seconds=1, gain=gains[size], default_seconds=1e-3, remains=left)

    seats = Scripted(answer)
    drive(plan, seats)
    count = Counter(order.item.sizes["N"] for order in seats.given)
    assert sum(order.trials for order in seats.given) == 80
    assert count[20] > count[10] >= 1


def test_calls_decide_between_alike_items() -> None:
    often, rarely = (Standing(Item("t", "k", {"N": n}, "here", calls)) for n, calls in ((1, 1000.0), (2, 1.0)))
    worth = Worth([often, rarely], {})
    assert worth.of(often) == pytest.approx(1000 * worth.of(rarely))
    assert worth.expected(often) == pytest.approx(GUESS)


def test_what_one_item_gained_is_expected_of_its_kin() -> None:
    fast = Standing(Item("t", "fast", {"N": 1}, "A"), portions=1, tried=8, gain=10.0, default_seconds=1e-3)
    idle = Standing(Item("t", "idle", {"N": 1}, "A"), portions=1, tried=8, gain=1.0, default_seconds=1e-3)
    kin = [Standing(Item("t", name, {"N": 2}, "B")) for name in ("fast", "idle")]
    worth = Worth([fast, idle, *kin], {})
    assert worth.expected(kin[0]) > 2 * worth.expected(kin[1])


def test_seconds_that_programs_recorded_are_the_stake(tmp_path) -> None:
    plan = read(campaign(tmp_path))
    store = MemoryStore()
    key = Key("sleepy", "s", Signature(("f",), {"N": 20}), Device("v", "m", "a"), {}, {})
    store.want([Want(key, 7, 123.0)])
    ledger = Ledger(store, plan)
    worth = Worth(ledger.standings.values(), ledger.stakes())
    assert [worth.stake(standing) for standing in ledger.standings.values()] == [pytest.approx(0.1), 123.0]


def test_a_lost_machine_costs_its_portion_and_no_item(tmp_path) -> None:
    plan, lost = read(campaign(tmp_path, budget="32", portion=8)), []

    def answer(order):
        if len(lost) < 3:
            lost.append(order.item.name)
            return Lost("the node died")
        return Outcome("x", tried=order.trials, seconds=1, gain=2.0, default_seconds=1e-3, remains=0.4)

    ledger, _ = drive(plan, Scripted(answer, count=2))
    assert ledger.tried == 32
    assert sum(standing.lost for standing in ledger.standings.values()) == 3
    assert not any(standing.failed for standing in ledger.standings.values())


def test_an_item_that_takes_machine_after_machine_with_it_is_given_up(tmp_path) -> None:
    ledger, _ = drive(read(campaign(tmp_path)), Scripted(lambda order: Lost("gone")))
    assert all("machines in a row" in standing.failed for standing in ledger.standings.values())


def test_an_item_that_was_given_up_with_its_machines_gets_another_chance_when_one_goes_on(tmp_path) -> None:
    plan = read(campaign(tmp_path))
    drive(plan, Scripted(lambda order: Lost("gone")))
    ledger, _ = drive(plan, Scripted(lambda order: Outcome("x", tried=order.trials, remains=0.0)))
    assert {standing.state for standing in ledger.standings.values()} == {"done"}


def test_a_slow_device_is_quarantined_and_said(tmp_path) -> None:
    seats = Scripted(
        lambda order: Outcome("x", tried=order.trials, remains=0.0), 3, {"seat 0": 1.0, "seat 1": 1.05, "seat 2": 2.0}
    )
    plan = read(campaign(tmp_path))
    taken = []
    seats.give, give = lambda seat, order: (taken.append(seat.name), give(seat, order)), seats.give
    ledger, _ = drive(plan, seats)
    assert set(taken) == {"seat 0", "seat 1"}
    assert [one.where for one in ledger_of(plan).quarantined] == ["seat 2"]
    assert "1.90x as long" in ledger.quarantined[0].said


def test_of_two_devices_nobody_can_say_which_is_slow() -> None:
    assert slow_ones({Seat("a", "A"): 1.0, Seat("b", "A"): 9.0}) == []


def test_a_store_without_shelves_is_refused(tmp_path) -> None:
    with pytest.raises(StoreError, match="SQLite"):
        Ledger(object(), read(campaign(tmp_path)))


def test_a_standing_that_cannot_be_read_begins_anew(tmp_path, caplog) -> None:
    plan, store = read(campaign(tmp_path)), MemoryStore()
    store.keep("campaign test", plan.items[0].name, b"{}")
    assert Ledger(store, plan).standings[plan.items[0].name] == Standing(plan.items[0])
    assert "begins anew" in caplog.text


def command(*args) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tunewright", "campaign", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


GATED = """
import time
from pathlib import Path

import tunewright as tw

HERE = Path(__file__).parent


@tw.tune(tw.Space(tw.Knob("step", range(32))), shapes=[{"N": 10}, {"N": 20}])
def gated(x: tw.In("N"), *, step: int):
    seen = HERE / "seen" / f"{len(x)}-{step}"
    while not seen.exists() and len(list(seen.parent.iterdir())) >= int((HERE / "allowed").read_text()):
        time.sleep(0.01)
    seen.touch()
    return 1
"""


@pytest.mark.slow
def test_a_killed_campaign_goes_on_and_repeats_nothing(tmp_path, wait_until) -> None:
    """Its kernel waits at a gate after some configs, so that each kill finds it at work."""
    (tmp_path / "gated.py").write_text(GATED)
    (tmp_path / "seen").mkdir()
    kernels = f'[[kernels]]\ntarget = "{tmp_path / "gated.py"}:gated"\n'
    settings = 'pool = "process:2"\nrun_seconds = 600'
    file = campaign(tmp_path, budget="64", portion=16, settings=settings, kernels=kernels)
    store = places.truth(str(tmp_path / "store.sqlite"))
    for goal in (6, 22, 40):
        (tmp_path / "allowed").write_text(f"{goal + 4}")  # two workers may hold one each that a kill takes back
        running = command("resume" if goal > 6 else "run", file)
        wait_until(lambda: len(trials_in(store)) >= goal, f"{goal} trials", seconds=300)  # noqa: B023 - waited for here
        assert running.poll() is None
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
    acknowledged = trials_in(store)
    (tmp_path / "allowed").write_text("64")
    done = command("resume", file, "--json")
    out, err = done.communicate(timeout=600)
    assert done.returncode == 0, err
    told = msgspec.json.decode(out)
    after = trials_in(store)
    assert set(acknowledged) <= set(after)
    assert max(Counter(after).values()) == 1, "a trial was made twice"
    assert told["waiting"] == 0
    assert told["trials"] == len(after) <= 64


def trials_in(store) -> list:
    return [(key.digest, trial.config) for key in list(store.keys()) for trial in store.trials(key)]


def many(count) -> dict[str, Standing]:
    items = [Item("t", "k", {"N": n}, "A" if n % 2 else "B", calls=1 + n) for n in range(count)]
    return {item.name: Standing(item) for item in items}


@pytest.fixture
def ticking(monkeypatch):
    """The time it takes to rank goes on by a second whenever it is asked: items are not ranked again for a while."""
    ticks = count()
    monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))


def test_the_most_worthy_item_of_the_devices_kind_comes_first_and_only_once(ticking) -> None:
    standings = many(6)
    ranking = Ranking(standings, {})
    chosen = [ranking.next("A", lambda standing: True) for _ in range(4)]
    assert [item and item.sizes["N"] for item in chosen] == [5, 3, 1, None]
    ranking.put_back(standings[chosen[1].name])
    assert ranking.next("A", lambda standing: True) == chosen[1]
    assert ranking.next("B", lambda standing: standing.item.sizes["N"] < 4).sizes["N"] == 2


def test_what_items_teach_about_others_changes_the_ranking(monkeypatch) -> None:
    monkeypatch.setattr("tunewright.fronts.campaign.ranking.SHARE", 1e9)  # always anew
    idle, fast = (Item("t", kernel, {"N": 1}, "A", calls=1000) for kernel in ("idle", "fast"))
    more = [Item("t", kernel, {"N": n}, "A") for kernel in ("idle", "fast") for n in (2, 3)]
    standings = {item.name: Standing(item) for item in (idle, fast, *more)}
    ranking = Ranking(standings, {})
    assert ranking.next("A", lambda standing: standing.item.calls == 1).kernel == "fast"  # by name, since all are level
    known = {"portions": 1, "default_seconds": 1e-3, "ended": True}
    standings[fast.name] = Standing(fast, gain=1.0, **known)
    standings[idle.name] = Standing(idle, gain=4.0, **known)
    assert ranking.next("A", lambda standing: standing.item.calls == 1).kernel == "idle"


def test_choosing_among_ten_thousand_items_does_not_look_at_all_of_them(ticking, monkeypatch) -> None:
    weighed, looked_at = [], []
    usual = Worth.of
    monkeypatch.setattr(Worth, "of", lambda worth, standing: weighed.append(standing) or usual(worth, standing))
    ranking = Ranking(many(10_000), {})
    chosen = [ranking.next("A", lambda standing: looked_at.append(standing) or True) for _ in range(40)]
    assert len(weighed) == 10_000  # once, before the first choice
    assert len(looked_at) == len({item.name for item in chosen}) == 40


def test_metrics_are_what_prometheus_reads(tmp_path, simulated) -> None:
    ledger, _ = drive(read(campaign(tmp_path, budget="16")))
    ledger.quarantine([Quarantined('a "machine"\n', "A100", 3.0, 1.5, 0.0)])
    text = exposition(ledger)
    assert f'tunewright_campaign_trials_total{{campaign="test",kernel="sleepy",device="here"}} {ledger.tried}\n' in text
    assert 'tunewright_campaign_slow_device_ratio{campaign="test",where="a \\"machine\\"\\n",device="A100"} 2\n' in text
    names = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    typed = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert list(dict.fromkeys(names)) == typed
