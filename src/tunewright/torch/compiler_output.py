"""Parsing of the compiler's output: graphs, kernels and the memory plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from tunewright.torch.inductor.tracing import HANDLE
from tunewright.torch.report.compile_report import BufferLifetime, GraphOperation
from tunewright.torch.report.diagnosis import CodeLocation

_FILE = re.compile(r"# File: (?P<file>.+?):(?P<line>\d+) in ")
_ASSIGNED = re.compile(r'^\s+(?P<name>\w+)(?:: "(?P<result>[^"]*)")? = (?P<right>.+)$')
_PARAMETER = re.compile(r'(\w+): "([^"]*)"')
_LAYOUT = re.compile(r"^(\w+\[[^\]]*\]).*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\((?:\[.*?\], )?r?'''\n?(.*?)'''", re.MULTILINE | re.DOTALL)
_ALLOCATED = re.compile(r"^\s+(buf\d+) = empty_strided\w*\(\(([^)]*)\), \([^)]*\), (?:device=\S+ )?torch\.(\w+)\)")
_REUSED = re.compile(r"^\s+(buf\d+) = .*?\b(buf\d+)\b.*; del \2  # reuse")
_RETURNED = re.compile(r"^\s+(buf\d+) = (?!empty_strided|reinterpret_tensor|buf)")
_FREED = re.compile(r"^\s+del (buf\d+)$")
_CAST = re.compile(r"static_cast<int64_t>\(([^()]+?)L?\)")
_INDUCTOR = "def call(self, args):"

WIDTHS = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


def operations(text: str) -> list[GraphOperation]:
    """Returns the operations of a printed graph, each with the line of Python it comes from."""
    parsed: list[GraphOperation] = []
    location = CodeLocation()
    known = {name for name, _ in _PARAMETER.findall(text.partition("def forward(")[2].partition("):\n")[0])}
    for line in text.splitlines():
        if file := _FILE.search(line):
            location = CodeLocation(file["file"], int(file["line"]))
        if (match := _ASSIGNED.match(line)) is None:
            continue
        right = match["right"].partition(";")[0]
        if "(" not in right and "[" not in right and not re.search(r"\s[-+*/@]\s", right):
            known.add(match["name"])  # another name for an argument
            continue
        reads = tuple(dict.fromkeys(word for word in _WORD.findall(right) if word in known))
        parsed.append(GraphOperation(match["name"], _called(right), _shape(match["result"] or ""), reads, location))
        known.add(match["name"])
    return parsed


def shapes(text: str) -> dict[str, str]:
    """Returns the shape of each value of a graph by name, arguments included: `f32[8, 64]`."""
    return {name: _shape(layout) for name, layout in _PARAMETER.findall(text)}


def sizes(shape: str) -> list[int]:
    """Returns the sizes in `f32[8, 64]`; symbols count as one."""
    inner = shape.partition("[")[2].partition("]")[0]
    return [int(part) if part.strip().isdigit() else 1 for part in inner.split(",") if part.strip()]


def _shape(layout: str) -> str:
    return _LAYOUT.sub(r"\1", layout)


def _called(right: str) -> str:
    """Returns the usual name of what is called: `addmm` for `torch.ops.aten.addmm.default(...)`."""
    if (head := right.partition("(")[0]) != right and re.fullmatch(r"[\w.]+", head):
        parts = head.removeprefix("torch.ops.").split(".")
        return parts[1] if head.startswith("torch.ops.") else parts[-1]
    if re.fullmatch(r"\w+\[.*\]", right):
        return "getitem"
    signs = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul"}
    return next((name for sign, name in signs.items() if f" {sign} " in right), "expression")


class KernelCall(NamedTuple):
    """A kernel call of the generated program: the handle of the kernel, and the line that calls it."""

    handle: str
    line: str


def kernels(code: str) -> dict[str, str]:
    """Returns the generated kernels by name, without headers, casts of numbers and checks."""
    return {name: _clean(body) for name, body in _KERNEL.findall(code)}


def _clean(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.startswith("#include") and "integer_div_error" not in line)
    return _CAST.sub(r"\1", "\n".join(lines))


def steps(code: str) -> list[KernelCall]:
    """Returns the kernel calls of the generated program in order."""
    calls: list[KernelCall] = []
    lines = code.splitlines()
    for number, line in enumerate(lines):
        if HANDLE in line:
            rest = (later.strip() for later in lines[number + 1 :] if not later.strip().startswith("#"))
            calls.append(KernelCall(line.partition(HANDLE)[2].strip(), next(rest, "")))
    return calls


def buffers(code: str, results: Mapping[str, int]) -> list[BufferLifetime]:
    """Returns the memory plan: buffers with the steps between which they are needed.

    `results` has the bytes of buffers that library calls return, which are not in the code.
    """
    live: dict[str, tuple[int, int, str]] = {}
    ended: list[BufferLifetime] = []
    step = 0
    for line in code.partition(_INDUCTOR)[2].partition("\nrunner = ")[0].splitlines():
        if HANDLE in line:
            step += 1
        elif match := _ALLOCATED.match(line):
            count = prod(int(part) for part in match[2].split(",") if part.strip().isdigit())
            live[match[1]] = (count * WIDTHS.get(match[3], 4), step + 1, "")
        elif match := _REUSED.match(line):
            size, since, reuses = live.pop(match[2], (results.get(match[1], 0), step + 1, ""))
            if since <= step:
                ended.append(BufferLifetime(match[2], size, since, step, reuses))
                live[match[1]] = (size, step + 1, match[2])
            else:  # only another name, before anything was written
                live[match[1]] = (size, since, reuses)
        elif match := _FREED.match(line):
            if match[1] in live:
                size, since, reuses = live.pop(match[1])
                ended.append(BufferLifetime(match[1], size, since, max(step, since), reuses))
        elif (match := _RETURNED.match(line)) and match[1] in results:
            live[match[1]] = (results[match[1]], step, "")
    ended += [
        BufferLifetime(name, size, since, max(step, since), reuses) for name, (size, since, reuses) in live.items()
    ]
    return sorted(ended, key=lambda buffer: (buffer.born, buffer.dies, buffer.name))
