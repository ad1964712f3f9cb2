"""What the workers of `test_fork_server.py` do."""

import os
import signal

from tunewright.pools.fork_server import serve_forks
from tunewright.pools.worker_process import Channel
from tunewright.stores import serialization


def work(channel: Channel) -> None:
    while (body := channel.wait_message()) is not None:
        word = serialization.decode(body, str)
        if word == "abort":
            os.write(2, b"an assertion failed")
            os.abort()
        if word == "hang":
            signal.pause()
        channel.send([os.getpid(), os.getppid()])


def main() -> None:
    serve_forks(work)
