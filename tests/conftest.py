"""Every test has a cache and a process-wide session of its own."""

import signal

import pytest
from hypothesis import settings

from tunewright import session

# pytest tests/fuzz --hypothesis-profile=long
settings.register_profile("long", max_examples=20_000, deadline=None)

# A job in the background ignores Ctrl-C, and so would every program the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.setattr(session, "_default", None)
    return folder
