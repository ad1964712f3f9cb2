"""Locations in messages have no secret in them, and a token goes to the host that it is bound to."""

import traceback

import pytest

from tunewright.errors import TunewrightError
from tunewright.settings import Settings
from tunewright.stores import locations
from tunewright.stores.http.location import ServiceLocation
from tunewright.stores.location_text import address_of, hide_secrets, host_and_port, with_tokens
from tunewright.stores.postgres.location import PostgresLocation

SECRET = "hunter2"

WITH_SECRETS = [
    f"postgres: host=db password={SECRET}", f"postgres: host=db password='{SECRET} x'",
    f"postgres:host=db PASSWORD = {SECRET}", f"postgresql://db/tw?password={SECRET}",
    f"postgresql://u:{SECRET}@db/tw", f"postgresql://u:a@{SECRET}@db/tw", f"postgresql://db/tw?sslpassword={SECRET}",
    f"redis://u:p%40{SECRET}@h/0", f"redis://h/0?password={SECRET}", f"redis://:{SECRET}@h/0", f"redis://{SECRET}@h/0",
    f"redis://:a/{SECRET}@h/0", f"redis://:a?{SECRET}@h/0", f"redis://:a#{SECRET}@h/0", f"redis:/u:{SECRET}@h/0",
    f"redis://:a b{SECRET}@h/0", f"rediss://u:{SECRET}@h:6380/0?ttl=5", f"redis://h/0?unknown={SECRET}",
    f"https://{SECRET}@h", f"https://h?sign={SECRET}", f"https://u:{SECRET}@h/path", f"https://h#{SECRET}",
    f"redis://:{SECRET}@cache/0 postgresql://tuner:{SECRET}@db/x", f"HTTPS://{SECRET}@h", f"custom://{SECRET}@h",
    f"redis://h/0;password={SECRET}", f"https://{SECRET}@h https://{SECRET}@i",
]  # fmt: skip


@pytest.mark.parametrize("location", WITH_SECRETS)
def test_a_secret_is_shown_nowhere(location) -> None:
    settings = Settings(store=location)
    shown = [hide_secrets(location), address_of(location), settings.store_name, repr(settings), f"{settings}"]
    shown += [str(pair) for pair in settings.__rich_repr__()]
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize("location", [*WITH_SECRETS, f"redis://h:{SECRET}/0", f"https://h:{SECRET}"])
def test_an_error_shows_no_secret_even_in_its_traceback(location) -> None:
    said = ""
    try:
        locations.open_each(location)
    except TunewrightError as error:
        said = "".join(traceback.format_exception(error))
    assert SECRET not in said


def test_parsed_locations_show_no_secret() -> None:
    assert SECRET not in repr(ServiceLocation.parse(f"https://{SECRET}@h"))
    assert SECRET not in repr(PostgresLocation.parse(f"postgresql://u:{SECRET}@db/x"))


@pytest.mark.parametrize(("location", "shown"), [
    ("/a/path with: signs@it", "/a/path with: signs@it"), ("sqlite:///home/a@b/s.sqlite", "sqlite:///home/a@b/s.sqlite"),
    ("redis://:x@cache/0 postgresql://tuner:x@db/x", "redis://:***@cache/0 postgresql://tuner:***@db/x"),
    ("postgresql://tuner@db/x?sslmode=require", "postgresql://tuner@db/x?sslmode=require"),
    ("redis://[::1]:6379/0?ttl=60", "redis://[::1]:6379/0?ttl=60"), ("https://h:8000/a@b", "https://h:8000/a@b"),
    ("postgres: host=db dbname=tuning", "postgres: host=db dbname=tuning"), ("memory:", "memory:"), ("", ""),
])  # fmt: skip
def test_what_is_no_secret_is_shown(location, shown) -> None:
    assert hide_secrets(location) == shown


def test_a_token_goes_to_its_host_and_port_alone() -> None:
    tokens = {"tuning.example:443": "tw_1"}
    find = lambda host: tokens.get(host, "")  # noqa: E731
    assert with_tokens("https://tuning.example/x", find) == "https://tw_1@tuning.example/x"
    assert with_tokens("https://Tuning.Example.:443", find) == "https://tw_1@Tuning.Example.:443"
    others = (
        *("https://tuning.example:8443", "https://tuning.example.evil", "https://evil.tuning.example", "https://evil"),
        *("https://evil/https://tuning.example:1", "https://evil#tuning.example", "https://evil?tuning.example"),
        *("https://own@tuning.example", "https://tuning.example@evil", "https://evil\\tuning.example"),
    )
    assert [location for location in others if with_tokens(location, find) != location] == []


@pytest.mark.parametrize(("host", "normal"), [
    ("Tuning.Example", "tuning.example:443"), ("h:8000", "h:8000"), ("h.", "h:443"), ("[::1]", "[::1]:443"),
    ("[::1]:80", "[::1]:80"), ("h:", "h:443"), (" h/ ", "h:443"),
])  # fmt: skip
def test_hosts_are_compared_with_their_ports(host, normal) -> None:
    assert host_and_port(host) == normal
