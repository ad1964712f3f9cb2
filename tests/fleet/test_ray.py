"""The pool on Ray: real raylets on this machine, in a network namespace of their own."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tunewright import Config
from tunewright.cases.inputs import Inputs
from tunewright.cli.targets import load_kernel, resolve_sizes
from tunewright.errors import BackendError, PluginError
from tunewright.fleet.campaign import plan as plans
from tunewright.fleet.campaign.ledger import CampaignLedger
from tunewright.fleet.campaign.portion import PortionResult
from tunewright.fleet.campaign.scheduler import CampaignScheduler
from tunewright.measure.evaluator import Limits
from tunewright.model.trial import Kind, Stage, TrialRequest
from tunewright.pools.worker import IsolatedAttempt
from tunewright.stores import locations
from tunewright.testing.pool_kit import PoolContract
from tunewright.testing.ray_cluster import command, inside, possible, raylets

pytest.importorskip("ray")

KERNELS = Path(__file__).parent.parent / "kernels"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


if not inside():

    def test_all_of_this_file_holds_in_a_network_namespace() -> None:
        if not possible():
            pytest.skip("no network namespaces here")
        argv, environ = command([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__])
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

else:
    from tunewright.fleet.campaign.device_actors import RayDevicePool
    from tunewright.fleet.ray import RayPool
    from tunewright.fleet.ray.actors import BuildActor, TimingActor

    HOMES: dict[str, Path] = {}
    SHIM = '#!/bin/sh\ncase "$*" in *-c\\ *) echo x >> $HOME/compiles;; esac\nexec {real} "$@"\n'

    def entries(*steps):
        return [TrialRequest(Config(step=step)) for step in steps]

    def add(machines, kind, home):
        """A simulated machine with a compiler that leaves a note when it compiles."""
        HOMES[kind] = home
        shims = home / "bin"
        shims.mkdir(parents=True)
        for name in ("cc", "gcc", "clang"):
            if real := shutil.which(name):
                (shims / name).write_text(SHIM.format(real=real))
                (shims / name).chmod(0o755)
        return machines.add(kind, home, environ={"PATH": f"{shims}:{os.environ['PATH']}"})

    @pytest.fixture(scope="module")
    def nodes(tmp_path_factory):
        with raylets(processors=2) as machines:
            for kind in ("small", "large", "large"):
                add(machines, kind, tmp_path_factory.mktemp(kind) / "home")
            yield machines

    def stepped(cache, **limits):
        return IsolatedAttempt(None, (Inputs(),), cache, f"{KERNELS / 'stepped.py'}:stepped", limits=Limits(**limits))

    @pytest.fixture
    def attempt(tmp_path):
        return stepped(tmp_path)

    class TestRay(PoolContract):
        @pytest.fixture
        def pool(self, nodes):
            return RayPool(2)

    class TestRayOnDevices(PoolContract):
        @pytest.fixture
        def pool(self, nodes):
            return RayPool(3, "large")

        def test_each_device_has_one_timing_actor(self, pool, attempt) -> None:
            for done, _ in enumerate(pool.run(attempt, entries(*range(100, 130)))):
                if done == 20:
                    assert len(pool._group.of(TimingActor)) == 2

        def test_what_hangs_or_crashes_costs_its_own_trial(self, pool, tmp_path) -> None:
            trials = list(pool.run(stepped(tmp_path, run=15.0), entries(1, 99, 66, 2, 8)))
            kinds = {trial.config["step"]: getattr(trial.outcome, "kind", None) for trial in trials}
            assert kinds == {1: None, 2: None, 8: None, 99: Kind.HUNG, 66: Kind.CRASHED}

        def test_a_killed_timing_actor_is_a_trial_tried_again_with_a_note(self, pool, attempt) -> None:
            killed, over = [], threading.Event()

            def kill() -> None:
                while not killed and not over.wait(0.02):
                    group = pool._group
                    for member in group.of(TimingActor) if group else ():
                        if [pending.request.config["step"] for pending in list(member.jobs)[:1]] == [50]:
                            os.kill(member.pid, signal.SIGKILL)
                            killed.append(member.pid)

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                trials = list(pool.run(attempt, entries(*range(100, 112), 50, *range(112, 124))))
            finally:
                over.set()
                killer.join()
            assert killed
            assert Counter(trial.config["step"] for trial in trials) == Counter([50, *range(100, 124)])
            assert all(trial.works for trial in trials)
            assert max(trial.metrics.get("retries", 0) for trial in trials) == 1

        @pytest.mark.clock("a timing actor that works is heard within 4 s")
        def test_a_stopped_timing_actor_is_given_up_and_its_device_used_again(self, pool, attempt, monkeypatch) -> None:
            monkeypatch.setattr("tunewright.fleet.ray.actor_group.HEALTH_TIMEOUT", 4.0)
            monkeypatch.setattr("tunewright.fleet.ray.actor_group.HEALTH_INTERVAL", 0.5)
            trials, stopped = [], []
            for trial in pool.run(attempt, entries(*range(100, 150))):
                trials.append(trial)
                if len(trials) == 5:
                    stopped.append(pool._group.of(TimingActor)[0].pid)
                    os.kill(stopped[0], signal.SIGSTOP)
            assert Counter(trial.config["step"] for trial in trials) == Counter(range(100, 150))
            assert all(trial.works for trial in trials)
            assert sum(trial.metrics.get("retries", 0) for trial in trials) <= 1

    @pytest.mark.clock("within 20 s: Ray is asked for its machines once")
    def test_a_kind_that_no_machine_has_is_said_within_seconds(nodes, attempt) -> None:
        began = time.monotonic()
        with pytest.raises(PluginError, match="there are: large, small"):
            list(RayPool(2, "H100").run(attempt, entries(1)))
        assert time.monotonic() - began < 20

    def test_a_kernel_that_is_not_there_is_a_broken_program_not_a_failed_config(nodes, tmp_path) -> None:
        lost = IsolatedAttempt(None, (Inputs(),), tmp_path, f"{KERNELS / 'nowhere.py'}:stepped")
        with pytest.raises(BackendError, match="nowhere"):
            list(RayPool(2, "small").run(lost, entries(1, 2)))

    def test_a_kernel_without_a_name_says_what_to_do(nodes, tmp_path) -> None:
        with pytest.raises(PluginError, match='pool="process"'):
            list(RayPool(2).run(IsolatedAttempt(None, (Inputs(),), tmp_path), entries(1)))

    def shifted(cache):
        target = f"{KERNELS / 'stepped.py'}:shifted"
        sys.path.insert(0, str(KERNELS))
        import stepped as module

        recipe = Inputs.like(module.shifted.parameters, [np.ones(64), np.empty(64)], {"N": 64})
        return IsolatedAttempt(None, (recipe,), cache, target)

    def test_what_builders_build_reaches_a_device_and_is_not_built_there(nodes, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        attempt = shifted(tmp_path / "travels")
        configs = [Config(SHIFT=i) for i in (0, 1, 2, 13, 3, 4)]
        pool = RayPool(3, "small")
        trials = {trial.config["SHIFT"]: trial for trial in pool.run(attempt, map(TrialRequest, configs))}
        assert {i for i, trial in trials.items() if not trial.works} == {13}
        assert trials[13].outcome.stage is Stage.BUILD
        assert "thirteen is refused" in trials[13].outcome.reason
        assert all(trial.build_seconds > 0 for trial in trials.values())
        home = HOMES["small"]
        assert len(list((home / "travels" / "artifacts").glob("??/*.so"))) == 5
        compiled = home / "compiles"
        # A builder that has built nothing yet is not believed when it refuses; then the device's machine looks itself.
        assert not compiled.exists() or compiled.read_text().count("x") <= 1

    def test_a_lost_machine_costs_no_trial(nodes, attempt, tmp_path) -> None:
        doomed = add(nodes, "doomed", tmp_path / "a")
        add(nodes, "doomed", tmp_path / "b")
        trials = []
        for trial in RayPool(4, "doomed").run(attempt, entries(*range(100, 140))):
            trials.append(trial)
            if len(trials) == 10:
                nodes.remove(doomed)
        assert Counter(trial.config["step"] for trial in trials) == Counter(range(100, 140))
        assert all(trial.works for trial in trials)

    def test_builders_are_let_go_where_nothing_travels(nodes, attempt) -> None:
        pool = RayPool(2)
        for done, _ in enumerate(pool.run(attempt, entries(*range(100, 112)))):
            if done == 10:
                assert not pool._group.of(BuildActor)
                assert not pool._group.can_build

    def campaign(folder, *, devices, budget, portion=8) -> plans.CampaignPlan:
        file = folder / "campaign.toml"
        file.write_text(
            f'name = "fleet"\nbudget = "{budget}"\nportion = {portion}\nworth = 0.0\ndevices = {devices}\n'
            f'[[kernels]]\ntarget = "{KERNELS / "sleepy.py"}:sleepy"\n'
            f'[[kernels]]\ntarget = "{KERNELS / "sleepy.py"}:settled"\n'
            f'[settings]\nstore = "{folder / "store.sqlite"}"\npool = "process:1"\nstrategy = "random"\n'
        )
        return plans.read_plan(file, load_kernel, resolve_sizes)

    def trials_in(store) -> list:
        return [(key.digest, trial.config) for key in list(store.keys()) for trial in store.trials(key)]

    class Observer:
        def __init__(self, on_result) -> None:
            self.portion_finished, self.portion_started = on_result, lambda device, request: None

    def run_campaign(plan, on_result=lambda *args: None) -> CampaignLedger:
        ledger = CampaignLedger(locations.open_authoritative(plan.settings["store"]), plan)
        ledger.recover()
        CampaignScheduler(plan, ledger, RayDevicePool(plan), Observer(on_result)).run()
        return ledger

    def test_a_campaign_runs_on_every_device_at_once(nodes, tmp_path) -> None:
        seen = set()
        plan = campaign(tmp_path, devices='["large", "small"]', budget="200")
        ledger = run_campaign(plan, lambda state, result: seen.add(result.where))
        assert len(seen) == 3
        assert all(state.portions for state in ledger.states.values())
        journals = [
            (key.digest, trial.config) for key in list(ledger.store.keys()) for trial in ledger.store.trials(key)
        ]
        assert max(Counter(journals).values()) == 1

    def test_a_campaign_for_devices_that_are_not_there_is_refused(nodes, tmp_path) -> None:
        with pytest.raises(PluginError, match="no machine"):
            run_campaign(campaign(tmp_path, devices='["H100"]', budget="8"))

    def test_a_campaign_survives_its_device_actors(nodes, tmp_path) -> None:
        plan = campaign(tmp_path, devices='["large"]', budget="60")
        killed = []

        def kill(state, result):
            if isinstance(result, PortionResult) and len(killed) < 4:
                pid = int(result.where.rpartition(":")[2])
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        ledger = run_campaign(plan, kill)
        assert len(killed) == 4
        assert not any(state.failed for state in ledger.states.values())
        journals = [
            (key.digest, trial.config) for key in list(ledger.store.keys()) for trial in ledger.store.trials(key)
        ]
        assert max(Counter(journals).values()) == 1
        assert ledger.tried == len(journals) == 60
