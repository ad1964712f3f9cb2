"""Schedules written in Python, checked as they are written and printed as transform scripts."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.mlir.handles import ANY, Handle
from tunewright.mlir.packing_steps import PACK, PackingSteps

REASSOCIATE = "reassociate-fp-reductions"
"""Option of the lowering that allows any order of additions."""

POLYNOMIAL = "polynomial-exp"
"""Option of the lowering that computes exp by a series."""

PREFETCH = "prefetch_next"
"""Attribute of a loop that prefetches the next iteration of the loop around it; the lowering inserts it."""

DOT_TILES, DOT_VECTORS, DOT_WIDENED, INTERLEAVE = "dot_tiles", "dot_vectors", "dot_widened", "interleave_terms"
DOT_MARKS = (DOT_TILES, DOT_VECTORS, DOT_WIDENED, INTERLEAVE)
"""Attributes of a product that is computed by dot-product instructions on tiles or vectors, and of the copy for it; the
lowering replaces both, and without it they are loops."""

DOT_INSTRUCTIONS = "dot-instructions"
"""Option of the lowering that replaces what has these attributes."""

CLEANUP_PATTERNS = ("canonicalization", "linalg.tiling_canonicalization")
"""Patterns that simplify the result of a step."""

_LOWERING = (
    ("vector.lower_contraction lowering_strategy = outerproduct",),
    ("vector.transfer_to_scf max_transfer_rank = 1 full_unroll = true",),
    ("vector.lower_transfer max_transfer_rank = 1",),
    ("vector.lower_outerproduct",),
    ("vector.lower_broadcast",),
    ("vector.lower_transpose lowering_strategy = shuffle_16x16",),  # other sizes are left to the next line
    ("vector.lower_shape_cast", "vector.lower_transpose lowering_strategy = shuffle_1d"),
)
_REDUCTIONS = tuple(
    (f'vector.{name} lowering_strategy = "innerreduction"',)
    for name in ("reorder_multi_reduction_dims", "multi_reduction_flattening", "multi_reduction_unrolling")
)


class Schedule(PackingSteps):
    """A schedule. Each method adds a step; it takes handles and returns new ones."""

    def match(self, *ops: str, inside: Handle | None = None, count: int = 1) -> list[Handle]:
        """Returns exactly `count` operations of these names, in program order."""
        if not ops or any("." not in op for op in ops):
            self.reject("match", 'name operations with their dialect, such as "linalg.matmul"')
        if count < 1:
            self.reject("match", f"count is at least 1, not {count}")
        within = self.check_handle("match", inside) if inside else None
        root = f"{within} : ({within.type})" if within else f"{self.root} : ({ANY})"
        n = len(self.steps) + 1
        names, listed = [f"%match{n}_{i}" for i in range(count)], ", ".join(f'"{op}"' for op in ops)
        self.add(
            "match",
            f"%found{n} = transform.structured.match ops{{[{listed}]}} in {root} -> {ANY}",
            f"{', '.join(names)} = transform.split_handle %found{n} {{pass_through_empty_handle = false}} : "
            f"({ANY}) -> ({', '.join([ANY] * count)})",
        )
        kind = "loop" if ops[0] in ("scf.for", "scf.forall") else "op"
        return [self.new_handle(name, kind, inside=within) for name in names]

    def producer(self, of: Handle, operand: int, kind: str = PACK) -> Handle:
        """Returns the operation of type `kind` that produces an operand."""
        held = self.check_handle("producer", of, "op")
        if operand < 0:
            self.reject("producer", f"operands are counted from 0, not {operand}")
        n = self.add(
            "producer",
            f"%made{len(self.steps) + 1} = transform.get_producer_of_operand {held}[{operand}] : "
            f"({held.type}) -> {kind}",
        )
        return self.new_handle(f"%made{n}", type=kind, inside=held.inside)

    def tile(
        self, op: Handle, sizes: Sequence[int], using: str = "for", *, order: Sequence[int] = ()
    ) -> tuple[Handle, list[Handle]]:
        """Tile an operation (size 0: not this dimension). Returns the tile and the loops around it.

        "forall" makes one loop with parallel iterations; `order` is the order of the loops.
        """
        held = self.check_tensor_op("tile", op)
        self.check_sizes("tile", sizes)
        if using not in ("for", "forall"):
            self.reject("tile", f'loops are made using "for" or "forall", not {using!r}')
        if order:
            self.check_order("tile", order, len(sizes))
            if using == "forall":
                self.reject("tile", "a forall has no loop order")
        options = f" interchange = {list(order)}" if order else ""
        return self._tile("tile", held, f"transform.structured.tile_using_{using}", (sizes, using), options)

    def distribute(self, op: Handle, threads: int, dimension: int = 0) -> tuple[Handle, list[Handle]]:
        """Tile a dimension of an operation, the first by default, into one tile for each thread."""
        held = self.check_tensor_op("distribute", op)
        if threads < 1:
            self.reject("distribute", f"there is at least 1 thread, not {threads}")
        n, counts = len(self.steps) + 1, [0] * dimension + [threads]
        self.consume(held)
        self.add(
            "distribute",
            f"%tile{n}, %loop{n}_0 = transform.structured.tile_using_forall {held} num_threads {counts} : "
            f"({held.type}) -> ({held.type}, {ANY})",
        )
        loop = self.new_handle(f"%loop{n}_0", "loop", inside=held.inside)
        return self.new_handle(f"%tile{n}", type=held.type, inside=loop), [loop]

    def _tile(
        self, name: str, held: Handle, op: str, tiling: tuple[Sequence[int], str], options: str
    ) -> tuple[Handle, list[Handle]]:
        sizes, using = tiling
        n, count = len(self.steps) + 1, 1 if using == "forall" else sum(size > 0 for size in sizes)
        loops = [f"%loop{n}_{i}" for i in range(count)]
        self.consume(held)
        self.add(
            name,
            f"%tile{n}, {', '.join(loops)} = {op} {held} tile_sizes {list(sizes)}{options} : "
            f"({held.type}) -> ({', '.join([ANY] * (count + 1))})",
        )
        handles: list[Handle] = []
        for loop in loops:
            handles.append(self.new_handle(loop, "loop", inside=handles[-1] if handles else held.inside))
        return self.new_handle(f"%tile{n}", inside=handles[-1]), handles

    def fuse(self, producer: Handle, into: Handle) -> tuple[Handle, Handle]:
        """Fuse a producer into the loop that uses it. Returns the fused tile and the new loop around it."""
        held, loop = self.check_tensor_op("fuse", producer), self.check_handle("fuse", into, "loop")
        if held.is_within([loop]):
            self.reject("fuse", f"{held} is already inside {loop}")
        n = len(self.steps) + 1
        around = Handle(f"%around{n}", "loop", n, inside=loop.inside)
        for handle in self.handles:  # the tiles in the loop stay valid, but their loop has a new handle
            handle.inside = around if handle.inside is loop else handle.inside
        self.consume(held, loop)
        self.handles.append(around)
        self.add(
            "fuse",
            f"%fused{n}, %around{n} = transform.structured.fuse_into_containing_op {held} into {loop} : "
            f"({held.type}, {loop.type}) -> ({ANY}, {ANY})",
        )
        return self.new_handle(f"%fused{n}", inside=around), around

    def tile_and_fuse(self, op: Handle, sizes: Sequence[int], using: str = "for") -> tuple[Handle, list[Handle]]:
        """Tile the last operation of a chain and fuse all its producers, in loops or in one `forall`."""
        held = self.check_tensor_op("tile_and_fuse", op)
        self.check_sizes("tile_and_fuse", sizes)
        self.consume(*[handle for handle in self.handles if handle.kind == "op" and handle is not held])
        options = " {apply_cleanup, use_forall}" if using == "forall" else " {apply_cleanup}"
        return self._tile("tile_and_fuse", held, "transform.structured.fuse", (sizes, using), options)

    def tile_reduction(self, op: Handle, sizes: Sequence[int]) -> Handle:
        """Split a reduction into partial reductions that are combined at the end; changes the order of additions."""
        held = self.check_tensor_op("tile_reduction", op)
        self.check_sizes("tile_reduction", sizes)
        n = len(self.steps) + 1
        self.consume(held)
        self.options.add(REASSOCIATE)
        self.add(
            "tile_reduction",
            f"%fill{n}, %part{n}, %sum{n}, %loop{n} = transform.structured.tile_reduction_using_for {held} "
            f"by tile_sizes = {list(sizes)} : ({held.type}) -> ({', '.join([ANY] * 4)})",
        )
        return self.new_handle(f"%part{n}", inside=held.inside)

    def generalize(self, op: Handle) -> Handle:
        """Turn a named operation into a generic one, whose unit dimensions can be dropped."""
        held = self.check_tensor_op("generalize", op)
        n = len(self.steps) + 1
        self.consume(held)
        self.add("generalize", f"%plain{n} = transform.structured.generalize {held} : ({held.type}) -> {ANY}")
        return self.new_handle(f"%plain{n}", inside=held.inside)

    def interchange(self, op: Handle, order: Sequence[int]) -> Handle:
        """Interchange the loops of an operation."""
        held = self.check_tensor_op("interchange", op)
        self.check_order("interchange", order)
        n = len(self.steps) + 1
        self.consume(held)
        self.add(
            "interchange",
            f"%plain{n} = transform.structured.generalize {held} : ({held.type}) -> {ANY}",
            f"%turned{n} = transform.structured.interchange %plain{n} iterator_interchange = {list(order)} : "
            f"({ANY}) -> {ANY}",
        )
        return self.new_handle(f"%turned{n}", inside=held.inside)

    def pad(self, op: Handle, multiples: Sequence[int], operands: int = 3) -> Handle:
        """Pad operands with zeros to multiples of sizes, one for each loop of the operation."""
        held = self.check_tensor_op("pad", op)
        if not multiples or any(size < 1 for size in multiples):
            self.reject("pad", f"multiples are at least 1, not {list(multiples)}")
        n = len(self.steps) + 1
        values, dims = ", ".join(["0.0 : f32"] * operands), list(range(len(multiples)))
        self.consume(held)
        self.add(
            "pad",
            f"%padded{n}, %pads{n}, %back{n} = transform.structured.pad {held} pad_to_multiple_of {list(multiples)} "
            f'{{padding_values = [{values}], padding_dimensions = {dims}, copy_back_op = "none"}} : '
            f"({held.type}) -> ({ANY}, {ANY}, {ANY})",
        )
        return self.new_handle(f"%padded{n}", inside=held.inside)

    def run_pass(self, name: str) -> None:
        """Run a pass of the compiler on the function; handles from before it are consumed."""
        self.check_stage("run_pass", "vectors")
        n = len(self.steps) + 1
        self.consume(*self.handles)
        self.add(
            "run_pass",
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in {self.root} : ({ANY}) -> {ANY}',
            f'%passed{n} = transform.apply_registered_pass "{name}" to %func{n} : ({ANY}) -> {ANY}',
        )

    def expand_exp(self) -> None:
        """Compute exp by a series instead of calls of a library, which vectors cannot use."""
        self.options.add(POLYNOMIAL)

    def prefetch(self, loop: Handle) -> None:
        """Mark a loop over a row: while it runs, the next row of every array is prefetched."""
        held = self.check_handle("prefetch", loop, "loop")
        self.add("prefetch", f'transform.annotate {held} "{PREFETCH}" : {held.type}')

    def mark_dot(self, op: Handle, attribute: str) -> None:
        """Mark a product for dot-product instructions, or the copy that puts its terms into groups."""
        held = self.check_handle("mark_dot", op, "op")
        if attribute not in DOT_MARKS:
            self.reject("mark_dot", f"the attribute is one of {', '.join(DOT_MARKS)}")
        self.options.add(DOT_INSTRUCTIONS)
        self.add("mark_dot", f'transform.annotate {held} "{attribute}" : {held.type}')

    def cleanup(self, *patterns: str) -> None:
        """Apply patterns and CSE to the whole function; by default the canonicalization patterns."""
        self._apply("cleanup", patterns or CLEANUP_PATTERNS, cse=True)

    def _apply(self, name: str, *batches: Sequence[str], cse: bool = False) -> None:
        n, lines = len(self.steps) + 1, []
        for patterns in batches:
            listed = " ".join(f"transform.apply_patterns.{pattern}" for pattern in patterns)
            lines.append(f"transform.apply_patterns to %func{n} {{ {listed} }} {'{apply_cse} ' if cse else ''}: {ANY}")
        self.add(
            name,
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in {self.root} : ({ANY}) -> {ANY}',
            *lines,
        )

    def vectorize(self, what: Handle, *, contraction: bool = False) -> None:
        """Vectorize an operation, or every operation in a loop.

        A `contraction` becomes one vector contraction, whatever its sizes: for named linalg operations.
        """
        self.check_stage("vectorize", "vectors")
        held = self.check_handle("vectorize", what)
        n = len(self.steps) + 1
        if held.kind == "op":
            self.consume(held)
            options = " {create_named_contraction}" if contraction else ""
            self.add("vectorize", f"transform.structured.vectorize {held}{options} : {held.type}")
            return
        self.consume(*[handle for handle in self.handles if handle is not held and handle.is_within([held])])
        self.add(
            "vectorize",
            f"%found{n} = transform.structured.match interface{{LinalgOp}} in {held} : ({held.type}) -> {ANY}",
            f"transform.foreach %found{n} : {ANY} {{ ^bb0(%one{n}: {ANY}): "
            f"transform.structured.vectorize %one{n} : {ANY} }}",
        )

    def vectorize_all(self, *ops: str, optional: bool = False) -> None:
        """Vectorize every operation, or every one of these names; if `optional`, one that cannot be stays as it is."""
        self.check_stage("vectorize_all", "vectors")
        n, listed = len(self.steps) + 1, ", ".join(f'"{op}"' for op in ops)
        which = f"ops{{[{listed}]}}" if ops else "interface{LinalgOp}"
        self.consume(*self.handles)
        each = f"transform.structured.vectorize %one{n} : {ANY}"
        if optional:
            each = (
                f"transform.sequence %one{n} : {ANY} failures(suppress) {{ ^bb0(%try{n}: {ANY}): "
                f"transform.structured.vectorize %try{n} : {ANY} }}"
            )
        self.add(
            "vectorize_all",
            f"%found{n} = transform.structured.match {which} in {self.root} : ({ANY}) -> {ANY}",
            f"transform.foreach %found{n} : {ANY} {{ ^bb0(%one{n}: {ANY}): {each} }}",
        )

    def hoist(self) -> None:
        """Hoist loop-invariant reads and writes, so that accumulators stay in registers."""
        self.check_stage("hoist", "vectors")
        n = len(self.steps) + 1
        self.consume(*self.handles)
        self.stage = "vectors"
        self.add(
            "hoist",
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in {self.root} : ({ANY}) -> {ANY}',
            f'%hoisted{n} = transform.apply_registered_pass "loop-invariant-subset-hoisting" to %func{n} : '
            f"({ANY}) -> {ANY}",
            f"transform.apply_patterns to %hoisted{n} {{ transform.apply_patterns.canonicalization }} "
            f"{{apply_cse}} : {ANY}",
        )

    def bufferize(self) -> None:
        """Convert tensors to buffers."""
        self.check_stage("bufferize", "vectors")
        n = len(self.steps) + 1
        self.consume(*self.handles)
        self.stage = "buffers"
        self.add(
            "bufferize",
            f"transform.bufferization.eliminate_empty_tensors {self.root} : {ANY}",
            f"%buffers{n} = transform.bufferization.one_shot_bufferize layout{{IdentityLayoutMap}} {self.root} "
            f'{{bufferize_function_boundaries = true, memcpy_op = "linalg.copy"}} : ({ANY}) -> {ANY}',
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in %buffers{n} : ({ANY}) -> {ANY}',
            f"transform.apply_patterns to %func{n} {{ transform.apply_patterns.canonicalization }} "
            f"{{apply_cse}} : {ANY}",
        )
        self.root = f"%buffers{n}"

    def sequentialize(self, total: int, parallel: Sequence[int] = ()) -> None:
        """Convert `total` foralls to sequential loops, except those listed in `parallel`.

        Each has one dimension. They are counted in program order, inner ones before outer ones.
        """
        self.check_stage("sequentialize", "buffers")
        if self.stage != "buffers":
            self.reject("sequentialize", "it works on buffers; call bufferize before it")
        if total < 1 or any(not 0 <= number < total for number in parallel):
            self.reject("sequentialize", f"of {total} foralls, {list(parallel)} cannot stay parallel")
        n = len(self.steps) + 1
        names = [f"%all{n}_{i}" for i in range(total)]
        self.add(
            "sequentialize",
            f'%found{n} = transform.structured.match ops{{["scf.forall"]}} in {self.root} : ({ANY}) -> {ANY}',
            f"{', '.join(names)} = transform.split_handle %found{n} {{pass_through_empty_handle = false}} : "
            f"({ANY}) -> ({', '.join([ANY] * total)})",
            *(
                f"transform.loop.forall_to_for {name} : ({ANY}) -> {ANY}"
                for i, name in enumerate(names)
                if i not in parallel
            ),
        )

    def lower(self) -> None:
        """Lower vectors to operations of the processor."""
        self.check_stage("lower", "buffers")
        if self.stage != "buffers":
            self.reject("lower", "it works on buffers; call bufferize before it")
        self.stage = "lowered"
        self._apply("lower", *_REDUCTIONS, *_LOWERING, ("canonicalization",))
