"""Temporary replacement of attributes: of modules, classes and PyTorch's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tunewright.torch.inductor.adapter import hook


@contextmanager
def replaced_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute while the context is open, and puts back exactly what was there."""
    inherited = isinstance(owner, type) and name not in vars(owner)
    before = vars(owner)[name] if name in vars(owner) else getattr(owner, name)  # a class method as it is stored
    setattr(owner, name, value)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def replaced_hook(path: str, value: Any) -> AbstractContextManager[None]:
    """Replaces a part of PyTorch's internals, given by its path, while the context is open."""
    hook(path)  # imports its module
    owner, _, name = path.rpartition(".")
    return replaced_attribute(hook(owner), name, value)
