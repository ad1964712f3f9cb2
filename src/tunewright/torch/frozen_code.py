"""Frozen graphs kept on disk as they were compiled, so that later processes neither freeze nor compile them again.

PyTorch keeps no compiled graph whose weights a library has packed. A file here is one graph: the code that PyTorch has
generated, its constants, and the decisions about its products. The name of a file is a digest of all that the code
depends on, the bytes of the weights included.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from tunewright.backends.host import digest
from tunewright.errors import BackendError, TunewrightError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores import files
from tunewright.torch.candidate import reported_failure
from tunewright.torch.captured import CapturedGraph, FrozenGraph
from tunewright.torch.inductor import adapter, compiled_code, constants, huge_pages
from tunewright.torch.inductor.compiled_code import InstructionSet, LoadedCode
from tunewright.torch.inductor.constants import Constant
from tunewright.torch.inductor.graphs import CompiledGraph
from tunewright.torch.resolver import PartDecision

log = LazyLogger(__name__)

MAX_BYTES = 4 << 30
"""Bytes of all files together: those that were not used for longest are removed. One may take half of it."""

SUFFIX = ".frozen"
_HEADER = 8
"""Bytes of the number that a file begins with: the length of its header."""


class FrozenHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says about its graph: its code, the instruction set of that, and how its constants are made.

    `digest` is that of the code and of the bytes that constants take. `parts` are the decisions about products and
    paddings that are in the code, by name.
    """

    source: str
    isa: InstructionSet
    constants: dict[str, Constant]
    size: int
    digest: str
    parts: dict[str, PartDecision]


class FrozenCode:
    """The file of a frozen graph.

    `settings` are those that Inductor has for it, `names` all else that its code depends on beside the graph and its
    weights. `why_not` says why there can be no file.
    """

    def __init__(
        self, captured: CapturedGraph, frozen: FrozenGraph, settings: Mapping[str, Any], names: Sequence[str]
    ) -> None:
        self._settings = settings
        self._captured, self._free, self._weights = captured, frozen.free, frozen.constants
        self._path, self.why_not = Path(), ""
        try:
            with reported_failure(lambda: None):
                self._path = self._find_path(names)
        except TunewrightError as error:
            self.why_not = str(error)

    def _find_path(self, names: Sequence[str]) -> Path:
        """Returns where the file is; raises BackendError if there can be none."""
        folder = compiled_code.cache_folder()
        if folder is None:
            raise BackendError("PyTorch is told to keep no compiled code")
        if obstacle := _find_obstacle(self._captured):
            raise BackendError(obstacle)
        name = digest(self._captured.graph.code, _build(), constants.hash_tensors(self._weights), *names)
        return folder / "tunewright" / f"{name}{SUFFIX}"

    def load(self, recall: Callable[[Mapping[str, PartDecision]], bool], *, huge: bool) -> CompiledGraph | None:
        """Returns the graph as it was compiled; None if it is not kept, damaged, or not right on the current inputs.

        `recall` says whether products and paddings are still decided as they are in the code.
        """
        if self.why_not or not self._path.exists():
            return None
        with _found_crash(self._path.with_suffix(".loading")) as crashed:
            problem = "a process ended while it was loaded" if crashed else ""
            try:
                with reported_failure(lambda: None):
                    compiled = None if crashed else self._load(recall, huge=huge)
                    if compiled is not None:
                        problem = self._find_difference(compiled)
            except (TunewrightError, MemoryError) as error:
                problem = str(error) or type(error).__name__
            if not problem:
                with suppress(OSError):
                    os.utime(self._path)
                return compiled
            log.warning("a frozen graph is compiled again, since its file cannot be used: %s", problem)
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return None

    def save(self, codes: Sequence[LoadedCode], parts: Mapping[str, PartDecision]) -> None:
        """Keeps a graph that was compiled; where that is not possible, the reason is logged."""
        try:
            if self.why_not:
                raise BackendError(self.why_not)
            if len(codes) != 1:
                raise BackendError(f"it has {len(codes)} parts")
            if self._captured.returns_inputs:
                raise BackendError("it returns memory of its inputs")
            content = self._contents(codes[0], parts)
            if (size := sum(map(len, content))) > MAX_BYTES // 2:
                raise BackendError(f"it takes {size / 1e9:.1f} GB")
            _make_room(self._path.parent, MAX_BYTES - size)
            files.write_atomic(self._path, *content)
        except (BackendError, OSError) as error:
            log.info("a frozen graph is not kept for later processes: %s", error)

    def _contents(self, code: LoadedCode, parts: Mapping[str, PartDecision]) -> list[bytes | memoryview]:
        """Returns what is written for a graph: a header, and the bytes of its constants."""
        source = code.source
        described, pieces = constants.describe_constants(source, code.constants, self._weights)
        isa = InstructionSet.picked(self._settings)
        checked = constants.hash_pieces([source.encode(), *pieces])
        header = FrozenHeader(source, isa, described, sum(map(len, pieces)), checked, dict(parts))
        encoded = msgspec.msgpack.encode(header)
        return [len(encoded).to_bytes(_HEADER, "little"), encoded, *pieces]

    def _load(self, recall: Callable[[Mapping[str, PartDecision]], bool], *, huge: bool) -> CompiledGraph | None:
        """Returns the graph in a file; None if something in it is decided in another way now."""
        content = memoryview(files.read_bounded(self._path, MAX_BYTES, own=True))
        length = int.from_bytes(content[:_HEADER], "little")
        header = msgspec.msgpack.decode(content[_HEADER : _HEADER + length], type=FrozenHeader)
        stored = content[_HEADER + length :]
        if len(stored) != header.size or constants.hash_pieces([header.source.encode(), stored]) != header.digest:
            raise BackendError("it is not what was written")
        if not recall(header.parts):
            return None
        block = torch.empty(max(1, header.size), dtype=torch.uint8)
        constants.bytes_of(block, header.size)[:] = stored
        made = constants.make_constants(header.constants, self._weights, block)
        if huge:
            huge_pages.move_to_huge_pages(constants.tensors_read(header.source, made))
        call = compiled_code.load_code(header.source, made, self._settings, header.isa)

        def compiled(*inputs: Any, _memory: torch.Tensor = block) -> tuple[Any, ...]:  # packed constants lie in it
            return tuple(call(list(inputs)))

        return compiled

    def _find_difference(self, compiled: CompiledGraph) -> str:
        """Returns how the results on the current inputs are wrong; empty if they are right."""
        return self._captured.find_difference(lambda *values: compiled(*(values[i] for i in self._free))) or ""


