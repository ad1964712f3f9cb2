"""Blocks of products as texts of functions, and those that compute them in tiles (AMX)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

LANES = 16
"""Rows of a tile, and sums in a row of it or in a vector."""

GROUP_BITS = 32
"""Bits of the terms that an instruction adds up to one sum."""

BITS = {"bf16": 16, "i8": 8}
"""Elements that there are such instructions for, with their bits."""

SUMS = {"bf16": "f32", "i8": "i32"}
"""The types of their sums."""


@dataclass(frozen=True)
class DotBlock:
    """A block of a product: c[row, panel, column] += a[row, group, term] b[panel, group, column, term].

    `types` are those of the memrefs; one without rows, or without panels, has only one. A group is as many terms as one
    sum of an instruction takes: 2 of bf16, 4 of int8. With `clears`, c starts from zero. A `separate` block is not
    inlined: tile registers have one shape each in a function. One that `widens` needs no such instructions.
    """

    name: str
    types: tuple[str, str, str]
    rows: int
    panels: int
    groups: int
    element: str
    has_rows: bool = True
    has_panels: bool = True
    clears: bool = False
    separate: bool = False
    widens: bool = False

    @property
    def terms(self) -> int:
        """Terms of a group."""
        return GROUP_BITS // BITS[self.element]

    @property
    def flips(self) -> bool:
        """Whether the instruction multiplies unsigned by signed numbers, so that those of a are raised by 128."""
        return self.element == "i8" and not self.widens

    @property
    def sums(self) -> str:
        """The type of the sums."""
        return SUMS[self.element]

    def left(self, row: int, group: str) -> str:
        """Returns the place of a group in a row of a."""
        return f"%a[{f'%n{row}, ' if self.has_rows else ''}{group}, %n0]"

    def right(self, panel: int, group: str) -> str:
        """Returns the place of a group in a panel of b."""
        return f"%b[{f'%n{panel}, ' if self.has_panels else ''}{group}, %n0, %n0]"

    def result(self, row: int, panel: int) -> str:
        """Returns the place of a row of a panel of c."""
        rows, panels = f"%n{row}, " if self.has_rows else "", f"%n{panel}, " if self.has_panels else ""
        return f"%c[{rows}{panels}%n0]"

    def function(self, lines: Sequence[str]) -> str:
        """Returns a private function of the three arrays."""
        counts = (self.rows, self.panels, self.terms)
        numbers = {LANES, self.groups, self.groups // LANES * LANES, *range(max(*counts, 2)), self.terms}
        constants = [f"%n{number} = arith.constant {number} : index" for number in sorted(numbers)]
        return function_text(self.name, dict(zip("abc", self.types, strict=True)), [*constants, *lines], self.separate)


def function_text(name: str, arguments: dict[str, str], lines: Sequence[str], separate: bool = False) -> str:
    """Returns a private function; a `separate` one is not inlined."""
    heads = ", ".join(f"%{argument}: {kind}" for argument, kind in arguments.items())
    body = "\n".join(f"  {line}" for line in lines)
    options = "attributes {no_inline, llvm.no_inline} " if separate else ""
    return f"func.func private @{name}({heads}) {options}{{\n{body}\n  return\n}}\n"


def _row_tiles(rows: int) -> list[tuple[int, int]]:
    """Returns the first row and the number of rows of each tile, which are about equal."""
    count = -(-rows // LANES)
    starts = [rows * i // count for i in range(count + 1)]
    return [(start, end - start) for start, end in pairwise(starts)]


def _strides(array: str, kind: str, element: str, rank: int) -> str:
    """Returns the operation that names the strides of an array."""
    sizes, strides = ([f"%{array}_{what}{i}" for i in range(rank)] for what in ("size", "stride"))
    results = ", ".join([f"memref<{element}>", *["index"] * (1 + 2 * rank)])
    names = ", ".join([f"%{array}_base, %{array}_offset", *sizes, *strides])
    return f"{names} = memref.extract_strided_metadata %{array} : {kind} -> {results}"


def flattened(array: str, kind: str, shape: Sequence[int], element: str) -> tuple[list[str], str]:
    """Returns the operations that join the last two dimensions, as `%a_flat` or `%b_flat`, and the type of that."""
    *around, width, terms = shape
    rank, size = len(shape), width * terms
    sizes = [*map(str, around), str(size)]
    strides = [*(f"%{array}_stride{i}" for i in range(rank - 2)), "1"]
    unknown = ", ".join(["?"] * len(around) + ["1"])
    plain = f"memref<{'x'.join(sizes)}x{element}, strided<[{unknown}], offset: ?>>"
    return [
        _strides(array, kind, element, rank),
        f"%{array}_flat = memref.reinterpret_cast %{array}_base to offset: [%{array}_offset], "
        f"sizes: [{', '.join(sizes)}], strides: [{', '.join(strides)}] : memref<{element}> to {plain}",
    ], plain


def tile_block(block: DotBlock) -> str:
    """Returns the function that computes a block in tiles: sums stay in tile registers over all terms.

    Groups that fill no tile have tiles of other shapes, so a separate function adds them.
    """
    whole = block.groups // LANES * LANES
    if whole in (0, block.groups):
        return _tiles(block, 0, block.groups)
    most = replace(block, name=f"{block.name}_whole", separate=False)
    rest = replace(block, name=f"{block.name}_rest", clears=False, separate=True)
    calls = [f"func.call @{part.name}(%a, %b, %c) : ({', '.join(part.types)}) -> ()" for part in (most, rest)]
    return _tiles(most, 0, whole) + _tiles(rest, whole, block.groups) + block.function(calls)


def _tiles(block: DotBlock, start: int, end: int) -> str:
    """Returns the function that adds some groups of a block in tiles: whole tiles of them, or less than one."""
    rows = _row_tiles(block.rows)
    sums = [(i, j) for i in range(len(rows)) for j in range(block.panels)]
    kinds = {i: f"!x86.amx.tile<{count}x{LANES}x{block.sums}>" for i, (_, count) in enumerate(rows)}
    lines = [
        _strides("a", block.types[0], block.element, 2 + block.has_rows),
        _strides("b", block.types[1], block.element, 3 + block.has_panels),
        _strides("c", block.types[2], block.sums, 1 + block.has_rows + block.has_panels),
    ]
    places = {(i, j): block.result(rows[i][0], j) for i, j in sums}
    for i, j in sums:
        first = "zero" if block.clears else f"load {places[i, j]}, %c_stride0 : {block.types[2]} into"
        lines.append(f"%sum{i}_{j} = x86.amx.tile_{first}{' :' if block.clears else ''} {kinds[i]}")
    if end - start < LANES:
        lines += _tile_products(block, (f"%n{start}", end - start), {at: f"%sum{at[0]}_{at[1]}" for at in sums}, "end")
        last = {at: f"%end{at[0]}_{at[1]}" for at in sums}
    else:
        types = ", ".join(kinds[i] for i, _ in sums)
        carried = ", ".join(f"%at{i}_{j} = %sum{i}_{j}" for i, j in sums)
        lines += [
            f"%looped:{len(sums)} = scf.for %k = %n{start} to %n{end} step %n{LANES} "
            f"iter_args({carried}) -> ({types}) {{",
            *_tile_products(block, ("%k", LANES), {at: f"%at{at[0]}_{at[1]}" for at in sums}, "in"),
            f"scf.yield {', '.join(f'%in{i}_{j}' for i, j in sums)} : {types}",
            "}",
        ]
        last = {at: f"%looped#{number}" for number, at in enumerate(sums)}
    lines += [
        f"x86.amx.tile_store {places[at]}, {last[at]}, %c_stride0 : {block.types[2]}, {kinds[at[0]]}" for at in sums
    ]
    return block.function(lines)


def _tile_products(block: DotBlock, groups: tuple[str, int], sums: dict[tuple[int, int], str], name: str) -> list[str]:
    """Returns the loads and multiplications of some groups of terms: the first one, and how many; results by name."""
    (group, count), rows = groups, _row_tiles(block.rows)
    right, stride = f"!x86.amx.tile<{count}x{LANES * block.terms}x{block.element}>", f"%b_stride{int(block.has_panels)}"
    letter = "f" if block.sums == "f32" else "i"
    lines = [
        f"%{name}_b{j} = x86.amx.tile_load {block.right(j, group)}, {stride} : {block.types[1]} into {right}"
        for j in range(block.panels)
    ]
    for i, (start, high) in enumerate(rows):
        left = f"!x86.amx.tile<{high}x{count * block.terms}x{block.element}>"
        total = f"!x86.amx.tile<{high}x{LANES}x{block.sums}>"
        lines.append(
            f"%{name}_a{i} = x86.amx.tile_load {block.left(start, group)}, %a_stride0 : {block.types[0]} into {left}"
        )
        lines += [
            f"%{name}{i}_{j} = x86.amx.tile_mul{letter} %{name}_a{i}, %{name}_b{j}, {sums[i, j]} : "
            f"{left}, {right}, {total}"
            for j in range(block.panels)
        ]
    return lines


def block_of_either(block: DotBlock, rows: tuple[int, ...], write: Callable[[DotBlock], str]) -> str:
    """Returns the functions of a block whose rows, known only when it runs, are one of two numbers; and of both."""
    cases = [
        replace(
            block, name=f"{block.name}_{high}", rows=high, separate=high != rows[0] and write is tile_block,
            types=(_with_rows(block.types[0], high), block.types[1], _with_rows(block.types[2], high)),
        )
        for high in rows
    ]  # fmt: skip
    lines = [
        f"%rows = memref.dim %a, %n0 : {block.types[0]}",
        f"%most = arith.constant {rows[0]} : index",
        "%whole = arith.cmpi eq, %rows, %most : index",
        "scf.if %whole {",
        *_call(block, cases[0]),
        "} else {",
        *_call(block, cases[1]),
        "}",
    ]
    return "".join([*map(write, cases), block.function(lines)])


def _with_rows(kind: str, rows: int) -> str:
    """Returns the type of an array with a known first size."""
    return kind.replace("<?x", f"<{rows}x", 1)


def _call(block: DotBlock, case: DotBlock) -> list[str]:
    """Returns the operations that call a block with arrays of its own types."""
    return [
        f"%{name}_{case.rows} = memref.cast %{name} : {kind} to {known}"
        for name, kind, known in (("a", block.types[0], case.types[0]), ("c", block.types[2], case.types[2]))
    ] + [f"func.call @{case.name}(%a_{case.rows}, %b, %c_{case.rows}) : ({', '.join(case.types)}) -> ()"]
