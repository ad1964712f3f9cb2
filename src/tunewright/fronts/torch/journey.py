"""Journey: follows one model from Python to machine code, and times what comes out of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from tunewright.backends import host
from tunewright.backends.inductor import adapter, watching
from tunewright.backends.inductor.watching import Seen, Step
from tunewright.errors import BackendError
from tunewright.fronts.torch import reading, roofline
from tunewright.fronts.torch.patient import Patient, is_torchs, quietly
from tunewright.report import words
from tunewright.report.diagnosis import Place
from tunewright.report.journey import VIEWS, Change, Contest, Journey, Kernel, Operation, Roof

CAPTURED, LOWERED, FINAL = "dynamo_output_graph", "before_post_grad_graph", "inductor_post_grad_graph"
CODE, ORIGINS = "inductor_output_code", "inductor_provenance_tracking_node_mappings"
TIMED = 25
"""Calls in which each kernel is timed."""


def journey(model: Any, *arguments: Any, **how: Any) -> Journey:
    """How a model gets from Python to machine code when it is compiled and called so; the largest graph, if several.

    What else is given goes to `torch.compile`. Code that this process has compiled is dropped on the way.
    """
    adapter.trusted()
    inner, known = adapter.original(model)
    patient = Patient(inner, (arguments,), {**known, **how})
    torch.compiler.reset()
    training = bool(getattr(inner, "training", False))
    with torch.set_grad_enabled(torch.is_grad_enabled() and training), watching.watched() as seen:
        with quietly(), adapter.overheard(everything=True) as heard:
            compiled = patient.compiled()
            compiled(*arguments)
        said, before = _largest(heard), roofline.measured(_dtype(arguments))
        with quietly(), watching.stepped(said[CODE]) as steps:
            for _ in range(TIMED):
                compiled(*arguments)
        with quietly():
            taken = _turns({"eager": inner, "compiled": compiled}, arguments)
    graphs = sum(record.name == CODE for record in heard)
    roof = roofline.better(before, roofline.measured(_dtype(arguments)))
    return _told(patient, said, seen, steps, (taken, graphs, roof))


def _turns(ways: Mapping[str, Any], arguments: Sequence[Any]) -> dict[str, float]:
    """The median time of a call each way, as kernels are timed: one call at a time, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TIMED):
        for name, launch in ways.items():
            began = perf_counter()
            launch(*arguments)
            taken[name].append(perf_counter() - began)
    return {name: median(times) for name, times in taken.items()}


def _largest(heard: Sequence[adapter.Record]) -> dict[str, str]:
    """What was said of the graph with most code, by name."""
    frames: dict[str, dict[str, str]] = {}
    for record in heard:
        if record.name in (CAPTURED, LOWERED, FINAL, CODE, ORIGINS):
            frames.setdefault(record.frame, {})[record.name] = record.text
    whole = [one for one in frames.values() if CODE in one and FINAL in one]
    if not whole:
        raise BackendError(
            "Inductor compiled nothing of this model: give it to torch.compile with the backend inductor, without "
            "cpp_wrapper, and let `tunewright torch doctor` say what breaks its graph"
        )
    return max(whole, key=lambda one: len(one[CODE]))


def _told(
    patient: Patient,
    said: Mapping[str, str],
    seen: Seen,
    steps: Mapping[str, Step],
    rest: tuple[dict[str, float], int, Roof],
) -> Journey:
    """All that was seen and heard, put in order."""
    taken, graphs, roof = rest
    captured, lowered, final = (reading.operations(said.get(name, "")) for name in (CAPTURED, LOWERED, FINAL))
    origins = json.loads(said.get(ORIGINS) or "{}")
    which = _which(seen, {one.name for one in final})
    names = {one.name: one.place for one in captured}
    changes = [_change(one) for one in seen.passes]
    notes = [] if graphs == 1 else [f"the model became {graphs} graphs; this is the largest"]
    notes += [] if steps else ["kernels were not timed one by one: their calls are not in Python"]
    return Journey(
        name=patient.name,
        source=tuple(_source(captured)),
        captured=tuple(captured),
        lowered=tuple(lowered),
        final=tuple(final),
        origins={
            post: tuple(name for name in pre if name in names) for post, pre in origins.get("postToPre", {}).items()
        },
        changes=tuple(one for one in changes if one.gone or one.new),
        idle=tuple(dict.fromkeys(one.name for one in changes if not one.gone and not one.new)),
        loops=len(seen.loops[which]) if which is not None else 0,
        kernels=tuple(_kernels(said, origins, _loops(seen, which), (final, steps, roof))),
        contests=tuple(
            Contest(
                f"{one.operation} {' '.join(one.sizes)}", tuple(sorted(one.seconds.items(), key=lambda row: row[1]))
            )
            for one in seen.races
        ),
        buffers=tuple(
            reading.buffers(said[CODE], {name: size for step in steps.values() for name, size in step.sizes.items()})
        ),
        roof=roof,
        times=taken,
        setting=f"{host.cpu().model}, {words.counted(torch.get_num_threads(), 'thread')}, torch {torch.__version__}",
        notes=tuple(notes),
    )


def _which(seen: Seen, final: set[str]) -> int | None:
    """Which of the graphs that were scheduled is the one with these operations."""
    fitting = [len(final & {name for loop in loops for name in loop.origins}) for loops in seen.fused]
    return fitting.index(max(fitting)) if fitting else None


def _loops(seen: Seen, which: int | None) -> list[watching.Loop]:
    return seen.fused[which] if which is not None else []


