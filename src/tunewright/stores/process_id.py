"""The id of this process, kept up to date after a fork without a system call for each use."""

from __future__ import annotations

import os

current = os.getpid()
"""The id of this process. Always read it as `process_id.current`: a fork changes it."""


def _update() -> None:
    global current  # noqa: PLW0603 - a fork changes it
    current = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_update)
