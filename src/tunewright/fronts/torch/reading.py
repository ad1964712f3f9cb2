"""Reading: graphs, kernels and the memory plan, from the text that the compiler writes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from tunewright.backends.inductor.watching import HANDLE
from tunewright.report.diagnosis import Place
from tunewright.report.journey import Buffer, Operation

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


def operations(text: str) -> list[Operation]:
    """The operations of a graph as the compiler prints it, each with the line of Python it comes from."""
    found: list[Operation] = []
    place = Place()
    known = {name for name, _ in _PARAMETER.findall(text.partition("def forward(")[2].partition("):\n")[0])}
    for line in text.splitlines():
        if at := _FILE.search(line):
            place = Place(at["file"], int(at["line"]))
        if (said := _ASSIGNED.match(line)) is None:
            continue
        right = said["right"].partition(";")[0]
        if "(" not in right and "[" not in right and not re.search(r"\s[-+*/@]\s", right):
            known.add(said["name"])  # another name for an argument
            continue
        reads = tuple(dict.fromkeys(word for word in _WORD.findall(right) if word in known))
        found.append(Operation(said["name"], _called(right), _shape(said["result"] or ""), reads, place))
        known.add(said["name"])
    return found


def shapes(text: str) -> dict[str, str]:
    """What each value of a graph is, arguments included: `f32[8, 64]`."""
    return {name: _shape(said) for name, said in _PARAMETER.findall(text)}


def sizes(shape: str) -> list[int]:
    """The sizes in `f32[8, 64]`; symbols count as one."""
    inner = shape.partition("[")[2].partition("]")[0]
    return [int(part) if part.strip().isdigit() else 1 for part in inner.split(",") if part.strip()]


def _shape(said: str) -> str:
    return _LAYOUT.sub(r"\1", said)


def _called(right: str) -> str:
    """What is called, as people say it: `addmm` for `torch.ops.aten.addmm.default(...)`."""
    if (head := right.partition("(")[0]) != right and re.fullmatch(r"[\w.]+", head):
        parts = head.removeprefix("torch.ops.").split(".")
        return parts[1] if head.startswith("torch.ops.") else parts[-1]
    if re.fullmatch(r"\w+\[.*\]", right):
        return "getitem"
    signs = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul"}
    return next((name for sign, name in signs.items() if f" {sign} " in right), "expression")


class Call(NamedTuple):
    """A step of the generated program: the handle of a kernel, and the line that calls it."""

    handle: str
    line: str


def kernels(code: str) -> dict[str, str]:
    """The generated kernels by name, without what stands in each of them: headers, casts of numbers, a check."""
    return {name: _tidied(body) for name, body in _KERNEL.findall(code)}


def _tidied(body: str) -> str:
    kept = (line for line in body.splitlines() if not line.startswith("#include") and "integer_div_error" not in line)
    return _CAST.sub(r"\1", "\n".join(kept))


def steps(code: str) -> list[Call]:
    """The kernels in the order in which the generated program calls them."""
    found: list[Call] = []
    lines = code.splitlines()
    for number, line in enumerate(lines):
        if HANDLE in line:
            rest = (later.strip() for later in lines[number + 1 :] if not later.strip().startswith("#"))
            found.append(Call(line.partition(HANDLE)[2].strip(), next(rest, "")))
    return found


def buffers(code: str, results: Mapping[str, int]) -> list[Buffer]:
    """The memory plan: buffers with the steps between which they are needed.

    `results` are the bytes of buffers that library calls return, which the code does not say.
    """
    born: dict[str, tuple[int, int, str]] = {}
    done: list[Buffer] = []
    step = 0
    for line in code.partition(_INDUCTOR)[2].partition("\nrunner = ")[0].splitlines():
        if HANDLE in line:
            step += 1
        elif said := _ALLOCATED.match(line):
            size = prod(int(part) for part in said[2].split(",") if part.strip().isdigit()) * WIDTHS.get(said[3], 4)
            born[said[1]] = (size, step + 1, "")
        elif said := _REUSED.match(line):
            size, since, reuses = born.pop(said[2], (results.get(said[1], 0), step + 1, ""))
            if since <= step:
                done.append(Buffer(said[2], size, since, step, reuses))
                born[said[1]] = (size, step + 1, said[2])
            else:  # only another name, before anything was written
                born[said[1]] = (size, since, reuses)
        elif said := _FREED.match(line):
            if said[1] in born:
                size, since, reuses = born.pop(said[1])
                done.append(Buffer(said[1], size, since, max(step, since), reuses))
        elif (said := _RETURNED.match(line)) and said[1] in results:
            born[said[1]] = (results[said[1]], step, "")
    done += [Buffer(name, size, since, max(step, since), reuses) for name, (size, since, reuses) in born.items()]
    return sorted(done, key=lambda one: (one.born, one.dies, one.name))
