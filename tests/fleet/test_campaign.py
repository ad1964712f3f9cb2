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
from tunewright.cli.targets import load_kernel, resolve_sizes
from tunewright.errors import SettingsError, StoreError
from tunewright.fleet.campaign import plan as plans
from tunewright.fleet.campaign import ranking as ranks
from tunewright.fleet.campaign.expected_gain import PRIOR_SHARE, ExpectedGain
from tunewright.fleet.campaign.ledger import CampaignLedger, ItemState, SlowDevice
from tunewright.fleet.campaign.metrics import exposition
from tunewright.fleet.campaign.plan import CampaignItem
from tunewright.fleet.campaign.portion import PortionRequest, PortionResult
from tunewright.fleet.campaign.ranking import ItemRanking
from tunewright.fleet.campaign.scheduler import (
    CampaignDevice,
    CampaignScheduler,
    LocalDevice,
    MachineLost,
    find_slow_devices,
)
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.stores import locations
from tunewright.stores.memory import MemoryStore
from tunewright.stores.statistics import MissRecord

KERNELS = Path(__file__).parent.parent / "kernels"


def campaign(folder, *, budget="40", portion=8, settings='pool = "serial"', kernels="", devices='["here"]') -> Path:
    kernels = kernels or f'[[kernels]]\ntarget = "{KERNELS / "sleepy.py"}:sleepy"\ncalls = 100\n'
    file = folder / "campaign.toml"
    file.write_text(
        f'name = "test"\nbudget = "{budget}"\nportion = {portion}\ndevices = {devices}\n{kernels}'
        f'[settings]\nstore = "{folder / "store.sqlite"}"\n{settings}\n'
    )
    return file


def read(file) -> plans.CampaignPlan:
    return plans.read_plan(file, load_kernel, resolve_sizes)


def ledger_of(plan) -> CampaignLedger:
    return CampaignLedger(locations.open_authoritative(plan.settings["store"]), plan)


class Recorder:
    """An observer that records how portions ended."""

    def __init__(self, results) -> None:
        self.results, self.portion_started = results, lambda device, request: None

    def portion_finished(self, state, result) -> None:
        self.results.append((state, result))


def drive(plan, devices=None) -> tuple[CampaignLedger, list]:
    ledger, results = ledger_of(plan), []
    ledger.recover()
    CampaignScheduler(plan, ledger, devices or LocalDevice(), Recorder(results)).run()
    return ledger, results


@pytest.fixture
def simulated(by_work, monkeypatch):
    """The kernels that are tuned here take CPU time that passes whenever they look at it."""

    def looked():
        worked_time.pause(1e-4)
        return worked_time.now()

    monkeypatch.setattr(time, "thread_time", looked)


class Scripted:
    """Devices that answer by a rule, and record their requests."""

    def __init__(self, answer, count=1, seconds=None) -> None:
        self.answer, self._seconds = answer, seconds or {}
        self.devices = [CampaignDevice(f"device {i}", "here") for i in range(count)]
        self.busy: dict[CampaignDevice, PortionRequest] = {}
        self.requests: list[PortionRequest] = []

    def free(self):
        return [device for device in self.devices if device not in self.busy]

    def submit(self, device, request):
        self.requests.append(request)
        self.busy[device] = request

    def results(self):
        device, request = next(iter(self.busy.items()))
        del self.busy[device]
        yield request.item, self.answer(request)

    def time_defaults(self, request):
        return {device: self._seconds[device.name] for device in self.devices if device.name in self._seconds}

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
    assert {state.status for state in ledger.states.values()} <= {"begun", "done"}
    assert 16 <= ledger.tried <= 40
    assert all(state.gain > 2 for state in ledger.states.values())


def test_what_is_finished_is_not_begun_again(tmp_path, simulated) -> None:
    file = campaign(tmp_path, budget="200", portion=64)
    first, told = drive(read(file))
    assert {state.status for state in first.states.values()} == {"done"}
    assert told
    again, told = drive(read(file))
    assert told == []
    assert again.tried == first.tried


def test_a_kernel_that_never_works_fails_alone(tmp_path, simulated) -> None:
    kernels = "".join(f'[[kernels]]\ntarget = "{KERNELS / "sleepy.py"}:{name}"\n' for name in ("broken", "settled"))
    ledger, _ = drive(read(campaign(tmp_path, kernels=kernels)))
    states = {state.item.kernel: state for state in ledger.states.values()}
    assert states["broken"].status == "failed"
    assert "never works" in states["broken"].failed
    assert states["settled"].tried > 0


