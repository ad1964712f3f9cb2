"""Phases of compiling: where its time goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tunewright.torch.inductor.adapter import EVENT, Record

_PREFIXES = (
    ("C++ compiler", ("compile_file", "async_compile.wait", "PyCodeCache.load_by_key_path")),
    ("guards", ("build_guards",)),
    ("tracing Python", ("bytecode_tracing",)),
    ("autograd", ("create_aot_dispatcher_function", "aot_", "min_cut")),
    ("graph passes", ("pass.", "_recursive_", "additional_fake_tensor_prop")),
    ("writing code", ("code_gen", "GraphLowering", "Scheduler", "PythonWrapperCodegen", "fx_codegen")),
    ("caches", ("fx_graph_cache", "autograd_cache", "inductor_codecache", "CacheBase", "TritonBundler")),
)
OTHER = "other"


def phases(records: Iterable[Record]) -> tuple[tuple[str, float], ...]:
    """Returns seconds by phase, longest first; the time of an event inside another counts once."""
    totals: dict[str, float] = defaultdict(float)
    open_events: dict[object, list[list[float | str]]] = defaultdict(list)
    for record in records:
        if record.name != EVENT or record.fields.get("ph") not in ("B", "E"):
            continue
        stack = open_events[record.fields.get("tid")]
        name, now = str(record.fields.get("name")), float(record.fields.get("ts") or 0)
        if record.fields["ph"] == "B":
            stack.append([name, now, 0.0])
        elif stack and stack[-1][0] == name:
            _, began, inside = stack.pop()
            duration = now - float(began)
            totals[_phase(name)] += max(0.0, duration - float(inside)) / 1e6
            if stack:
                stack[-1][2] = float(stack[-1][2]) + duration
    return tuple(sorted(totals.items(), key=lambda row: -row[1]))


def _phase(name: str) -> str:
    return next((phase for phase, prefixes in _PREFIXES if name.startswith(prefixes)), OTHER)
