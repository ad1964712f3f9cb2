"""Packages of AOTInductor without their weights, which are used where a bundle was read to, without a copy."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import torch

from tunewright.errors import BackendError, BundleError
from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.constants import ALIGNMENT, TensorLayout, bytes_of, layout_of, tensor_in

_WEIGHTS, _LIBRARY = ".blob", ".so"
_SETTING, _SEPARATE = "package_constants_on_disk_format", "binary_blob"


class KeptTensors(dict[str, torch.Tensor]):
    """Tensors by name, with what owns their memory: a packed one has only an address in it."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], owner: Any) -> None:
        super().__init__(tensors)
        self.owner = owner


class SplitPackage(NamedTuple):
    """A package without weights, where each weight is in an attachment of all weights, and the bytes for it."""

    code: bytes
    layouts: dict[str, TensorLayout]
    weights: bytes
    end: int


def settings() -> dict[str, str]:
    """Returns Inductor's setting by which it writes weights beside the library; none in releases that have none."""
    known = hasattr(hook("torch._inductor.config.aot_inductor"), _SETTING)
    return {f"aot_inductor.{_SETTING}": _SEPARATE} if known else {}


def split(content: bytes, start: int) -> SplitPackage | None:
    """Returns a package without its weights, which are placed from `start` on; None if they cannot be told apart."""
    with ZipFile(BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    blobs, libraries = ([name for name in files if name.endswith(end)] for end in (_WEIGHTS, _LIBRARY))
    if len(blobs) != 1 or len(libraries) != 1:
        return None
    layouts: dict[str, TensorLayout] = {}
    pieces: list[bytes | memoryview] = []
    end = start
    try:
        found = _find_weights(files[libraries[0]], files.pop(blobs[0])) if files[blobs[0]] else {}
        for name in sorted(found):
            layout = layouts[name] = layout_of(found[name], end)
            pieces += [bytes_of(found[name], layout.length), bytes(layout.end - end - layout.length)]
            end = layout.end
    except BackendError:
        return None
    return SplitPackage(_pack(files), layouts, b"".join(pieces), end)


def make_block(content: memoryview) -> torch.Tensor:
    """Returns the bytes of weights as a tensor; in place if they may be written to and are aligned, else a copy."""
    if not content.readonly and len(content):
        block = torch.frombuffer(content, dtype=torch.uint8)
        if block.data_ptr() % ALIGNMENT == 0:
            return block
    copy = torch.empty(len(content), dtype=torch.uint8)
    bytes_of(copy, len(content))[:] = content
    return copy


def make_weights(block: torch.Tensor, layouts: Mapping[str, TensorLayout]) -> KeptTensors:
    """Returns the weights of a package as they lie in a block; raises BundleError if they do not fit into it."""
    made: dict[str, torch.Tensor] = {}
    for name, layout in layouts.items():
        if layout.start < 0 or layout.start % ALIGNMENT or not 0 <= layout.length <= len(block) - layout.start:
            raise BundleError(f"the weight {name} is not where it must be; build the bundle again")
        try:
            made[name] = tensor_in(block, layout)
            length = layout_of(made[name], layout.start).length
        except (BackendError, RuntimeError, AttributeError, TypeError, OverflowError) as error:
            raise BundleError(f"the weight {name} cannot be read: {error}; build the bundle again") from error
        if length != layout.length:
            raise BundleError(f"the weight {name} has another size than is said; build the bundle again")
    return KeptTensors(made, block)


def _find_weights(library: bytes, weights: bytes) -> KeptTensors:
    """Returns weights by name as the library reads them; raises BackendError if some are not there by a name of their
    own: the compiler gives the same name to what it packs for several products.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, f"model{_LIBRARY}"), Path(folder, f"weights{_WEIGHTS}")
        for path, content in zip(paths, (library, weights), strict=True):
            path.write_bytes(content)
        try:
            runner = hook("torch._C._aoti.AOTIModelContainerRunnerCpu")(str(paths[0]), 1)
            runner.update_constant_buffer_from_blob(str(paths[1]))
            found = KeptTensors(runner.extract_constants_map(False), runner)
            names = runner.get_constant_names_to_original_fqns().values()
        except RuntimeError as error:
            raise BackendError(f"its weights cannot be told apart: {error}; ship them in the package") from error
    if sorted(found) != sorted(names):
        raise BackendError("some of its weights have no name of their own; ship them in the package")
    return found


def _pack(files: Mapping[str, bytes]) -> bytes:
    written = BytesIO()
    with ZipFile(written, "w", ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content)  # without the time, so that equal contents make equal bytes
    return written.getvalue()
