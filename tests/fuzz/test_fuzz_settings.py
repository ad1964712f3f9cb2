"""Whatever a settings file, a variable or a location says, it is taken or a SettingsError; a store, or a StoreError."""

from contextlib import suppress

import pytest
from damage import VALUES, bent, effort, file_of
from hypothesis import given
from hypothesis import strategies as st

from tunewright.errors import SettingsError, StoreError
from tunewright.settings import Settings
from tunewright.stores.user_file import FILE

SOUND = b"""mode = "frozen"
trials = 100
seconds = 1.5
deterministic = true
pool = "process:4"
features = {flights = true}
aliases = {"A800" = "A100"}
"""
NAMES = [*Settings.__struct_fields__, "other", "", "MODE"]


def used(settings: Settings) -> None:
    assert settings.width >= 1
    assert settings.store_location
    settings.environ(), settings.cache_path, settings.store_name, settings.pool_name, settings.is_enabled("flights")


@effort(3)
@given(bent(SOUND))
def test_any_file_is_read_or_refused(content) -> None:
    with file_of(content, FILE) as path, suppress(SettingsError):
        used(Settings.read({}, path.parent))


@effort(3)
@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(NAMES), st.text(max_size=9)),
)
def test_any_value_is_taken_or_refused(given_, environ) -> None:
    variables = {
        f"TUNEWRIGHT_{name.upper()}": text for name, text in environ.items() if name in Settings.__struct_fields__
    }
    with file_of(b"", "none") as path, suppress(SettingsError):
        used(Settings.read(variables, path.parent, **given_))


PIECES = [
    "postgresql://",
    "postgres:",
    "host=",
    "db",
    "user:pw@",
    ":5432",
    "/",
    "?",
    "&",
    "tunewright_timeout=",
    "1e999",
    "nan",
    "%",
    "%00",
    " ",
    "'",
    "[::1",
    "\\",
]


@effort(3)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text(max_size=30))
def test_any_location_names_a_server_or_is_refused(location) -> None:
    parse = pytest.importorskip("tunewright.stores.postgres.location").PostgresLocation.parse
    with suppress(StoreError):
        target = parse(f"postgres:{location}" if ":" not in location else location)
        assert 0 < target.seconds < float("inf")
