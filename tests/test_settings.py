import re
from pathlib import Path

import numpy as np
import pytest

from tunewright import Session
from tunewright import settings as settings_module
from tunewright.errors import SettingsError
from tunewright.settings import FeatureFlag, Settings


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
    assert len(Settings.__struct_fields__) <= 20


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
    old, new = FeatureFlag("a", "", "0.2", "0.3"), FeatureFlag("b", "", "0.3", "0.10")
    assert old.enabled
    assert not new.enabled
    monkeypatch.setattr(settings_module, "FEATURE_FLAGS", (old, new))
    assert Settings().is_enabled("a")
    assert not Settings().is_enabled("b")
    assert Settings.read({"TUNEWRIGHT_FEATURES": "b,-a"}, Path("/nowhere")).features == {"b": True, "a": False}
    assert not Settings(features={"a": False}).is_enabled("a")
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
    from tunewright.testing.keys import DECISION, KEY

    assert session.store.put(DECISION) == DECISION
    assert session.store.get(KEY) == DECISION
    assert "cannot be written: nothing is kept there" in caplog.text


def test_the_old_names_of_settings_are_read_with_a_warning(tmp_path) -> None:
    (tmp_path / "tunewright.toml").write_text("worth = 0.05\n")
    with pytest.warns(DeprecationWarning, match=r"'worth' \(.*tunewright.toml\) is deprecated; use min_expected_gain"):
        assert Settings.read({}, tmp_path).min_expected_gain == 0.05
    with (
        pytest.warns(DeprecationWarning, match="tunewright.toml"),
        pytest.warns(DeprecationWarning, match="TUNEWRIGHT_WORTH is deprecated; use TUNEWRIGHT_MIN_EXPECTED_GAIN"),
    ):
        assert Settings.read({"TUNEWRIGHT_WORTH": "0.1"}, tmp_path).min_expected_gain == 0.1
    with pytest.warns(DeprecationWarning, match=r"'wait' \(Python\) is deprecated; use tuning_wait_seconds"):
        assert Session(wait=7).settings.tuning_wait_seconds == 7
    with pytest.warns(DeprecationWarning, match="use TUNEWRIGHT_TUNING_WAIT_SECONDS"):
        assert Settings.read({"TUNEWRIGHT_WAIT": "5"}, tmp_path / "none").tuning_wait_seconds == 5


def test_the_new_name_of_a_setting_wins(tmp_path) -> None:
    environ = {"TUNEWRIGHT_WAIT": "5", "TUNEWRIGHT_TUNING_WAIT_SECONDS": "6"}
    with pytest.warns(DeprecationWarning, match="TUNEWRIGHT_WAIT"):
        assert Settings.read(environ, tmp_path).tuning_wait_seconds == 6
    (tmp_path / "tunewright.toml").write_text("tuning_wait_seconds = 8\n")
    with pytest.warns(DeprecationWarning, match="TUNEWRIGHT_WAIT"):  # the environment is above the file, by either name
        assert Settings.read({"TUNEWRIGHT_WAIT": "5"}, tmp_path).tuning_wait_seconds == 5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("trials", "many", "trials is 'many'; it must be a whole number"),
        ("trials", 3.5, "trials is 3.5; it must be a whole number"),
        ("seconds", "long", "seconds is 'long'; it must be a number"),
        ("deterministic", "maybe", "deterministic is 'maybe'; it must be true or false"),
        ("strategy", 3, "strategy is 3; it must be text"),
        ("features", "-", "no feature ''"),
    ],
)
def test_a_value_of_the_wrong_type_says_what_it_must_be(name, value, message, tmp_path) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        Settings.read({}, tmp_path, **{name: value})


def test_values_that_mean_the_same_are_taken(tmp_path) -> None:
    settings = Settings.read({"TUNEWRIGHT_DETERMINISTIC": "Yes"}, tmp_path, cache=tmp_path, trials=np.int64(3))
    assert (settings.deterministic, settings.cache, settings.trials) == (True, str(tmp_path), 3)
