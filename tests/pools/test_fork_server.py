"""Workers that are forked from a process of their own: each lives and dies alone."""

import os
import signal
import threading

import pytest

from tunewright.errors import BackendError
from tunewright.pools import fork_server as module
from tunewright.pools.fork_server import fork_server, start_worker
from tunewright.stores import process_id, serialization


@pytest.fixture
def server(monkeypatch):
    """A server, which outlives the thread that started it."""
    monkeypatch.setattr(module, "_servers", {})
    thread = threading.Thread(target=lambda: fork_server("forked_work"))
    thread.start()
    thread.join()
    yield fork_server("forked_work")
    for server in module._servers.values():
        server.close()


def ask(worker, word: str = "") -> list[int]:
    worker.send(word)
    worker.channel.sock.settimeout(60)
    body = worker.channel.wait_message()
    assert body is not None
    return serialization.decode(body, list[int])


def test_workers_of_one_server_are_separate(server):
    first, second = server.start_worker(), server.start_worker()
    assert ask(first) == [first.pid, server._process.pid]
    assert ask(second) == [second.pid, server._process.pid]
    first.send("abort")
    assert not first.receive(60)
    assert first.wait() == -signal.SIGABRT
    assert first.output_tail() == ": an assertion failed"
    assert ask(second)[0] == second.pid
    second.send("hang")
    for worker in (first, second):
        worker.close()
    assert second.wait() == -signal.SIGKILL
    third = server.start_worker()
    assert ask(third)[0] == third.pid
    third.close()


def test_a_server_that_died_is_replaced(server):
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    with pytest.raises(BackendError, match="the process that starts workers died"):
        server.start_worker()
    second = fork_server("forked_work")
    os.kill(second._process.pid, signal.SIGKILL)
    second._process.wait()
    worker = start_worker("forked_work")
    assert ask(worker)[1] == fork_server("forked_work")._process.pid
    worker.close()


def test_a_forked_process_starts_a_server_of_its_own(server, monkeypatch):
    assert fork_server("forked_work") is server
    with monkeypatch.context() as patch:
        patch.setattr(process_id, "current", -1)
        assert not server.is_usable
        server.close()
    worker = server.start_worker()
    assert ask(worker)[1] == server._process.pid, "a forked process ended what is its parent's"
    worker.close()
