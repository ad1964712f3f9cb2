"""Record what is missing, tune it, use it; and look after the store."""

import json
import os
import subprocess
import sys

import pytest

from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

KERNEL = """
import sys
import numpy as np
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("step", [1, 2, 4])), reference=lambda x: x.sum(), buckets={"N": [64, 128, 1024]})
def total(x: tw.In("N"), *, step):
    return sum(x[i::step].sum() for i in range(step))

if __name__ == "__main__":
    for size in (60, 100, 101, 102, 1000):
        for _ in range(size):
            total(np.ones(size, np.float32))
    print(dict(total.session.counts))
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    return tmp_path


def run(*args, cwd, status=0, **environ):
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
        env={**os.environ, **environ},
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def tunewright(*args, cwd, status=0, **environ):
    return run("-m", "tunewright", *args, cwd=cwd, status=status, **environ)


def test_record_tune_use(here) -> None:
    recorded = run("kernels.py", cwd=here, TUNEWRIGHT_MODE="record").stdout
    assert "measurements" not in recorded
    listed = json.loads(tunewright("store", "untuned", "--json", cwd=here).stdout)
    calls = {want["key"]["signature"]["dims"]["N"]: want["calls"] for want in listed}
    assert calls == {1024: 1000, 128: 303, 64: 60}
    assert listed == sorted(listed, key=lambda want: -want["seconds"])
    assert all(want["seconds"] > 0 for want in listed)
    assert "total" in tunewright("store", "untuned", cwd=here).stdout
    tuned = tunewright("tune", "--recorded", "kernels.py", "--pool", "serial", cwd=here)
    assert "3 keys to tune" in tuned.stderr
    places = [tuned.stderr.index(f"N={want['key']['signature']['dims']['N']} ") for want in listed]
    assert places == sorted(places)
    used = run("kernels.py", cwd=here, TUNEWRIGHT_MODE="strict").stdout
    assert used.strip() == "{'bucket': 5}"
    nothing = tunewright("tune", "--recorded", "kernels.py", cwd=here, status=1)
    assert "TUNEWRIGHT_MODE=record" in nothing.stderr


def test_what_was_recorded_for_other_code_is_passed_over_and_said(here) -> None:
    run("kernels.py", cwd=here, TUNEWRIGHT_MODE="record")
    (here / "kernels.py").write_text(KERNEL.replace("range(step))", "range(step)) + 0"))
    tuned = tunewright("tune", "--recorded", "kernels.py", "--pool", "serial", cwd=here)
    assert tuned.stderr.count("skipped: it was recorded for another key: source is") == 3


def test_tune_wants_a_target_or_the_record(here) -> None:
    assert "tunewright tune FILE.py:NAME" in tunewright("tune", cwd=here, status=2).stderr


def filled(path):
    store = SqliteStore(path)
    store.put(DECISION)
    store.put(other_decision(config=Config(tile=8)))
    store.record(KEY, [TIMED] * 3)
    return store


def test_stats_verify_history_and_rollback(tmp_path) -> None:
    store = filled(tmp_path / "s.sqlite")
    stats = json.loads(tunewright("store", "stats", "--store", "s.sqlite", "--json", cwd=tmp_path).stdout)
    assert (stats["decisions"], stats["generations"], stats["trials"]) == (1, 1, 3)
    assert "0 faults" in tunewright("store", "verify", "--store", "s.sqlite", cwd=tmp_path).stdout
    history = tunewright("store", "history", "gemm", "--store", "s.sqlite", cwd=tmp_path).stdout
    assert history.index("tile=64") < history.index("tile=8")
    tunewright("store", "rollback", "gemm", "--store", "s.sqlite", "--device", "some cpu", cwd=tmp_path)
    assert store.get(KEY) == DECISION
    again = tunewright("store", "rollback", "gemm", "--to", "1h", "--store", "s.sqlite", cwd=tmp_path, status=1)
    assert "was different then" in again.stderr
    none = tunewright("store", "history", "gemm", "--device", "H100", "--store", "s.sqlite", cwd=tmp_path, status=1)
    assert "nothing is decided" in none.stderr


def test_gc_drops_what_is_old_and_keeps_decisions(tmp_path) -> None:
    store = filled(tmp_path / "s.sqlite")
    asked = ("store", "gc", "--store", "s.sqlite")
    assert "say what to drop" in tunewright(*asked, cwd=tmp_path, status=2).stderr
    assert "is not an age" in tunewright(*asked, "--older", "soon", cwd=tmp_path, status=2).stderr
    assert "dropped nothing" in tunewright(*asked, "--older", "1h", cwd=tmp_path).stdout
    assert "3 trials" in tunewright(*asked, "--older", "0s", cwd=tmp_path).stdout
    assert store.get(KEY) is not None
    assert list(store.trials(KEY)) == []


def test_merging_twice_is_merging_once_and_what_stands_stands(tmp_path) -> None:
    filled(tmp_path / "one.sqlite")
    other = SqliteStore(tmp_path / "other.sqlite")
    other.put(other_decision(config=Config(tile=16)))
    other.put(other_decision(key=other_key(kernel="conv")))
    other.record(KEY, [TIMED])
    other.record(other_key(kernel="conv"), [TIMED])
    merge = ("store", "merge", "other.sqlite", "--store", "one.sqlite", "--json")
    first, second = (json.loads(tunewright(*merge, cwd=tmp_path).stdout) for _ in range(2))
    assert first == {"decisions": 1, "standing": 1, "trials": 1}
    assert second == {"decisions": 0, "standing": 2, "trials": 0}
    one = SqliteStore(tmp_path / "one.sqlite")
    assert one.get(KEY).config["tile"] == 8
    tunewright(*merge, "--replace", cwd=tmp_path)
    assert one.get(KEY).config["tile"] == 16


def test_export_writes_a_record_a_line(tmp_path) -> None:
    filled(tmp_path / "s.sqlite")
    tunewright("store", "export", "out.jsonl", "--trials", "--store", "s.sqlite", cwd=tmp_path)
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert serialization.load_decision(lines[0]).config["tile"] == 8
    assert len(lines) == 4


def test_settings_say_where_each_value_comes_from(tmp_path) -> None:
    (tmp_path / "tunewright.toml").write_text(
        'trials = 7\n[features]\nneighbours = false\n[aliases]\n"A800" = "A100"\n'
    )
    said = json.loads(tunewright("settings", "--json", cwd=tmp_path, TUNEWRIGHT_SEED="3").stdout)
    assert said["settings"]["trials"] == {"value": 7, "from": str(tmp_path / "tunewright.toml")}
    assert said["settings"]["seed"] == {"value": 3, "from": "TUNEWRIGHT_SEED"}
    assert said["settings"]["mode"] == {"value": "tune", "from": "default"}
    assert said["settings"]["aliases"]["value"] == {"A800": "A100"}
    assert said["features"]["neighbours"]["on"] is False
    assert said["features"]["flights"]["on"] is True
    shown = tunewright("settings", cwd=tmp_path, TUNEWRIGHT_FEATURES="neighbours,-flights").stdout
    assert "TUNEWRIGHT_FEATURES" in shown
    wrong = tunewright("settings", cwd=tmp_path, TUNEWRIGHT_FEATURES="flying", status=2)
    assert "features: neighbours, flights" in wrong.stderr


@pytest.mark.slow
def test_a_server_that_is_away_is_an_error_here_and_its_password_is_not_said(tmp_path) -> None:
    location = "postgresql://tuner:secret@127.0.0.1:1/x"
    for asked in (("stats",), ("verify",), ("untuned",), ("history", "gemm"), ("gc", "--older", "1d")):
        done = tunewright("store", *asked, "--store", location, cwd=tmp_path, status=2)
        assert "check that the server is up" in done.stderr
        assert "secret" not in done.stderr + done.stdout
    assert "secret" not in tunewright("settings", cwd=tmp_path, TUNEWRIGHT_STORE=location).stdout