@contextmanager
def _found_crash(mark: Path) -> Iterator[bool]:
    """Whether an earlier process ended in this context; `mark` shows it: a file that is locked while one is in it."""
    try:
        made = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        yield _can_be_locked(mark)
        return
    except OSError:  # a folder that cannot be written
        yield False
        return
    try:
        fcntl.flock(made, fcntl.LOCK_EX)
        yield False
    finally:
        mark.unlink(missing_ok=True)
        os.close(made)


def _can_be_locked(mark: Path) -> bool:
    """Whether no living process holds a mark, which is removed then."""
    try:
        file = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # its process has just removed it
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        mark.unlink(missing_ok=True)
        return True
    finally:
        os.close(file)


def _find_obstacle(captured: CapturedGraph) -> str:
    """Returns why a graph cannot be kept; empty if it can be."""
    if captured.dynamic:
        return "its sizes may change"
    if torch.is_autocast_enabled("cpu"):
        return "it runs with autocast"
    free = [captured.values[i] for i in range(len(captured.values)) if i not in captured.weights]
    tensors = [value for value in free if isinstance(value, torch.Tensor)]
    if len({tensor.untyped_storage().data_ptr() for tensor in tensors}) < len(tensors):
        return "its inputs share memory"
    return next((f"it calls {name}" for name in captured.foreign), "")


@cache
def _build() -> str:
    """Returns a digest of what generates code: this build of PyTorch, and our own part."""
    own = sorted(Path(__file__).parent.rglob("*.py"))
    return digest(adapter.VERSION, str(torch.version.git_version), *(path.read_bytes() for path in own))


def _make_room(folder: Path, size: int) -> None:
    """Removes the files that were not used for longest, until all together have at most so many bytes.

    Those that a process was writing when it was killed count, too.
    """
    paths = [*folder.glob(f"*{SUFFIX}"), *folder.glob(f".*{SUFFIX}.*.part")]
    found = [(path, path.stat()) for path in paths]
    total = sum(status.st_size for _, status in found)
    for path, status in sorted(found, key=lambda item: item[1].st_mtime):
        if total <= size:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
