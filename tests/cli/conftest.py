"""A terminal for programs to write to."""

import os
import pty
import subprocess

import pytest


class Terminal:
    """Starts programs on a terminal of its own, and reads what they wrote until they end."""

    def __init__(self):
        self._master, self._slave = pty.openpty()

    def start(self, command, **more):
        process = subprocess.Popen(command, stdout=self._slave, stderr=self._slave, **more)
        os.close(self._slave)
        return process

    def read(self) -> str:
        seen = b""
        while True:
            try:
                seen += os.read(self._master, 4096)
            except OSError:  # the last who could write has ended
                os.close(self._master)
                return seen.decode()


@pytest.fixture
def terminal():
    return Terminal()