def test_the_budget_in_seconds_holds(tmp_path) -> None:
    devices = Scripted(lambda request: PortionResult("x", tried=request.trials, seconds=3.0, gain=2.0, remains=0.5))
    ledger, _ = drive(read(campaign(tmp_path, budget="10s", portion=4)), devices)
    assert [request.seconds for request in devices.requests] == [10.0, 7.0, 4.0, 1.0]
    assert (ledger.seconds, ledger.tried) == (12.0, 16)


def test_time_goes_where_it_pays(tmp_path) -> None:
    plan = read(campaign(tmp_path, budget="80", portion=8))
    gains = {10: 1.0, 20: 4.0}

    def answer(request):
        size = request.item.sizes["N"]
        left = {10: 0.02, 20: 0.5}[size]
        return PortionResult("x", tried=request.trials, seconds=1, gain=gains[size], default_seconds=1e-3, remains=left)

    devices = Scripted(answer)
    drive(plan, devices)
    count = Counter(request.item.sizes["N"] for request in devices.requests)
    assert sum(request.trials for request in devices.requests) == 80
    assert count[20] > count[10] >= 1


def test_calls_decide_between_alike_items() -> None:
    often, rarely = (ItemState(CampaignItem("t", "k", {"N": n}, "here", calls)) for n, calls in ((1, 1000.0), (2, 1.0)))
    gain = ExpectedGain([often, rarely], {})
    assert gain.seconds(often) == pytest.approx(1000 * gain.seconds(rarely))
    assert gain.share(often) == pytest.approx(PRIOR_SHARE)


def test_what_one_item_gained_is_expected_of_its_kin() -> None:
    fast = ItemState(CampaignItem("t", "fast", {"N": 1}, "A"), portions=1, tried=8, gain=10.0, default_seconds=1e-3)
    idle = ItemState(CampaignItem("t", "idle", {"N": 1}, "A"), portions=1, tried=8, gain=1.0, default_seconds=1e-3)
    kin = [ItemState(CampaignItem("t", name, {"N": 2}, "B")) for name in ("fast", "idle")]
    gain = ExpectedGain([fast, idle, *kin], {})
    assert gain.share(kin[0]) > 2 * gain.share(kin[1])


def test_seconds_that_programs_recorded_are_the_stake(tmp_path) -> None:
    plan = read(campaign(tmp_path))
    store = MemoryStore()
    key = Key("sleepy", "s", Signature(("f",), {"N": 20}), Device("v", "m", "a"), {}, {})
    store.record_misses([MissRecord(key, 7, 123.0)])
    ledger = CampaignLedger(store, plan)
    gain = ExpectedGain(ledger.states.values(), ledger.recorded_seconds())
    assert [gain.seconds_at_stake(state) for state in ledger.states.values()] == [pytest.approx(0.1), 123.0]


def test_a_lost_machine_costs_its_portion_and_no_item(tmp_path) -> None:
    plan, lost = read(campaign(tmp_path, budget="32", portion=8)), []

    def answer(request):
        if len(lost) < 3:
            lost.append(request.item.name)
            return MachineLost("the node died")
        return PortionResult("x", tried=request.trials, seconds=1, gain=2.0, default_seconds=1e-3, remains=0.4)

    ledger, _ = drive(plan, Scripted(answer, count=2))
    assert ledger.tried == 32
    assert sum(state.lost for state in ledger.states.values()) == 3
    assert not any(state.failed for state in ledger.states.values())


def test_an_item_that_takes_machine_after_machine_with_it_is_given_up(tmp_path) -> None:
    ledger, _ = drive(read(campaign(tmp_path)), Scripted(lambda request: MachineLost("gone")))
    assert all("machines in a row" in state.failed for state in ledger.states.values())


def test_an_item_that_was_given_up_with_its_machines_gets_another_chance_when_one_goes_on(tmp_path) -> None:
    plan = read(campaign(tmp_path))
    drive(plan, Scripted(lambda request: MachineLost("gone")))
    ledger, _ = drive(plan, Scripted(lambda request: PortionResult("x", tried=request.trials, remains=0.0)))
    assert {state.status for state in ledger.states.values()} == {"done"}


def test_a_slow_device_is_quarantined_and_said(tmp_path) -> None:
    devices = Scripted(
        lambda request: PortionResult("x", tried=request.trials, remains=0.0),
        3,
        {"device 0": 1.0, "device 1": 1.05, "device 2": 2.0},
    )
    plan = read(campaign(tmp_path))
    used = []
    devices.submit, submit = lambda device, request: (used.append(device.name), submit(device, request)), devices.submit
    ledger, _ = drive(plan, devices)
    assert set(used) == {"device 0", "device 1"}
    assert [device.where for device in ledger_of(plan).quarantined] == ["device 2"]
    assert "1.90x as long" in str(ledger.quarantined[0])


