"""Compatibility of compiled code: what it depends on, and what differs between two environments."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from tunewright.backends import host
from tunewright.torch.inductor import adapter

_SHORT = 8
"""Digits of the digest of a line: enough to find the line that changed, without revealing it."""


class SourceDigest(msgspec.Struct, frozen=True):
    """The source of a class or function: the name of its file, and a short digest of each line."""

    file: str
    lines: tuple[str, ...]


class Compatibility(msgspec.Struct, frozen=True, omit_defaults=True):
    """The environment that code was compiled in.

    `isa` is what the processor offers, `capability` what PyTorch uses of it, which may be less. With `-march=native` a
    compiler may use more than is listed, so the model of the `processor` counts too.
    """

    torch: str
    machine: str
    isa: tuple[str, ...]
    capability: str
    processor: str
    threads: int
    config: dict[str, str] = {}
    sources: dict[str, SourceDigest] = {}
    weights: str = ""


class Difference(NamedTuple):
    """Something that differs between two environments: its name, both values, and what to do."""

    name: str
    there: str
    here: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.there} there, {self.here} here; {self.remedy}"


ALLOWABLE = ("processor", "threads", "source", "weights")
"""Differences that a caller may allow: the shipped code still computes what it was compiled for."""

_REBUILD = "build the bundle again"
_REMEDIES = {
    "torch": "install the release it was made with, or build it again with this one",
    "machine": f"{_REBUILD} on such a machine",
    "isa": f"{_REBUILD} on a processor like this one",
    "capability": f"{_REBUILD} with what PyTorch uses here, or set ATEN_CPU_CAPABILITY",
    "processor": 'its code may use instructions that this one lacks: build it again here, or allow=["processor"]',
    "threads": 'call torch.set_num_threads({there}) first, or allow=["threads"]',
    "source": f'the model changed since: {_REBUILD}, or allow=["source"] to run it as it was',
    "weights": f'the weights changed since: {_REBUILD}, or allow=["weights"] to run with those it was made with',
}


def current(model: Any = None, config: Mapping[str, Any] | None = None) -> Compatibility:
    """Returns the environment of this process, with the source and weights of `model` if it is given."""
    device = host.cpu()
    return Compatibility(
        torch=str(torch.__version__),
        machine=f"{platform.system()} {device.architecture}",
        isa=device.features,
        capability=torch.backends.cpu.get_cpu_capability(),
        processor=device.model,
        threads=torch.get_num_threads(),
        config={name: repr(value) for name, value in sorted((config or {}).items())},
        sources={} if model is None else dict(_sources(model)),
        weights="" if model is None else _weights(model),
    )


def set_threads(count: int) -> None:
    """Sets the number of threads, which becomes part of what is compiled."""
    torch.set_num_threads(count)


def cache_tag() -> str:
    """Returns a short digest that separates cached code for different processors and releases."""
    now = current()
    return host.digest(now.torch, now.machine, " ".join(now.isa), now.capability, now.processor)[:16]


def differences(built: Compatibility, now: Compatibility) -> list[Difference]:
    """Returns what is different `now`; sources and weights only if there is a model to compare with.

    A processor of the same model that offers more instructions is no difference.
    """
    found = [_difference(name, built, now) for name in ("torch", "machine", "capability", "processor", "threads")]
    lacking = sorted(set(built.isa) - set(now.isa))
    if lacking:
        found.append(Difference("isa", " ".join(lacking), "not offered", _REMEDIES["isa"]))
    if now.sources or now.weights:
        found += _source_differences(built, now)
        found.append(_difference("weights", built, now))
    known = [difference for difference in found if difference is not None]
    return sorted(known, key=lambda difference: difference.name in ALLOWABLE)


def _difference(name: str, built: Compatibility, now: Compatibility) -> Difference | None:
    there, here = str(getattr(built, name)), str(getattr(now, name))
    if there == here:
        return None
    return Difference(name, there, here, _REMEDIES[name].format(there=there))


def _source_differences(built: Compatibility, now: Compatibility) -> Iterator[Difference]:
    """Yields the sources that changed, each with the lines that changed."""
    for name in sorted(built.sources.keys() | now.sources.keys()):
        old, new = built.sources.get(name), now.sources.get(name)
        if old is None or new is None:
            there, here = ("in it" if source else "not in it" for source in (old, new))
            yield Difference("source", f"{name} {there}", here, _REMEDIES["source"])
        elif old.lines != new.lines:
            blocks = SequenceMatcher(None, old.lines, new.lines, autojunk=False).get_opcodes()
            changed = [start + 1 for kind, _, _, start, _ in blocks if kind != "equal"]
            numbers = ", ".join(map(str, changed[:5]))
            there = f"{name} of {len(old.lines)} lines"
            here = f"another from its line {numbers} on ({new.file})"
            yield Difference("source", there, here, _REMEDIES["source"])


def _sources(model: Any) -> Iterator[tuple[str, SourceDigest]]:
    """Yields the classes that a model is made of, or its function, without PyTorch's own."""
    inner, _ = adapter.unwrap_compiled(model)
    parts = {type(part) for part in inner.modules()} if isinstance(inner, torch.nn.Module) else {inner}
    for part in sorted(parts, key=lambda part: f"{part.__module__}.{part.__qualname__}"):
        if part.__module__.partition(".")[0] == "torch":
            continue
        try:
            lines, file = inspect.getsourcelines(part)[0], inspect.getsourcefile(part)
        except (OSError, TypeError):
            continue
        digests = tuple(sha256(line.rstrip().encode()).hexdigest()[:_SHORT] for line in lines)
        yield part.__qualname__, SourceDigest(Path(file or "").name, digests)


def _weights(model: Any) -> str:
    """Returns a digest of all parameters and buffers."""
    inner, _ = adapter.unwrap_compiled(model)
    if not isinstance(inner, torch.nn.Module):
        return ""
    state = sha256()
    for name, tensor in sorted(inner.state_dict().items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return state.hexdigest()[:32]
