from pathlib import Path

import pytest

from tunewright import Session
from tunewright.errors import SettingsError
from tunewright.settings import Settings
from tunewright.stores.layers import Layers


def test_python_over_environment_over_file_over_default(tmp_path) -> None:
    (tmp_path / "tunewright.toml").write_text('trials = 10\nseed = 3\nmode = "frozen"\n')
    environ = {"TUNEWRIGHT_TRIALS": "20", "TUNEWRIGHT_SECONDS": "1.5"}
    settings = Settings.read(environ, tmp_path, trials=None, mode="strict")
    assert (settings.trials, settings.seed, settings.seconds, settings.mode) == (20, 3, 1.5, "strict")
    assert settings.strategy == "portfolio"


def test_a_file_may_be_named(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("trials = 7")
    assert Settings.read({"TUNEWRIGHT_CONFIG": str(path)}, tmp_path).trials == 7
    with pytest.raises(SettingsError, match="cannot read"):
        Settings.read({"TUNEWRIGHT_CONFIG": str(tmp_path / "none.toml")}, tmp_path)
    path.write_text("trials = = 7")
    with pytest.raises(SettingsError, match="cannot read"):
        Settings.read({"TUNEWRIGHT_CONFIG": str(path)}, tmp_path)


def test_a_setting_that_makes_no_sense_is_refused(tmp_path) -> None:
    for wrong in ({"TUNEWRIGHT_TRIALS": "-1"}, {"TUNEWRIGHT_RUN_SECONDS": "0"}, {"TUNEWRIGHT_MODE": "maybe"}):
        with pytest.raises(SettingsError):
            Settings.read(wrong, tmp_path)


def test_the_cache_is_in_the_users_home_never_the_temporary_folder(monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert Settings().cache_path == Path("~/.cache/tunewright").expanduser()
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert Settings().cache_path == Path("/somewhere/tunewright")


def test_there_are_few_settings() -> None:
    assert len(Settings.__struct_fields__) <= 15


def test_a_store_that_cannot_be_opened_leaves_a_session_that_works(tmp_path, caplog) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    session = Session(store=None, cache=str(blocker / "cache"), mode="frozen")
    assert isinstance(session.store, Layers)
    from tunewright.testing.keys import DECISION, KEY

    assert session.store.put(DECISION) == DECISION
    assert session.store.get(KEY) == DECISION
    assert "SqliteStore is skipped" in caplog.text
