from pathlib import Path

import pytest

from tunewright import Session
from tunewright import settings as settings_module
from tunewright.errors import SettingsError
from tunewright.settings import Feature, Settings
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
    assert len(Settings.__struct_fields__) <= 17


def test_each_value_says_where_it_comes_from(tmp_path) -> None:
    (tmp_path / "tunewright.toml").write_text("trials = 10\nseed = 3\n")
    found = Settings.sources({"TUNEWRIGHT_SEED": "4"}, tmp_path, mode="frozen")
    assert found == {
        "trials": (10, str(tmp_path / "tunewright.toml")),
        "seed": (4, "TUNEWRIGHT_SEED"),
        "mode": ("frozen", "Python"),
    }


def test_a_feature_is_on_from_its_version_and_an_override_wins(monkeypatch) -> None:
    monkeypatch.setattr(settings_module, "__version__", "0.3.1")
    old, new = Feature("a", "", "0.2", "0.3"), Feature("b", "", "0.3", "0.10")
    assert old.on
    assert not new.on
    monkeypatch.setattr(settings_module, "FEATURES", (old, new))
    assert Settings().has("a")
    assert not Settings().has("b")
    assert Settings.read({"TUNEWRIGHT_FEATURES": "b,-a"}, Path("/nowhere")).features == {"b": True, "a": False}
    assert not Settings(features={"a": False}).has("a")
    with pytest.raises(SettingsError, match="no feature 'c'; features: a, b"):
        Settings(features={"c": True})


@pytest.mark.parametrize("wrong", [{"features": 3}, {"features": {"flights": "maybe"}}, {"aliases": {"A": 1}}])
def test_a_table_that_is_none_is_refused(wrong, tmp_path) -> None:
    with pytest.raises(SettingsError, match="must be a table"):
        Settings.read({}, tmp_path, **wrong)


def test_another_process_can_have_the_same_settings(tmp_path) -> None:
    settings = Settings(trials=3, pool="process:2", features={"flights": False}, aliases={"A 800": "A 100", "B": "C"})
    assert Settings.read(settings.environ(), tmp_path) == settings
    assert Settings.read(Settings().environ(), tmp_path) == Settings()


def test_a_password_is_not_said_aloud() -> None:
    settings = Settings(store="redis://:secret@cache/0 postgresql://tuner:hidden@db/x")
    assert settings.store_name == "redis://:***@cache/0 postgresql://tuner:***@db/x"
    assert Settings(store="/a/path with: signs@it").store_name == "/a/path with: signs@it"


def test_the_pool_says_how_many_workers() -> None:
    assert Settings(pool="process:5").width == 5
    assert Settings(pool="process:5").pool_name == "process"
    assert Settings(pool="serial").width in (1, 2)
    with pytest.raises(SettingsError, match="process:4"):
        Settings(pool="process:many")


def test_a_store_that_cannot_be_opened_leaves_a_session_that_works(tmp_path, caplog) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    session = Session(store=None, cache=str(blocker / "cache"), mode="frozen")
    assert isinstance(session.store, Layers)
    from tunewright.testing.keys import DECISION, KEY

    assert session.store.put(DECISION) == DECISION
    assert session.store.get(KEY) == DECISION
    assert "SqliteStore is skipped" in caplog.text
