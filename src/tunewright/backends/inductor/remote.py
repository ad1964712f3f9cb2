"""Remote: PyTorch's own remote caches of compiled graphs, kept wherever somebody keeps bytes by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from tunewright.backends.inductor.adapter import hook

CACHES = ("RemoteFxGraphCache", "RemoteAOTAutogradCache")
_HOME = "torch._inductor.remote_cache"


@contextmanager
def kept(fetch: Callable[[str], bytes | None], keep: Callable[[str, bytes], None], tag: str) -> Iterator[None]:
    """While this is open, compiled graphs are looked for and kept so; `tag` becomes part of every key of every cache.

    The settings are those of the whole process, since what compiles may do so in any thread.
    """
    verbs = {"_get": lambda _, name: fetch(name), "_put": lambda _, name, body: keep(name, body)}
    backend = type("Kept", (hook(f"{_HOME}.RemoteCacheBackend"),), verbs)
    with ExitStack() as opened:
        for name in CACHES:
            opened.enter_context(_replaced(hook(f"{_HOME}.{name}"), "backend_override_cls", backend))
        opened.enter_context(hook("torch._inductor.config.patch")({"fx_graph_remote_cache": True}))
        opened.enter_context(hook("torch._functorch.config.patch")({"enable_remote_autograd_cache": True}))
        opened.enter_context(_replaced(torch.compiler.config, "cache_key_tag", _joined(tag)))
        yield


def _joined(tag: str) -> str:
    before = torch.compiler.config.cache_key_tag
    return f"{before} {tag}".strip()


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