def test_of_two_devices_nobody_can_say_which_is_slow() -> None:
    assert find_slow_devices({CampaignDevice("a", "A"): 1.0, CampaignDevice("b", "A"): 9.0}) == []


def test_a_store_without_shelves_is_refused(tmp_path) -> None:
    with pytest.raises(StoreError, match="SQLite"):
        CampaignLedger(object(), read(campaign(tmp_path)))


def test_a_standing_that_cannot_be_read_begins_anew(tmp_path, caplog) -> None:
    plan, store = read(campaign(tmp_path)), MemoryStore()
    store.keep("campaign test", plan.items[0].name, b"{}")
    assert CampaignLedger(store, plan).states[plan.items[0].name] == ItemState(plan.items[0])
    assert "begins anew" in caplog.text


def command(*args) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tunewright", "fleet", *map(str, args)],
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
    store = locations.open_authoritative(str(tmp_path / "store.sqlite"))
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


def many(count) -> dict[str, ItemState]:
    items = [CampaignItem("t", "k", {"N": n}, "A" if n % 2 else "B", calls=1 + n) for n in range(count)]
    return {item.name: ItemState(item) for item in items}


@pytest.fixture
def ticking(monkeypatch):
    """The time it takes to rank goes on by a second whenever it is asked: items are not ranked again for a while."""
    ticks = count()
    monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))


def test_the_most_worthy_item_of_the_devices_kind_comes_first_and_only_once(ticking) -> None:
    states = many(6)
    ranking = ItemRanking(states, {})
    chosen = [ranking.pop("A", lambda state: True) for _ in range(4)]
    assert [item and item.sizes["N"] for item in chosen] == [5, 3, 1, None]
    ranking.push(states[chosen[1].name])
    assert ranking.pop("A", lambda state: True) == chosen[1]
    assert ranking.pop("B", lambda state: state.item.sizes["N"] < 4).sizes["N"] == 2


def test_what_items_teach_about_others_changes_the_ranking(monkeypatch) -> None:
    monkeypatch.setattr("tunewright.fleet.campaign.ranking.RANKING_SHARE", 1e9)  # always anew
    idle, fast = (CampaignItem("t", kernel, {"N": 1}, "A", calls=1000) for kernel in ("idle", "fast"))
    more = [CampaignItem("t", kernel, {"N": n}, "A") for kernel in ("idle", "fast") for n in (2, 3)]
    states = {item.name: ItemState(item) for item in (idle, fast, *more)}
    ranking = ItemRanking(states, {})
    assert ranking.pop("A", lambda state: state.item.calls == 1).kernel == "fast"  # by name, since all are level
    known = {"portions": 1, "default_seconds": 1e-3, "ended": True}
    states[fast.name] = ItemState(fast, gain=1.0, **known)
    states[idle.name] = ItemState(idle, gain=4.0, **known)
    assert ranking.pop("A", lambda state: state.item.calls == 1).kernel == "idle"


def test_choosing_among_ten_thousand_items_does_not_look_at_all_of_them(ticking, monkeypatch) -> None:
    weighed, looked_at = [], []
    usual = ExpectedGain.seconds
    monkeypatch.setattr(ExpectedGain, "seconds", lambda gain, state: weighed.append(state) or usual(gain, state))
    ranking = ItemRanking(many(10_000), {})
    chosen = [ranking.pop("A", lambda state: looked_at.append(state) or True) for _ in range(40)]
    assert len(weighed) == 10_000  # once, before the first choice
    assert len(looked_at) == len({item.name for item in chosen}) == 40


def test_metrics_are_what_prometheus_reads(tmp_path, simulated) -> None:
    ledger, _ = drive(read(campaign(tmp_path, budget="16")))
    ledger.quarantine([SlowDevice('a "machine"\n', "A100", 3.0, 1.5, 0.0)])
    text = exposition(ledger)
    assert f'tunewright_campaign_trials_total{{campaign="test",kernel="sleepy",device="here"}} {ledger.tried}\n' in text
    assert 'tunewright_campaign_slow_device_ratio{campaign="test",where="a \\"machine\\"\\n",device="A100"} 2\n' in text
    names = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    typed = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert list(dict.fromkeys(names)) == typed
