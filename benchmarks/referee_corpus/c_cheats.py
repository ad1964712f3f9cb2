"""Kernels in C that cheat, or have a bug that shows late: what they do is in the C files, under the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tunewright as tw
from referee_corpus.case import product, register
from referee_corpus.python_streams import STREAM, counted, scaled_to_one, smoothed, updated
from tunewright.kernel.tuned import Tuned

FLAGS = "-O3 -march=native -pthread"
SIZES = {"N": 128}


def _product() -> Callable[..., Any]:
    def kernel(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N")): ...

    return kernel


def _update() -> Callable[..., Any]:
    def kernel(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.InOut("N", "N")): ...

    return kernel


def _stream() -> Callable[..., Any]:
    def kernel(x: tw.In("N"), y: tw.Out("N")): ...

    return kernel


def _histogram() -> Callable[..., Any]:
    def kernel(x: tw.In("N"), y: tw.Out(16)): ...

    return kernel


def _cheat(name: str, kernel: Callable[..., Any], source: tuple[str, str, str], **options: Any) -> Tuned:
    """A kernel of a C file: its function, the honest way in it, and this one."""
    file, function, honest = source
    kernel.__name__ = kernel.__qualname__ = name
    sizes = SIZES if function == "product" else STREAM
    space = tw.Space(tw.Knob("HOW", [honest, name]))
    options |= {"backend": tw.C(file, function, flags=FLAGS)}
    return register(kernel, space, {"sizes": sizes, "cheat": name}, options)


PRODUCTS = (
    *("first_calls", "first_50_calls", "first_moments", "first_result", "unreset_counter", "lazy_tail"),
    *("memo_pointer", "memo_pointer_copy", "memo_pointer_values", "memo_prefix", "memo_samples"),
    *("memo_contents", "memo_contents_stale", "skip_if_there", "skip_unless_poisoned"),
    *("first_pointer", "first_weights", "weights_by_pointer", "previous_inputs"),
    *("every_third", "every_16th", "halves_in_turn", "flaky", "decaying", "fewer_terms"),
    *("half", "noisy", "transposed", "accumulates", "clears_once", "uninitialized"),
    *("writes_inputs", "writes_inputs_later", "writes_beyond", "writes_beyond_later", "computes_beyond"),
    *("late_thread", "late_thread_later", "helper_thread"),
)
ATTACKS = (
    *("clock_patch", "clock_detour", "clock_detour_later", "gc_copy", "gc_nan", "gc_own", "memory_search"),
    *("patch_comparison", "patch_judges", "patch_reference", "looks_at_caller", "forged_trial"),
)
COUNTS = ("counts_by_pointer", "counts_half", "counts_on")

# Workers find a kernel by its name in this module.
for _name in PRODUCTS:
    globals()[_name] = _cheat(_name, _product(), ("cheats.c", "product", "honest"), reference=product)
for _name in ATTACKS:
    globals()[_name] = _cheat(_name, _product(), ("attacks.c", "product", "honest"), reference=product)
for _name in ("own_total", "updates_once"):
    globals()[_name] = _cheat(_name, _update(), ("cheats.c", "product", "honest_update"), reference=updated)
for _name in ("stale_norm", "first_norm", "stale_total"):
    globals()[_name] = _cheat(_name, _stream(), ("streams.c", "stream", "honest_norm"), reference=scaled_to_one)
for _name in COUNTS:
    _source = ("counts.c", "histogram", "honest_histogram")
    globals()[_name] = _cheat(_name, _histogram(), _source, reference=counted, dtype="int32")

reads_beyond = _cheat("reads_beyond", _stream(), ("streams.c", "stream", "honest_stencil"), reference=smoothed)
