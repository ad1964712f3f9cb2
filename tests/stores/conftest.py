"""Real servers for the tests of stores: one of each for all of them, with nothing in it for each."""

import itertools
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
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
    monkeypatch.setattr("tunewright.stores.postgres.location.SECONDS", 120.0)
    monkeypatch.setattr("tunewright.stores.redis.TIMEOUT_SECONDS", 120.0)


TOGETHER = """
import os, sys
{needs}
for gate, given in zip(sys.argv[1].split(), sys.argv[2:], strict=True):
    print("ready", flush=True)
    os.read(int(gate), 1)
    {work}
"""


@pytest.fixture
def together():
    """Run a line of Python in eight processes at once, on what is `given`: on one thing after another."""

    def run(needs: str, work: str, *given: object) -> list[int]:
        pipes = [os.pipe() for _ in given]
        gates = [gate for gate, _ in pipes]
        command = [sys.executable, "-c", TOGETHER.format(needs=needs, work=work), " ".join(map(str, gates))]
        command += map(str, given)
        with ExitStack() as stack:
            processes = [
                stack.enter_context(subprocess.Popen(command, pass_fds=gates, stdout=subprocess.PIPE, text=True))
                for _ in range(8)
            ]
            for _, opened in pipes:
                ready = [process.stdout.readline() for process in processes]
                os.close(opened)  # which wakes all that read
                assert ready == ["ready\n"] * 8
            for gate in gates:
                os.close(gate)
            return [process.wait(300) for process in processes]

    return run