def _change(one: watching.Passed) -> Change:
    gone = Counter(_short(call) for name, call in one.before.items() if one.after.get(name) != call)
    new = Counter(_short(call) for name, call in one.after.items() if one.before.get(name) != call)
    told = (tuple(f"{count} x {call}" for call, count in found.items()) for found in (gone, new))
    return Change(one.name, len(one.before), len(one.after), *told)


def _short(call: str) -> str:
    return call.removeprefix("aten.").removesuffix(".default").removesuffix(".Tensor")


def _kernels(
    said: Mapping[str, str],
    origins: Mapping[str, Any],
    loops: Sequence[watching.Loop],
    known: tuple[Sequence[Operation], Mapping[str, Step], Roof],
) -> Iterator[Kernel]:
    """What runs, in order, with what it takes and what it could."""
    final, steps, roof = known
    bodies, shapes = reading.kernels(said[CODE]), reading.shapes(said[FINAL])
    by_name = {one.name: one for one in final}
    called = {one.name: one.call for one in reading.operations(said.get(CAPTURED, ""))}
    owned, joined = _owned(origins.get("cppCodeToPost", {}), final, bodies), _joined(origins, loops)
    for handle, line in reading.steps(said[CODE]):
        name = handle.rpartition(":")[0]
        made_of = owned.get(handle, ())
        step = steps.get(handle, Step())
        moved = sum(step.sizes.values()) + sum(
            size for one, size in step.sizes.items() if _written_over(bodies, name, line, one)
        )
        work = roofline.flops([by_name[one] for one in made_of], shapes)
        least, bound = roofline.least(roof, moved, work)
        yield Kernel(
            name=name.removeprefix("extern_kernels."),
            operations=made_of,
            label=_label(made_of, origins.get("postToPre", {}), called) if name in bodies else _library(name),
            loops=joined.get(handle, 1),
            code=bodies.get(name, ""),
            call=line,
            seconds=median(step.times) if step.times else 0.0,
            best=min(step.times, default=0.0),
            moved=moved,
            flops=work,
            least=least,
            bound=bound,
        )


def _owned(
    named: Mapping[str, Sequence[str]], final: Sequence[Operation], bodies: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The operations that each kernel computes: of those it is said to come from, which may go back to the arguments.

    A library call computes the last operation of its name; anything else belongs to the first kernel that names it.
    """
    names = {handle: handle.rpartition(":")[0] for handle in named}
    work = {
        handle: [one for one in final if one.name in said and one.call not in VIEWS] for handle, said in named.items()
    }
    found: dict[str, tuple[str, ...]] = {}
    for handle, made_of in work.items():
        if names[handle] not in bodies:
            same = [one.name for one in made_of if one.call in names[handle].split(".")]
            found[handle] = tuple(same[-1:] or (one.name for one in made_of))
    taken = {name for mine in found.values() for name in mine}
    for handle, made_of in work.items():
        if handle not in found:
            found[handle] = tuple(one.name for one in made_of if one.name not in taken)
            taken |= set(found[handle])
    return found


def _label(made_of: Sequence[str], captured: Mapping[str, Sequence[str]], called: Mapping[str, str]) -> str:
    """What a generated kernel does, by the captured operations it computes: `add, layer norm`."""
    calls = [called[name] for one in made_of for name in captured.get(one, ()) if name in called]
    return ", ".join(dict.fromkeys(calls)).replace("_", " ") or "copy, in another order"


def _library(name: str) -> str:
    """What a library call does, in words."""
    inner = name.removesuffix(".default").rpartition(".")[2]
    known = {"mm": "matrix product", "linear": "matrix product, packed", "scaled_dot_product": "attention"}
    return next((said for sign, said in known.items() if sign in inner), inner.strip("_").replace("_", " "))


def _joined(origins: Mapping[str, Any], loops: Sequence[watching.Loop]) -> Counter[str]:
    """How many loop nests each kernel is made of: those of the groups whose operations fit it best."""
    found: Counter[str] = Counter()
    kernels: Mapping[str, Sequence[str]] = origins.get("cppCodeToPost", {})
    for loop in (one for one in loops if not one.library):
        fitting = {
            handle: len(loop.origins & set(made)) / len(loop.origins | set(made)) for handle, made in kernels.items()
        }
        if any(fitting.values()):
            found[max(fitting, key=lambda handle: fitting[handle])] += len(loop.names)
    return found


def _written_over(bodies: Mapping[str, str], kernel: str, line: str, buffer: str) -> bool:
    """Whether a kernel reads a buffer and writes to it, so that its bytes move twice."""
    parameters = bodies.get(kernel, "").partition("{")[0].split(",")
    arguments = line.partition("(")[2].rpartition(")")[0].split(", ")
    if len(parameters) != len(arguments):
        return False
    return any(
        "in_out_ptr" in parameter and buffer == one for parameter, one in zip(parameters, arguments, strict=True)
    )


def _source(captured: Sequence[Operation]) -> Iterator[tuple[Place, str]]:
    """The lines of Python that the captured operations come from, from the first to the last of each file."""
    spans: dict[str, list[int]] = {}
    for one in captured:
        if one.place.file and not is_torchs(one.place):
            spans.setdefault(one.place.file, []).append(one.place.line)
    for file, lines in spans.items():
        try:
            text = Path(file).read_text().splitlines()
        except (OSError, ValueError):
            continue
        first = max(0, min(lines) - 3)
        yield from ((Place(file, number), line) for number, line in enumerate(text[first : max(lines)], first + 1))


def _dtype(arguments: Sequence[Any]) -> Any:
    """The kind of number that the model computes with, as its first argument says."""
    kinds = [one.dtype for one in arguments if isinstance(one, torch.Tensor) and one.dtype.is_floating_point]
    return kinds[0] if kinds else torch.float32
