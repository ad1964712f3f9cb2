"""Links object code into a library whose working memory is kept between calls.

A kernel allocates its panels in each call. The allocator gives large blocks back to the system when they are freed, so
that the next call waits for each of their pages: 0.8 ms of 3.1 for a product of 512 x 512. So libraries keep what they
free, each thread for itself, and all kernels of a process together.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from tunewright.errors import BackendError

KEPT_BYTES = 32 << 20
"""The most bytes that each thread keeps."""

MEMORY = """
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { SLOTS = 16, LINE = 64 };

typedef struct { size_t size, lead; } Header;            /* before each block: its bytes, and where its base is */
typedef struct { void *block[SLOTS]; size_t bytes; unsigned next; } Kept;
typedef struct { void *(*allocate)(size_t, size_t); void (*release)(void *); } Memory;

extern void *__real_aligned_alloc(size_t, size_t);
extern void __real_free(void *);

static __thread Kept kept;
static pthread_key_t at_exit;
static int is_ready;

static Header *header(void *block) { return (Header *)block - 1; }

static void give_back(unsigned slot) {
    void *block = kept.block[slot];
    if (block) {
        kept.bytes -= header(block)->size;
        kept.block[slot] = 0;
        __real_free((char *)block - header(block)->lead);
    }
}

static void give_all_back(void *unused) {
    (void)unused;
    for (unsigned slot = 0; slot < SLOTS; slot++) give_back(slot);
}

__attribute__((constructor)) static void prepare(void) { is_ready = !pthread_key_create(&at_exit, give_all_back); }

static void *allocate(size_t alignment, size_t size) {
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        void *block = kept.block[slot];
        if (block && header(block)->size == size && (uintptr_t)block % alignment == 0) {
            kept.block[slot] = 0;
            kept.bytes -= size;
            return block;
        }
    }
    size_t lead = alignment > LINE ? alignment : LINE;
    if (size > SIZE_MAX - 2 * lead) return 0;
    char *base = __real_aligned_alloc(lead, (size + 2 * lead - 1) / lead * lead);
    if (!base) return 0;
    char *block = base + lead;
    *header(block) = (Header){size, lead};
    return block;
}

static unsigned make_room(void) {                        /* in turn, whatever is in a slot */
    unsigned slot = kept.next;
    kept.next = (slot + 1) % SLOTS;
    give_back(slot);
    return slot;
}

static void release(void *block) {
    if (!block) return;
    size_t size = header(block)->size;
    if (!is_ready || size > KEPT_BYTES) {
        __real_free((char *)block - header(block)->lead);
        return;
    }
    unsigned free_slot = SLOTS;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (!kept.block[slot]) free_slot = slot;
    if (free_slot == SLOTS) free_slot = make_room();
    while (kept.bytes + size > KEPT_BYTES) make_room();
    kept.block[free_slot] = block;
    kept.bytes += size;
    pthread_setspecific(at_exit, &kept);
}

Memory tunewright_memory_1 = {allocate, release};

void *__wrap_malloc(size_t size) { return tunewright_memory_1.allocate(LINE, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return tunewright_memory_1.allocate(alignment, size); }
void __wrap_free(void *block) { tunewright_memory_1.release(block); }
"""


class _Memory(ctypes.Structure):
    _fields_ = (("allocate", ctypes.c_void_p), ("release", ctypes.c_void_p))


_SYMBOL = "tunewright_memory_1"
_first: list[_Memory] = []


def share_memory(library: ctypes.CDLL) -> None:
    """Let the kernels of a library use the memory of the first one that was loaded, so that only one keeps any."""
    try:
        memory = _Memory.in_dll(library, _SYMBOL)
    except ValueError:  # it was linked elsewhere, and gives its memory back
        return
    if not _first:
        _first.append(memory)
    memory.allocate, memory.release = _first[0].allocate, _first[0].release


def link(unit: Path, library: Path, *, keeps_memory: bool = True) -> None:
    """Link object code into a shared library with the available compiler, or with a linker alone.

    Where the compiler cannot replace the functions for memory, the library gives its memory back as any other.
    """
    import shutil  # noqa: PLC0415 - a library that is already built needs no linker

    command = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "ld"))), None)
    if command is None:
        raise BackendError("no linker found (looked for cc, gcc, clang, ld); install gcc or clang")
    plain = [command, "-shared", "-o", str(library), str(unit)]
    if keeps_memory and (memory := _memory_object(command, KEPT_BYTES)):
        kept = unit.with_suffix(".memory.o")
        kept.write_bytes(memory)
        wraps = [f"-Wl,--wrap={name}" for name in ("malloc", "aligned_alloc", "free")]
        if not _run([*plain, str(kept), "-pthread", *wraps, "-Wl,-z,nodelete"]).returncode:
            return
    if (process := _run(plain)).returncode:
        raise BackendError(f"linking failed: {process.stderr.strip()[:300]}")


@cache
def _memory_object(command: str, kept_bytes: int) -> bytes:
    """Returns the object code of the functions for memory, compiled once in each process; empty without a compiler."""
    import tempfile  # noqa: PLC0415 - as above

    if Path(command).name == "ld":
        return b""
    with tempfile.TemporaryDirectory() as folder:
        source, unit = Path(folder, "memory.c"), Path(folder, "memory.o")
        source.write_text(MEMORY)
        flags = ["-c", "-O2", "-fPIC", "-pthread", f"-DKEPT_BYTES={kept_bytes}"]
        failed = _run([command, *flags, str(source), "-o", str(unit)]).returncode
        return b"" if failed else unit.read_bytes()


def _run(command: list[str]) -> Any:
    import subprocess  # noqa: PLC0415 - as above

    return subprocess.run(command, capture_output=True, text=True, check=False)
