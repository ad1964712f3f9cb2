"""Premises: what compiled code takes for granted of the place it runs in; where two places differ, and what follows."""

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
from tunewright.backends.inductor import adapter

_SHORT = 8
"""Hexadecimal digits that tell a line from others; a list of them says which line changed without giving it away."""


class Source(msgspec.Struct, frozen=True):
    """A class or function as it was compiled: its file's name, and a short digest of each line."""

    file: str
    lines: tuple[str, ...]


class Premises(msgspec.Struct, frozen=True, omit_defaults=True):
    """What code was compiled under.

    `isa` is what the processor offers, `capability` what PyTorch makes of it, which may be less. With the usual
    `-march=native` a compiler may use more than is listed, so that another `processor` counts too.
    """

    torch: str
    machine: str
    isa: tuple[str, ...]
    capability: str
    processor: str
    threads: int
    config: dict[str, str] = {}
    sources: dict[str, Source] = {}
    weights: str = ""


class Difference(NamedTuple):
    """A premise that does not hold here: its name, as it was, as it is, and what to do."""

    name: str
    there: str
    here: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.there} there, {self.here} here; {self.remedy}"


FORGIVEN = ("processor", "threads", "source", "weights")
"""Differences that a caller may allow: the results are those of the code that was shipped, or it cannot be known."""

_REBUILD = "build the bundle again"
_REMEDIES = {
    "torch": "install the release it was made with, or build it again with this one",
    "machine": f"{_REBUILD} on such a machine",
    "isa": f"{_REBUILD} on a processor like this one",
    "capability": f"{_REBUILD} with what PyTorch uses here, or see to ATEN_CPU_CAPABILITY",
    "processor": 'its code may use instructions that this one lacks: build it again here, or allow=["processor"]',
    "threads": 'call torch.set_num_threads({there}) first, or allow=["threads"]',
    "source": f'the model changed since: {_REBUILD}, or allow=["source"] to run it as it was',
    "weights": f'the weights changed since: {_REBUILD}, or allow=["weights"] to run with those it was made with',
}


def here(model: Any = None, config: Mapping[str, Any] | None = None) -> Premises:
    """What holds in this process, for a model if one is given."""
    device = host.cpu()
    return Premises(
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


def use_threads(count: int) -> None:
    """Compute with so many threads from here on: how many there are goes into what is compiled."""
    torch.set_num_threads(count)


def tag() -> str:
    """What keeps code for one kind of processor from being taken for another's, as a short digest."""
    now = here()
    return host.digest(now.torch, now.machine, " ".join(now.isa), now.capability, now.processor)[:16]


def differences(made: Premises, now: Premises) -> list[Difference]:
    """What does not hold `now`; sources and weights only where there is a model to compare with.

    A processor that offers more than was used is no difference, if it is the same model.
    """
    found = [_plain(name, made, now) for name in ("torch", "machine", "capability", "processor", "threads")]
    lacking = sorted(set(made.isa) - set(now.isa))
    if lacking:
        found.append(Difference("isa", " ".join(lacking), "not offered", _REMEDIES["isa"]))
    if now.sources or now.weights:
        found += _changed(made, now)
        found.append(_plain("weights", made, now))
    told = [one for one in found if one is not None]
    return sorted(told, key=lambda one: one.name in FORGIVEN)


def _plain(name: str, made: Premises, now: Premises) -> Difference | None:
    there, found = str(getattr(made, name)), str(getattr(now, name))
    if there == found:
        return None
    return Difference(name, there, found, _REMEDIES[name].format(there=there))


def _changed(made: Premises, now: Premises) -> Iterator[Difference]:
    """The sources that are others now, each with the lines that changed."""
    for name in sorted(made.sources.keys() | now.sources.keys()):
        was, found = made.sources.get(name), now.sources.get(name)
        if was is None or found is None:
            there, now_here = ("in it" if one else "not in it" for one in (was, found))
            yield Difference("source", f"{name} {there}", now_here, _REMEDIES["source"])
        elif was.lines != found.lines:
            pairs = SequenceMatcher(None, was.lines, found.lines, autojunk=False).get_opcodes()
            spots = [low + 1 for kind, _, _, low, _ in pairs if kind != "equal"]
            where = ", ".join(map(str, spots[:5]))
            there = f"{name} of {len(was.lines)} lines"
            yield Difference("source", there, f"another from its line {where} on ({found.file})", _REMEDIES["source"])


def _sources(model: Any) -> Iterator[tuple[str, Source]]:
    """The classes that a model is made of, or the function it is, but for PyTorch's own."""
    inner, _ = adapter.original(model)
    parts = {type(part) for part in inner.modules()} if isinstance(inner, torch.nn.Module) else {inner}
    for part in sorted(parts, key=lambda one: f"{one.__module__}.{one.__qualname__}"):
        if part.__module__.partition(".")[0] == "torch":
            continue
        try:
            lines, file = inspect.getsourcelines(part)[0], inspect.getsourcefile(part)
        except (OSError, TypeError):
            continue
        short = tuple(sha256(line.rstrip().encode()).hexdigest()[:_SHORT] for line in lines)
        yield part.__qualname__, Source(Path(file or "").name, short)


def _weights(model: Any) -> str:
    """A digest of every parameter and buffer."""
    inner, _ = adapter.original(model)
    if not isinstance(inner, torch.nn.Module):
        return ""
    whole = sha256()
    for name, tensor in sorted(inner.state_dict().items()):
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        whole.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return whole.hexdigest()[:32]
