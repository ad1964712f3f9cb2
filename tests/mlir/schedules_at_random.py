"""Schedules put together at random, and such schedules deliberately broken in one step."""

from __future__ import annotations

import re

import numpy as np

from tunewright.mlir.handles import Handle
from tunewright.mlir.schedule import Schedule
from tunewright.mlir.script import TransformScript

SIZES = [1, 2, 3, 4, 5, 8, 16]


def tiles(rng: np.random.Generator, loops: int) -> list[int]:
    sizes = [int(rng.choice([0, *SIZES])) for _ in range(loops)]
    return sizes if any(sizes) else [4] + [0] * (loops - 1)


def _reshaped(rng: np.random.Generator, s: Schedule, product: Handle) -> Handle:
    if rng.random() < 0.3:
        product = s.interchange(product, [int(i) for i in rng.permutation(3)])
    if rng.random() < 0.2:
        product = s.pad(product, [int(rng.choice([1, 2, 4])) for _ in range(3)])
    if rng.random() < 0.7:
        order = [int(i) for i in rng.permutation(3)] if rng.random() < 0.5 else ()
        product, _ = s.tile(product, tiles(rng, 3), order=order)
    if rng.random() < 0.2:
        s.promote(product, int(rng.integers(2)))
    return product


def schedule_at_random(rng: np.random.Generator) -> Schedule:
    """For a product with a function after it: any mixture of steps, sizes that divide and sizes that do not."""
    s = Schedule()
    product, after, fill = (s.match(name)[0] for name in ("linalg.matmul", "linalg.generic", "linalg.fill"))
    inner: list[Handle] = []
    if rng.random() < 0.6:
        after, (loop,) = s.tile(after, tiles(rng, 2), "forall")
        product, loop = s.fuse(product, loop)
        if rng.random() < 0.7:
            fill, loop = s.fuse(fill, loop)
        inner = [after, fill]
    product = _reshaped(rng, s, product)
    if rng.random() < 0.5:
        s.cleanup()
    elif rng.random() < 0.6:
        for one in (product, *inner):
            s.vectorize(one)
        s.cleanup("canonicalization", "vector.reduction_to_contract")
        if rng.random() < 0.5:
            s.hoist()
    if rng.random() < 0.7:
        s.bufferize()
        if rng.random() < 0.5:
            s.lower()
    return s


def _in_python(rng: np.random.Generator) -> None:
    """A mistake that is refused as it is written."""
    s = schedule_at_random(rng) if rng.random() < 0.3 else Schedule()
    if s.stage != "tensors":  # it has gone on: any step on tensors comes too late
        handle = s.match("linalg.generic")[0] if rng.random() < 0.5 else Handle("%x", "op", 1)
        s.tile(handle, [2])
    (product,), (after,) = s.match("linalg.matmul"), s.match("linalg.generic")
    tile, (loop,) = s.tile(after, [4, 8], "forall")
    broken = [
        lambda: s.tile(after, [2, 2]),
        lambda: s.tile(loop, [2]),
        lambda: s.fuse(product, tile),
        lambda: s.fuse(tile, loop),
        lambda: s.tile(tile, [-2, 4]),
        lambda: s.tile(tile, [0, 0]),
        lambda: s.tile(product, [2, 2, 2], order=[0, 0, 1]),
        lambda: s.tile(product, [2, 2, 2], "forall", order=[0, 1, 2]),
        lambda: s.tile(product, [2, 2, 2], "spiral"),
        lambda: s.interchange(product, [0, 2, 2]),
        lambda: s.pad(product, [0, 1, 1]),
        lambda: s.pack(product, [0, 0, 0]),
        lambda: s.promote(product, -1),
        lambda: s.match("matmul"),
        lambda: s.match("linalg.fill", count=0),
        lambda: s.vectorize(Schedule().match("linalg.matmul")[0]),
        s.lower,
        lambda: s.sequentialize(1),
        lambda: s.fuse(product, "loop"),
        lambda: s.producer(product, -1),
    ]
    broken[int(rng.integers(len(broken)))]()


