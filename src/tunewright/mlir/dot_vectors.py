"""Blocks of products in vectors, as texts of functions: by dot-product instructions, or widened for any processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tunewright.mlir.dot_blocks import BITS, GROUP_BITS, LANES, DotBlock, flattened

WORDS = f"vector<{LANES}xi32>"

Sums = Mapping[tuple[int, int], str]
"""Names of the sums by row and panel; row -1 has what is subtracted at the end."""


def vector_block(block: DotBlock) -> str:
    """Returns the function that computes a block in vectors: sums stay in registers over all terms.

    The instruction for int8 multiplies unsigned by signed numbers, so 128 is added to those of a; that many times the
    sum of each column of b is subtracted at the end. Rows of a that have to be changed before they are multiplied are
    changed 16 groups at a time, and read back from memory.
    """
    changes = (block.widens or block.flips) and block.groups >= LANES
    block = replace(block, separate=changes)  # memory on the stack would be allocated in each iteration of its caller
    kind = f"vector<{LANES}x{block.sums}>"
    at = [(i, j) for i in range(block.rows) for j in range(block.panels)]
    sums: Sums = {(i, j): "%zeros" if block.clears else f"%sum{i}_{j}" for i, j in at}
    sums = {**sums, **{(-1, j): "%zeros" for j in range(block.panels) if block.flips}}
    lines = _constants(block)
    if not block.clears:
        lines += [f"%sum{i}_{j} = vector.load {block.result(i, j)} : {block.types[2]}, {kind}" for i, j in at]
    whole = block.groups // LANES * LANES if changes else 0
    if whole:
        lines += _loop(block, ("tiles", "0", str(whole), str(LANES)), sums, lambda inner: _tile(block, inner))
        sums = _results("tiles", sums)
    if whole < block.groups:
        rest = ("rest", str(whole), str(block.groups), "1")
        lines += _loop(block, rest, sums, lambda inner: _products(block, "%rest", inner, ""))
        sums = _results("rest", sums)
    for i, j in at:
        value = sums[i, j]
        if block.flips:
            lines.append(f"%right{i}_{j} = arith.subi {value}, {sums[-1, j]} : {kind}")
            value = f"%right{i}_{j}"
        lines.append(f"vector.store {value}, {block.result(i, j)} : {block.types[2]}, {kind}")
    return block.function(lines)


def _constants(block: DotBlock) -> list[str]:
    """Returns both operands as rows of vectors, and what all of a block needs."""
    zero, half = ("0" if block.sums == "i32" else "0.0"), f"vector<{LANES * block.terms}xi8>"
    left, _ = flattened("a", block.types[0], _left_shape(block), block.element)
    right, _ = flattened("b", block.types[1], _right_shape(block), block.element)
    lines = [
        *left,
        *right,
        f"%zeros = arith.constant dense<{zero}> : vector<{LANES}x{block.sums}>",
        f"%flips = arith.constant dense<-2139062144> : {WORDS}",
        f"%upper = arith.constant dense<-65536> : {WORDS}",
        f"%half = arith.constant dense<-128> : {half}",
        *(f"%shift{count} = arith.constant dense<{count}> : {WORDS}" for count in (0, 8, 16, 24)),
    ]
    return [*lines, f"%changed = memref.alloca() : {_changed(block)}"] if block.separate else lines


def _left_shape(block: DotBlock) -> list[int]:
    return [*([block.rows] if block.has_rows else []), block.groups, block.terms]


def _right_shape(block: DotBlock) -> list[int]:
    return [*([block.panels] if block.has_panels else []), block.groups, LANES, block.terms]


def _parts(block: DotBlock) -> int:
    """Returns how many words a word of a is changed into."""
    return block.terms if block.widens else 1


def _changed(block: DotBlock) -> str:
    """Returns the type of the changed words of 16 groups of all rows."""
    return f"memref<{block.rows}x{_parts(block)}x{LANES}x{_word(block)}>"


def _word(block: DotBlock) -> str:
    """Returns the type of a changed word."""
    return block.sums if block.widens else "i32"


def _loop(
    block: DotBlock, around: tuple[str, str, str, str], sums: Sums, inside: Callable[[Sums], tuple[list[str], Sums]]
) -> list[str]:
    """Returns a loop that carries the sums: its name, where it starts and ends, its step, and what is inside it."""
    name, start, end, step = around
    carried = {at: f"%{name}_at{number}" for number, at in enumerate(sums)}
    lines, results = inside(carried)
    types = ", ".join([f"vector<{LANES}x{block.sums}>"] * len(sums))
    given = ", ".join(f"{carried[at]} = {value}" for at, value in sums.items())
    return [
        f"%{name}_sums:{len(sums)} = scf.for %{name} = %n{start} to %n{end} step %n{step} "
        f"iter_args({given}) -> ({types}) {{",
        *lines,
        f"scf.yield {', '.join(results[at] for at in sums)} : {types}",
        "}",
    ]


def _results(name: str, sums: Sums) -> Sums:
    """Returns the names of what a loop returns."""
    return {at: f"%{name}_sums#{number}" for number, at in enumerate(sums)}


def _tile(block: DotBlock, sums: Sums) -> tuple[list[str], Sums]:
    """Returns the operations of 16 groups: those that change words of a, and a loop over the groups."""
    wide, stored = f"vector<{LANES * block.terms}x{block.element}>", f"vector<{LANES}x{_word(block)}>"
    plain = flattened("a", "", _left_shape(block), block.element)[1]
    lines = [f"%start = arith.muli %tiles, %n{block.terms} : index"]
    for i in range(block.rows):
        row = f"%n{i}, " if block.has_rows else ""
        lines += [
            f"%row{i} = vector.load %a_flat[{row}%start] : {plain}, {wide}",
            f"%row_words{i} = vector.bitcast %row{i} : {wide} to {WORDS}",
            *_change(block, f"row{i}", f"%row_words{i}"),
        ]
        lines += [
            f"vector.store %row{i}_{part}, %changed[%n{i}, %n{part}, %n0] : {_changed(block)}, {stored}"
            for part in range(_parts(block))
        ]

    def inside(inner: Sums) -> tuple[list[str], Sums]:
        more, results = _products(block, "%group", inner, "%in_tile")
        return ["%group = arith.addi %tiles, %in_tile : index", *more], results

    return [*lines, *_loop(block, ("in_tile", "0", str(LANES), "1"), sums, inside)], _results("in_tile", sums)


def _products(block: DotBlock, group: str, sums: Sums, place: str) -> tuple[list[str], Sums]:
    """Returns the loads and multiplications of one group of terms; words of a are changed unless they have a place
    among the changed ones.
    """
    wide = f"vector<{LANES * block.terms}x{block.element}>"
    panels = flattened("b", "", _right_shape(block), block.element)[1]
    tag, lines, results = group.strip("%"), [], {}
    for j in range(block.panels):
        at = block.right(j, group).replace("%b[", "%b_flat[").replace(", %n0, %n0]", ", %n0]")
        lines.append(f"%{tag}_b{j} = vector.load {at} : {panels}, {wide}")
        if block.widens:
            lines.append(f"%{tag}_words{j} = vector.bitcast %{tag}_b{j} : {wide} to {WORDS}")
            lines += _change(block, f"{tag}_b{j}", f"%{tag}_words{j}")
    for i in range(block.rows):
        lines += _read(block, (tag, i), place) if place else _repeat(block, (tag, i), group)
    for i, j in sums:
        left, right = (f"{tag}_a{i}" if i >= 0 else "half"), f"{tag}_b{j}"
        more, results[i, j] = _add(block, (left, right), sums[i, j], f"{tag}{_name_of_row(i)}_{j}")
        lines += more
    return lines, results


def _name_of_row(row: int) -> str:
    """Returns a row as a part of a name."""
    return "half" if row < 0 else str(row)


def _change(block: DotBlock, name: str, words: str) -> list[str]:
    """Returns the terms of each word as words of their own, the first of which is in its lowest bits; or raised words.

    A number of bfloat16 is the upper half of the same number in float32.
    """
    if not block.widens:
        return [f"%{name}_0 = arith.xori {words}, %flips : {WORDS}"]
    lines, bits = [], BITS[block.element]
    for term in range(block.terms):
        high = f"%{name}_high{term}"
        lines.append(f"{high} = arith.shli {words}, %shift{GROUP_BITS - bits * (term + 1)} : {WORDS}")
        if block.sums == "f32":
            lines.append(f"%{name}_upper{term} = arith.andi {high}, %upper : {WORDS}")
            lines.append(f"%{name}_{term} = vector.bitcast %{name}_upper{term} : {WORDS} to vector<{LANES}xf32>")
        else:
            lines.append(f"%{name}_{term} = arith.shrsi {high}, %shift{GROUP_BITS - bits} : {WORDS}")
    return lines


def _read(block: DotBlock, name: tuple[str, int], place: str) -> list[str]:
    """Returns the loads of the changed words of a row, each repeated over a vector."""
    (tag, row), lines = name, []
    kind = f"vector<{LANES}x{_word(block)}>"
    for part in range(_parts(block)):
        word = f"%{tag}_word{row}_{part}"
        lines.append(f"{word} = memref.load %changed[%n{row}, %n{part}, {place}] : {_changed(block)}")
        lines.append(f"%{tag}_a{row}_{part} = vector.broadcast {word} : {_word(block)} to {kind}")
    return lines if block.widens else [*lines, _as_elements(block, name)]


def _repeat(block: DotBlock, name: tuple[str, int], group: str) -> list[str]:
    """Returns the load of a group of a row of a, repeated over a vector, and changed if it has to be."""
    (tag, row), kind = name, f"vector<{block.terms}x{block.element}>"
    own = f"{tag}_a{row}"
    lines = [
        f"%{own}_group = vector.load {block.left(row, group)} : {block.types[0]}, {kind}",
        f"%{own}_bits = vector.bitcast %{own}_group : {kind} to vector<1xi32>",
        f"%{own}_word = vector.extract %{own}_bits[0] : i32 from vector<1xi32>",
    ]
    if not (block.widens or block.flips):
        return [*lines, f"%{own}_0 = vector.broadcast %{own}_word : i32 to {WORDS}", _as_elements(block, name)]
    lines += [f"%{own}_words = vector.broadcast %{own}_word : i32 to {WORDS}", *_change(block, own, f"%{own}_words")]
    return lines if block.widens else [*lines, _as_elements(block, name)]


def _as_elements(block: DotBlock, name: tuple[str, int]) -> str:
    """Returns the operation that sees repeated words as elements."""
    own = f"%{name[0]}_a{name[1]}"
    return f"{own} = vector.bitcast {own}_0 : {WORDS} to vector<{LANES * block.terms}x{block.element}>"


def _add(block: DotBlock, factors: tuple[str, str], total: str, name: str) -> tuple[list[str], str]:
    """Returns the operations that add products to a sum, and the result.

    Widened terms are added one after the other, as loops over them add them up.
    """
    kind, (left, right) = f"vector<{LANES}x{block.sums}>", factors
    if not block.widens:
        return [f"%sum_{name} = {_dot(block, (total, f'%{left}', f'%{right}'))}"], f"%sum_{name}"
    lines = []
    for term in range(block.terms):
        pair, result = f"%{left}_{term}, %{right}_{term}", f"%sum_{name}_{term}"
        if block.sums == "f32":
            lines.append(f"{result} = vector.fma {pair}, {total} : {kind}")
        else:
            lines.append(f"%times_{name}_{term} = arith.muli {pair} : {kind}")
            lines.append(f"{result} = arith.addi {total}, %times_{name}_{term} : {kind}")
        total = result
    return lines, total


def _dot(block: DotBlock, operands: tuple[str, str, str]) -> str:
    """Returns the instruction that adds the sums of products of groups."""
    kind, wide = f"vector<{LANES}x{block.sums}>", f"vector<{LANES * block.terms}x{block.element}>"
    if block.element == "bf16":
        return f"x86.avx512.dot {', '.join(operands)} : {wide} -> {kind}"
    types = f"({kind}, {wide}, {wide}) -> {kind}"
    return f'llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"({", ".join(operands)}) : {types}'
