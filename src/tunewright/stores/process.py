"""Process: which process this is, after a fork too, without asking the kernel each time."""

from __future__ import annotations

import os

number = os.getpid()
"""The number of this process. Look it up in the module: a fork changes it."""


def _forked() -> None:
    global number  # noqa: PLW0603 - it is what a fork changes
    number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