def _in_text(rng: np.random.Generator) -> tuple[TransformScript, int]:
    """A script in which one step is wrong, and the number of that step."""
    s = Schedule()
    (product,), (after,) = s.match("linalg.matmul"), s.match("linalg.generic")
    _, (loop,) = s.tile(after, [4, 8], "forall")
    product, loop = s.fuse(product, loop)
    product, _ = s.tile(product, [2, 4, 4])
    s.cleanup()
    s.bufferize()
    lines = [list(step.lines) for step in s.steps]
    any_op = "!transform.any_op"
    ways = [
        (3, lambda line: line.replace("tile_sizes [4, 8]", "tile_sizes [4, 8")),
        (5, lambda line: line.replace("%fused4", "%nobody")),
        (5, lambda line: line.replace("%fused4", "%match1_0")),
        (3, lambda line: line.replace("tile_using_forall", "tile_using_foral")),
        (5, lambda line: line.replace(", %loop5_2", "").replace(f"{any_op}, {any_op})", f"{any_op})")),
        (3, lambda line: line.replace("[4, 8]", "[4, -8]")),
        (2, lambda line: line.replace("linalg.generic", "linalg.conv_2d")),
        (1, lambda line: line.replace("linalg.matmul", "linalg.fill_all")),
        (5, lambda line: line.replace("[2, 4, 4]", "[2, 4, 4] interchange = [0, 0, 2]")),
        (4, lambda line: line.replace("into %loop3_0", "into %match2_0")),
        (6, lambda line: line.replace("canonicalization", "canonisation")),
        (7, lambda line: line.replace("%root", "%rot")),
        (5, lambda line: line.replace(any_op, "!transform.any_value", 1)),
        (4, lambda line: line.replace("(!transform.any_op, !transform.any_op) ->", "(!transform.any_op) ->")),
        (3, lambda line: line.replace(f"({any_op}) -> ({any_op}, {any_op})", f"({any_op}) -> {any_op}")),
        (7, lambda line: line.replace("layout{IdentityLayoutMap}", "layout{NoSuchLayout}")),
    ]
    number, change = ways[int(rng.integers(len(ways)))]
    before = "\n".join(lines[number - 1])
    after_text = "\n".join(map(change, lines[number - 1]))
    assert after_text != before, (number, before)
    # In text every operation is a step of its own.
    changed = next(i for i, (x, y) in enumerate(zip(before.split("\n"), after_text.split("\n"), strict=True)) if x != y)
    whole = TransformScript.parse(str(s))
    # What finds nothing is refused by the operation that counts what was found, the next one.
    changed += "structured.match" in lines[number - 1][changed] and number < 3
    number = next(step.number for step in whole.steps if lines[number - 1][changed] in step.lines)
    return TransformScript.parse(str(s).replace(before, after_text)), number


def _on_payload(rng: np.random.Generator) -> tuple[TransformScript, int]:
    """A script that is valid in itself, with a step that cannot be taken on the payload."""
    s = Schedule()
    (product,), (after,) = s.match("linalg.matmul"), s.match("linalg.generic")
    ways = [
        lambda: s.tile(product, [0, 0, 4], "forall"),
        lambda: s.tile(product, [2, 0, 4], "forall"),
        lambda: s.tile(after, [4, 4, 4]),
        lambda: s.vectorize(s.tile(product, [5, 4, 4])[0]),
        lambda: s.interchange(product, [0, 1, 2, 3]),
        lambda: s.fuse(after, s.tile(product, [4, 4], "forall")[1][0]),
        lambda: s.match("linalg.generic", count=2),
        lambda: s.producer(product, 1),
        lambda: s.pad(product, [5, 5, 5], operands=2),
        lambda: s.lower_pack(product),
    ]
    ways[int(rng.integers(len(ways)))]()
    number = len(s.steps)
    if rng.random() < 0.5:
        s.bufferize()
    return s.script(), number


BROKEN = (_in_python, _in_text, _on_payload)


def named_step(said: str) -> int:
    """The number of the step that an error names."""
    found = re.search(r"step (\d+)", said)
    return int(found[1]) if found else 0
