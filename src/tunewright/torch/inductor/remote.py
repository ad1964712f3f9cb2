"""PyTorch's remote caches of compiled graphs, backed by any storage of bytes by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.patching import replaced_attribute

CACHES = ("RemoteFxGraphCache", "RemoteAOTAutogradCache")
_MODULE = "torch._inductor.remote_cache"


@contextmanager
def use_remote_cache(
    fetch: Callable[[str], bytes | None], keep: Callable[[str, bytes], None], tag: str
) -> Iterator[None]:
    """Looks up and keeps compiled graphs with `fetch` and `keep`; `tag` becomes part of every cache key.

    The settings apply to the whole process, since any thread may compile.
    """
    methods = {"_get": lambda _, name: fetch(name), "_put": lambda _, name, body: keep(name, body)}
    backend = type("StoreBackend", (hook(f"{_MODULE}.RemoteCacheBackend"),), methods)
    key_tag = f"{torch.compiler.config.cache_key_tag} {tag}".strip()
    with ExitStack() as contexts:
        for name in CACHES:
            contexts.enter_context(replaced_attribute(hook(f"{_MODULE}.{name}"), "backend_override_cls", backend))
        contexts.enter_context(hook("torch._inductor.config.patch")({"fx_graph_remote_cache": True}))
        contexts.enter_context(hook("torch._functorch.config.patch")({"enable_remote_autograd_cache": True}))
        contexts.enter_context(replaced_attribute(torch.compiler.config, "cache_key_tag", key_tag))
        yield
