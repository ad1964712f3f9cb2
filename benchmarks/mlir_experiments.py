"""What limits a product of 1024^3 and other schedules: experiments that change one thing each.

    python benchmarks/mlir_experiments.py [--quick] [--json] [--only NAME]

Each experiment calls the same kernel as it is and with one thing changed, in turn, on one thread, by the CPU time of
the thread. `ratio` is the time as it is over the time changed, the median of neighbours: above 1 the change helps.
`best_ratio` is that of the least of each, which the load of the machine disturbs least.

- `arrays`: arrays that start at a page instead of 16 bytes after it
- `huge_pages`: arrays in huge pages, which the kernel of the system is asked for by madvise
- `heap`: the allocator gives the memory of the panels back at each call, instead of keeping it, as it does by default
- `row_stride`: rows of a that do not start at the same set of the L1 cache
- `k_blocks`: blocks of terms, so that a panel of b stays in L1
- `panel_prefetch`: the panel of b is prefetched some terms ahead
- `row_prefetch`: the rows of a are prefetched some terms ahead
- `packing_order`: how many terms are packed at a time
- `column_blocks`: how many columns a block has
- `register_block`: other blocks of sums
- `more_rows`: 1020 rows, in blocks of 5 and 6 instead of 4: fewer reads of the panel of b for the same work
- `short_sums`: the same work as 2, 4, 8 products with fewer terms, whose panels of b are so much smaller
- `filter_alignment`: of a convolution that does not pack, the filters alone start at a cache line
- `softmax_prefetch`: the next row is prefetched, or not
- `layer_norm_floor`: no arithmetic at all, a copy of the same bytes; and the next row prefetched
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import ctypes
import mmap
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser

from mlir import in_turn
from tunewright.backends.host import cpu
from tunewright.mlir import compiler, payloads
from tunewright.mlir.backend import argument_types
from tunewright.mlir.contraction_plans import contraction_plan
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.launch import MlirLaunch
from tunewright.mlir.linking import link
from tunewright.mlir.nest_plans import VECTOR_PATTERNS
from tunewright.mlir.payload import Payload
from tunewright.mlir.row_plans import row_plan
from tunewright.mlir.schedule import Schedule
from tunewright.model.signature import In, Out, Parameter

SIZE = 1024
PRODUCT = {"variant": "packed columns", "mr": 4, "nr": 64, "kr": 8, "nc": 128, "pk": 16}
PAGE, LINE = 4096, 64
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt

Call = Callable[[], Any]


def built(
    payload: Payload,
    plan: Any,
    config: dict[str, Any],
    change: Callable[[Any, Any], int] | None = None,
    *,
    keeps: bool = True,
) -> Callable[..., Any]:
    """A payload with the schedule of a config; `change` alters the program before it is lowered."""
    ir, passes, engine, _ = compiler._import_torch_mlir()
    script = plan.schedule(config).script()
    with tempfile.TemporaryDirectory() as folder:
        unit, shared = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        if change is None:
            compiler.compile_object(payload.text, script, unit)
        else:
            with ir.Context(), ir.Location.unknown():
                module = ir.Module.parse(compiler.apply_script(payload.text, script))
                if not change(ir, module):
                    raise RuntimeError("the program has no place for this change")
                for pipeline in compiler.lowering_passes(payload.text, script.options, 1):
                    passes.parse(pipeline).run(module.operation)
                made = engine(module, 3, [], True, True)
                made.lookup(payload.name)
                made.dump_to_object_file(str(unit))
        link(unit, shared, keeps_memory=keeps)
        library = ctypes.CDLL(str(shared))
    roles = tuple(Parameter(arg.name, Out if arg.written else In) for arg in payload.arguments)
    return MlirLaunch(library[f"_mlir_ciface_{payload.name}"], roles, argument_types(payload.text, payload.name))


def array(values: np.ndarray, start: int = 16, *, huge: bool = False) -> np.ndarray:
    """A copy that starts so many bytes after a page, as arrays of numpy do 16 bytes after one."""
    room = mmap.mmap(-1, values.nbytes + (1 << 22))
    if huge:
        room.madvise(mmap.MADV_HUGEPAGE)
    first = np.frombuffer(room, np.uint8).ctypes.data
    offset = (-first) % (1 << 21 if huge else PAGE) + start
    made = np.frombuffer(room, np.uint8)[offset : offset + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def numbers(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def product(**changed: Any) -> Callable[..., Any]:
    payload = payloads.matmul(SIZE, SIZE, SIZE, after="relu")
    return built(payload, gemm_plan(payload), PRODUCT | changed)


def on_arrays(function: Callable[..., Any], **how: Any) -> Call:
    a, b = numbers((SIZE, SIZE), (SIZE, SIZE))
    args = [array(one, **how) for one in (a, b, np.zeros((SIZE, SIZE), np.float32))]
    return lambda: function(*args)


def arrays() -> dict[str, Call]:
    made = product()
    return {
        "as it is": on_arrays(made),
        "at a line": on_arrays(made, start=LINE),
        "at a page": on_arrays(made, start=0),
    }


def huge_pages() -> dict[str, Call]:
    made = product()
    return {"as it is": on_arrays(made), "huge pages": on_arrays(made, huge=True)}


def heap() -> dict[str, Call]:
    """Panels kept between calls, as kernels do; or kept by the allocator, or given back to the system in each call."""
    payload, library = payloads.matmul(SIZE, SIZE, SIZE, after="relu"), ctypes.CDLL(None)
    call = on_arrays(built(payload, gemm_plan(payload), PRODUCT, keeps=False))

    def with_limit(size: int) -> Call:
        def run() -> None:
            library.mallopt(TRIM_THRESHOLD, size)
            library.mallopt(MMAP_THRESHOLD, size)
            call()

        return run

    return {
        "as it is": on_arrays(product()),
        "by the allocator": with_limit(1 << 30),
        "given back": with_limit(128 << 10),
    }


def row_stride() -> dict[str, Call]:
    """Rows of a that start at the same set of the L1 cache, or not: K = 1024 or 1040, which is 1.6 % more work."""
    calls = {}
    for name, terms in (("as it is", SIZE), ("1040 terms", SIZE + 16)):
        payload = payloads.matmul(SIZE, SIZE, terms, after="relu")
        made = built(payload, gemm_plan(payload), PRODUCT | {"mr": 8, "nr": 32, "kr": 4})
        args = [array(one) for one in (*numbers((SIZE, terms), (terms, SIZE)), np.zeros((SIZE, SIZE), np.float32))]
        calls[name] = lambda made=made, args=args: made(*args)
    return calls


class KBlocks:
    """A plan of one schedule: blocks of terms around panels of b, which then stay in L1; a in panels too, or not."""

    def __init__(self, payload: Payload, rows: bool) -> None:
        self.payload, self.rows = payload, rows

    def schedule(self, config: dict[str, int]) -> Schedule:
        s, mr, nr = Schedule(), config["mr"], config["nr"]
        packed = s.pack(s.match("linalg.matmul")[0], [mr if self.rows else 0, nr, 0])
        s.pack_transpose(s.producer(packed, 1), packed, [1, 0], ())
        s.cleanup("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")
        block, relu = s.match("linalg.generic", count=2)
        (unpack,), (fill,) = s.match("linalg.unpack"), s.match("linalg.fill")
        tile, (loop,) = s.tile(relu, [0, config["nc"]], "forall")
        for producer in (unpack, block, fill):
            fused, loop = s.fuse(producer, loop)
            block, fill = (fused if producer is block else block), fused
        s.tile(tile, [mr, nr])
        high = 1 if self.rows else mr
        for sizes in ([0, 0, config["kc"]], [0, 1, 0], [high, 0, 0], [0, 0, config["kr"]]):
            block, _ = s.tile(block, sizes)
        s.tile(fill, [high, 1])
        s.cleanup()
        s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
        for pack in s.match("linalg.pack", count=1 + self.rows):
            s.tile(s.lower_pack(pack), [0, 16])
        s.lower_unpack(s.match("linalg.unpack")[0])
        s.vectorize_all("linalg.generic", "linalg.fill")
        for patterns in VECTOR_PATTERNS:
            s.cleanup("canonicalization", *patterns)
            s.hoist()
        s.bufferize()
        s.sequentialize(1)
        s.lower()
        return s


def k_blocks() -> dict[str, Call]:
    payload = payloads.matmul(SIZE, SIZE, SIZE, after="relu")
    config = {"mr": 8, "nr": 32, "kr": 4, "nc": 512, "kc": 128}
    made = {name: built(payload, KBlocks(payload, rows), config) for name, rows in (("b", False), ("a and b", True))}
    changed = {f"128 terms, panels of {name}": on_arrays(one) for name, one in made.items()}
    return {"as it is": on_arrays(product())} | changed


def ahead(distance: int, scratch: bool) -> Callable[[Any, Any], int]:
    """Prefetch, in the innermost loop over terms, what it loads so many terms later: the panel, or the rows of a."""

    def change(ir: Any, module: Any) -> int:
        places: list[tuple[Any, Any]] = []

        def look(op: Any) -> Any:
            if op.name in ("vector.load", "memref.load") and op.parent.name == "scf.for":
                block = op.parent.regions[0].blocks[0]
                of_scratch = not isinstance(op.operands[0], ir.BlockArgument)
                if of_scratch == scratch and block.arguments[0] in list(op.operands)[1:]:
                    places.append((op, block.arguments[0]))
            return ir.WalkResult.ADVANCE

        module.operation.walk(look)
        for op, term in places:
            with ir.InsertionPoint(op):
                index = ir.IndexType.get()
                value = ir.IntegerAttr.get(index, distance)
                by = ir.Operation.create("arith.constant", results=[index], attributes={"value": value}).results[0]
                later = ir.Operation.create("arith.addi", results=[index], operands=[term, by]).results[0]
                where = [later if one == term else one for one in list(op.operands)[1:]]
                ir.Operation.create(
                    "memref.prefetch",
                    operands=[op.operands[0], *where],
                    attributes={
                        "isWrite": ir.BoolAttr.get(False),
                        "isDataCache": ir.BoolAttr.get(True),
                        "localityHint": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 3),
                    },
                )
        return len(places)

    return change


def _prefetched(scratch: bool, distances: Sequence[int]) -> dict[str, Call]:
    payload = payloads.matmul(SIZE, SIZE, SIZE, after="relu")
    plan = gemm_plan(payload)
    calls = {"as it is": on_arrays(product())}
    for distance in distances:
        calls[f"{distance} terms ahead"] = on_arrays(built(payload, plan, PRODUCT, ahead(distance, scratch)))
    return calls


def panel_prefetch() -> dict[str, Call]:
    return _prefetched(True, (8, 16, 32))


def row_prefetch() -> dict[str, Call]:
    return _prefetched(False, (16, 64, 256))


def packing_order() -> dict[str, Call]:
    return {"as it is": on_arrays(product())} | {f"pk={pk}": on_arrays(product(pk=pk)) for pk in (4, 64)}


def column_blocks() -> dict[str, Call]:
    return {"as it is": on_arrays(product())} | {f"nc={nc}": on_arrays(product(nc=nc)) for nc in (256, 512)}


def register_block() -> dict[str, Call]:
    blocks = {"8 x 32": {"mr": 8, "nr": 32}, "8 x 32, 4 terms": {"mr": 8, "nr": 32, "kr": 4}, "4 terms": {"kr": 4}}
    return {"as it is": on_arrays(product())} | {name: on_arrays(product(**block)) for name, block in blocks.items()}


def sized(rows: int, terms: int, calls: int = 1, **changed: Any) -> Call:
    """A product with so many rows and terms, called so many times."""
    payload = payloads.matmul(rows, SIZE, terms, after="relu")
    made = built(payload, gemm_plan(payload), PRODUCT | changed)
    args = [array(one) for one in (*numbers((rows, terms), (terms, SIZE)), np.zeros((rows, SIZE), np.float32))]

    def run() -> None:
        for _ in range(calls):
            made(*args)

    return run


def more_rows() -> dict[str, Call]:
    changed = {f"{mr} x 64, {kr} terms": sized(1020, SIZE, mr=mr, kr=kr) for mr, kr in ((5, 8), (6, 4), (6, 8))}
    return {"as it is": sized(1020, SIZE)} | changed


def short_sums() -> dict[str, Call]:
    changed = {f"{calls} x {SIZE // calls} terms": sized(SIZE, SIZE // calls, calls) for calls in (2, 4, 8)}
    return {"as it is": sized(SIZE, SIZE)} | changed


def filter_alignment() -> dict[str, Call]:
    payload = payloads.conv2d((1, 58, 58, 64), 64, 3, after="relu")
    plan = contraction_plan(payload, reuses=inf)
    x, filters = numbers((1, 58, 58, 64), (3, 3, 64, 64))
    args, out = [array(x), array(filters)], array(np.zeros((1, 56, 56, 64), np.float32))
    plain = built(payload, plan, {"variant": "unpacked rows", "mr": 8, "nr": 32, "kr": 4})
    packed = built(payload, plan, {"variant": "packed rows", "mr": 8, "nr": 32, "kr": 4})
    aligned = array(filters, start=0)
    return {
        "as it is": lambda: plain(*args, out),
        "filters at a line": lambda: plain(args[0], aligned, out),
        "filters in panels": lambda: packed(*args, out),
    }


def softmax_prefetch() -> dict[str, Call]:
    payload = payloads.softmax(SIZE, SIZE)
    plan, (x,) = row_plan(payload), numbers((SIZE, SIZE))
    x, out = array(x), array(np.zeros((SIZE, SIZE), np.float32))
    config = {"variant": "side by side", "mr": 1, "tj": 64}
    made = [built(payload, plan, config | {"prefetch": place}) for place in (0, 1, 2)]
    return {
        "as it is": lambda: made[0](x, out),
        "while powers are computed": lambda: made[1](x, out),
        "while they are scaled": lambda: made[2](x, out),
    }


def layer_norm_floor() -> dict[str, Call]:
    payload = payloads.layer_norm(SIZE, SIZE)
    plan, (x, scale, shift) = row_plan(payload), numbers((SIZE, SIZE), (SIZE,), (SIZE,))
    x, out = array(x), array(np.zeros((SIZE, SIZE), np.float32))
    config = {"variant": "side by side", "mr": 1, "tj": 64}
    plain, ahead = (built(payload, plan, config | {"prefetch": place}) for place in (0, 1))
    return {
        "as it is": lambda: plain(x, scale, shift, out),
        "next row prefetched": lambda: ahead(x, scale, shift, out),
        "a copy alone": lambda: np.copyto(out, x),
    }


EXPERIMENTS = (
    arrays, huge_pages, heap, row_stride, k_blocks, panel_prefetch, row_prefetch, packing_order, column_blocks,
    register_block, more_rows, short_sums, filter_alignment, softmax_prefetch,
    layer_norm_floor,
)  # fmt: skip


def compared(experiment: Callable[[], dict[str, Call]], rounds: int) -> dict[str, Any]:
    """Times of an experiment, each change beside what it changes."""
    found = in_turn(experiment(), rounds, time.thread_time)
    base = found.pop("as it is")
    changes = {
        name: {
            "ratio": round(float(np.median(base / times)), 3),
            "best_ratio": round(float(base.min() / times.min()), 3),
            "spread": [round(float(one), 3) for one in np.percentile(base / times, (10, 90))],
        }
        for name, times in found.items()
    }
    return {"ms": round(1e3 * float(np.median(base)), 3), "best_ms": round(1e3 * float(base.min()), 3)} | changes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments, report."""
    takes = parser(__doc__)
    known = {experiment.__name__: experiment for experiment in EXPERIMENTS}
    takes.add_argument("--only", action="append", choices=known, help="this experiment alone; may be repeated")
    given = takes.parse_args(arguments)
    report, load, rounds = Report(), os.getloadavg()[0], 8 if given.quick else 60
    report.lines.append(f"{cpu().model}, load {load:.1f} on {os.cpu_count()} processors before it began")
    found = {}
    for name in given.only or known:
        found[name] = compared(known[name], rounds)
        said = [
            f"{what} {one['ratio']:.3f} ({one['best_ratio']:.3f})"
            for what, one in found[name].items()
            if isinstance(one, dict)
        ]
        report.lines.append(f"{name:>18}  {found[name]['best_ms']:8.3f} ms as it is; {'; '.join(said)}")
        print(report.lines[-1], file=sys.stderr, flush=True)
    headlines = {"packed_filters": ("filter_alignment", "filters in panels"),
                 "prefetched_rows": ("softmax_prefetch", "while powers are computed")}  # fmt: skip
    ratios = {figure: found[name][what]["ratio"] for figure, (name, what) in headlines.items() if name in found}
    report.figures = ratios | {
        "experiments": found,
        "load": round(load, 2),
        "quick": given.quick,
        "processor": cpu().model,
    }
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
