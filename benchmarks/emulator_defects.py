"""Defects planted into compiled kernels: edits of PTX text, each of which makes a healthy kernel wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

Edit = Callable[[str], str]

_BARRIER = re.compile(r"^\s*bar\.sync\s+0;", re.MULTILINE)
_GUARD = (
    "{ .reg .pred bad; .reg .b32 badr; mov.u32 badr, %tid.x; setp.lt.u32 bad, badr, 5; @bad bra.uni SKIP; "
    "bar.sync 0; SKIP: }"
)
HOSTS = (
    ("add", 2, "sm_80"), ("softmax", 2, "sm_80"), ("layer_norm", 2, "sm_80"), ("cumsum", 2, "sm_80"),
    ("matmul_fp16", 2, "sm_80"), ("matmul_fp16", 3, "sm_90"), ("attention", 2, "sm_80"), ("transpose", 2, "sm_80"),
    ("matmul_split_k", 2, "sm_80"), ("histogram_atomics", 2, "sm_80"), ("column_sum", 2, "sm_80"),
    ("matmul_bf16", 3, "sm_80"), ("variance", 2, "sm_90"),
)  # fmt: skip
"""Kernel, number of its config, and target that the edits are made to."""


def without_barriers(ptx: str) -> str:
    """A missing barrier: none is left."""
    return _BARRIER.sub("", ptx)


def divergent_barrier(ptx: str) -> str:
    """Some threads of a warp jump over a barrier."""
    return _BARRIER.sub(_GUARD, ptx, count=1)


def without_waits(ptx: str) -> str:
    """Asynchronous copies that nobody waits for."""
    return re.sub(r"cp\.async\.wait_group\s+\d+;", "", ptx)


def late_waits(ptx: str) -> str:
    """Waits that leave two more copies under way than they should."""
    return re.sub(r"cp\.async\.wait_group\s+(\d+);", lambda found: f"cp.async.wait_group {int(found[1]) + 2};", ptx)


def one_too_far(ptx: str) -> str:
    """Masks that let one element more through."""
    return ptx.replace("setp.lt.s32", "setp.le.s32")


def misaligned_store(ptx: str) -> str:
    """A store that is off by one byte."""
    return re.sub(r"(st\.global\.\S+\s*\[\s*%rd\d+\s*\+\s*)0", r"\g<1>1", ptx, count=1)


def store_of_neighbor(ptx: str) -> str:
    """A store that is off by 64 bytes."""
    return re.sub(r"(st\.global\.\S+\s*\[\s*%rd\d+\s*\+\s*)0", r"\g<1>64", ptx, count=1)


def far_load(ptx: str) -> str:
    """A load far outside of its buffer."""
    return re.sub(r"(ld\.global\.\S+\s*\{[^}]*\}\s*,\s*\[\s*%rd\d+\s*\+\s*)0", r"\g<1>1073741824", ptx, count=1)


def without_shared_store(ptx: str) -> str:
    """Shared memory that nothing writes: its first store is missing."""
    return re.sub(r"^\s*(@%p\d+\s+)?st\.shared[^;]*;", "", ptx, count=1, flags=re.MULTILINE)


def far_shared_store(ptx: str) -> str:
    """A store outside of shared memory."""
    return re.sub(r"(st\.shared\S*\s*\[\s*%r\d+)(\s*\+\s*\d+)?(\s*\])", r"\g<1>+300000\g<3>", ptx, count=1)


def endless_loop(ptx: str) -> str:
    """A loop whose condition is always true."""
    for found in re.finditer(r"^\s*@!?%p\d+ bra\s+(\$L__BB\d+_\d+);", ptx, re.MULTILINE):
        if f"\n{found[1]}:" in ptx[: found.start()]:
            return ptx[: found.start()] + f"\n\tbra.uni {found[1]};" + ptx[found.end() :]
    return ptx


def plain_instead_of_atomic(ptx: str) -> str:
    """Stores where there should be atomics."""
    return re.sub(r"atom\.global\S*\.(?:add|add\.noftz)\.(\w+)\s+%r\d+,\s*(\[[^\]]*\]),\s*(%r\d+);",
                  r"st.global.b32 \2, \3;", ptx)  # fmt: skip


def wrong_sign(ptx: str) -> str:
    """A subtraction where there should be an addition."""
    return re.sub(r"^\s*add\.f32\b", "sub.f32", ptx, count=1, flags=re.MULTILINE)


def swapped_guard(ptx: str) -> str:
    """A load that runs where its mask is off."""
    return re.sub(r"@(%p\d+)(\s+ld\.global)", r"@!\1\2", ptx, count=1)


def one_block_for_all(ptx: str) -> str:
    """Every block computes what the first should."""
    return re.sub(r"mov\.u32\s+(%r\d+), %ctaid\.x;", r"mov.u32 \1, 0;", ptx)


def wrong_lane(ptx: str) -> str:
    """Shuffles that exchange with another lane than they should."""
    return re.sub(r"(shfl\.sync\.bfly\.b32\s+%r\d+, %r\d+, )16,", r"\g<1>8,", ptx)


EDITS: tuple[Edit, ...] = (
    without_barriers, divergent_barrier, without_waits, late_waits, one_too_far, misaligned_store, store_of_neighbor,
    far_load, without_shared_store, far_shared_store, endless_loop, plain_instead_of_atomic, wrong_sign, swapped_guard,
    one_block_for_all, wrong_lane,
)  # fmt: skip
