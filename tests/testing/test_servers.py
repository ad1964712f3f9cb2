"""The servers that tests start are real, and go through what tests put them through."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tunewright.testing import servers


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def asked_redis(location: str, seconds: int = 120) -> bool:
    import redis

    with redis.Redis.from_url(location, socket_timeout=seconds, retry=None) as raw:
        return raw.ping()


def asked_postgres(location: str, seconds: int = 120) -> bool:
    import psycopg

    with psycopg.connect(location, connect_timeout=seconds) as raw:
        return raw.execute("SELECT true").fetchone()[0]


@pytest.mark.parametrize(("make", "ask"), [(servers.redis, asked_redis), (servers.postgres, asked_postgres)])
def test_a_server_dies_freezes_comes_back_and_is_gone_in_the_end(folder, make, ask) -> None:
    import psycopg
    import redis

    down = (redis.ConnectionError, psycopg.OperationalError)
    with make(folder / "files") as server:
        assert ask(server.location)
        server.kill()
        assert server.pids == []
        with pytest.raises(down, match="refused"):
            ask(server.location)
        server.start()
        assert ask(server.location)
        server.freeze()
        with pytest.raises((redis.TimeoutError, psycopg.errors.ConnectionTimeout)):  # it accepts, and does not answer
            ask(server.location, 2)
        server.thaw()
        assert ask(server.location)
        server.freeze()
        server.restart()
        assert ask(server.location)
        pids = server.pids
    assert server.pids == []
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_what_redis_acknowledged_outlives_a_kill_where_that_is_asked_for(folder) -> None:
    import redis

    with servers.redis(folder / "files", fsync=True) as server:
        with redis.Redis.from_url(server.location) as raw:
            raw.set("kept", "yes")
        server.kill()
        server.start()
        with redis.Redis.from_url(server.location) as raw:
            assert raw.get("kept") == b"yes"


def test_a_missing_program_says_what_to_install(folder, monkeypatch) -> None:
    monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: None)
    with pytest.raises(servers.NoServer, match="apt-get install postgresql"), servers.postgres(folder / "files"):
        pass


def test_a_server_that_cannot_start_says_why(folder) -> None:
    with pytest.raises(servers.NoServer, match="nonsense"), servers.redis(folder / "files", "--nonsense", "1"):
        pass
    with pytest.raises(servers.NoServer, match="nonsense"), servers.postgres(folder / "pg", "nonsense=1"):
        pass


def test_no_server_outlives_a_test_run_that_is_killed(folder, wait_until) -> None:
    code = (
        "import sys, time, pathlib\nfrom tunewright.testing import servers\n"
        "with servers.redis(pathlib.Path(sys.argv[1], 'redis')) as one, "
        "servers.postgres(pathlib.Path(sys.argv[1], 'postgres')) as two:\n"
        "    print(*one.pids, *two.pids, flush=True)\n    time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as run:
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) > 2
        run.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), "the end of all servers")
