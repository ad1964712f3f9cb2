"""Real servers for the tests of stores: one of each for all of them, with nothing in it for each."""

import itertools
import tempfile
from pathlib import Path

import pytest

from tunewright.testing import servers

_numbers = itertools.count()


@pytest.fixture(scope="session")
def open_folder():
    """A folder that every user may enter, unlike those pytest makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="session")
def redis_server(open_folder):
    with servers.redis(open_folder / "redis") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server(open_folder):
    # None of the tests cuts the power; a slow disk would be mistaken for a server that does not answer.
    with servers.postgres(open_folder / "postgres", fsync=False) as server:
        yield server


@pytest.fixture
def redis_location(redis_server):
    """Redis, with nothing in it."""
    import redis

    with redis.Redis.from_url(redis_server.location) as raw:
        raw.flushall()
    return redis_server.location


@pytest.fixture
def postgres_location(postgres_server):
    """A database of its own, with nothing in it."""
    import psycopg

    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres_server.location, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name}")
    return postgres_server.location.rpartition("/")[0] + f"/{name}"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Among tests that share few cores a slow server is not a dead one; who tests time-outs sets one."""
    monkeypatch.setattr("tunewright.stores.postgres.target.SECONDS", 20.0)
