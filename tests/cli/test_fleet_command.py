import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunewright.cli import fleet as module
from tunewright.cli.fleet import fleet
from tunewright.errors import NoDecision, PluginError, SettingsError, StoreError
from tunewright.stores import locations
from tunewright.stores.leases import Lease

KERNELS = Path(__file__).parent.parent / "kernels"


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "campaign.toml"
    made.write_text(
        'name = "test"\nbudget = "24"\nportion = 8\n[[kernels]]\n'
        f'target = "{KERNELS / "sleepy.py"}:sleepy"\ncalls = 10\n'
        f'[settings]\nstore = "{tmp_path / "store.sqlite"}"\npool = "serial"\n'
    )
    return made


def run(*args):
    done = CliRunner().invoke(fleet, [str(arg) for arg in args])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_plan_says_what_is_at_stake_and_runs_nothing(file) -> None:
    told = json.loads(run("plan", file, "--json"))
    assert [item["sizes"] for item in told["items"]] == [{"N": 10}, {"N": 20}]
    assert all(item["expected"] > 0 for item in told["items"])
    assert "waiting" in run("plan", file)
    assert json.loads(run("status", file, "--json"))["trials"] == 0


@pytest.mark.slow
def test_run_status_and_report_tell_the_same(file) -> None:
    ran = json.loads(run("run", file, "--json"))
    status = json.loads(run("status", file, "--json"))
    assert 0 < ran["trials"] == status["trials"] <= 24
    assert ran["standings"] == status["standings"]
    assert ran["saved_seconds"] > 0
    said = run("report", file)
    assert "sleepy N=10 @ here" in said
    assert "saves" in said


@pytest.mark.slow
def test_metrics_are_kept_in_a_file_as_it_runs(file, tmp_path) -> None:
    ran = json.loads(run("run", file, "--json", "--metrics", tmp_path / "campaign.prom"))
    kept = (tmp_path / "campaign.prom").read_text()
    assert f'trials_total{{campaign="test",kernel="sleepy",device="here"}} {ran["trials"]}\n' in kept
    assert kept == run("status", file, "--prometheus")


def test_what_was_never_begun_is_not_resumed(file) -> None:
    with pytest.raises(NoDecision, match="fleet run"):
        run("resume", file)


def test_a_campaign_has_one_driver_at_a_time(file, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.3)
    other = Lease(locations.open_authoritative(str(tmp_path / "store.sqlite")), "campaign test", 60.0)
    assert other.claim()
    with pytest.raises(StoreError, match="another process"):
        run("run", file)


def test_devices_of_a_fleet_need_ray_and_a_store_that_all_reach(file) -> None:
    text = file.read_text().replace("portion = 8\n", 'portion = 8\ndevices = ["A100"]\n')
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("store")))
    with pytest.raises((PluginError, SettingsError), match=r"tunewright\[ray\]|needs a store"):
        run("run", file)
