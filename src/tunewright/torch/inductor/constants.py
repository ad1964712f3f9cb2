"""Constants of compiled code as they are written to a file, and made again from it.

A constant is a weight of the model, what MKL packs from one, or bytes. What MKL packs holds addresses, so it is packed
again; what oneDNN packs has a description with which its bytes can be used anywhere, as AOTInductor does.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from tunewright.errors import BackendError
from tunewright.stores import fast_digest
from tunewright.torch.inductor.adapter import hook

ALIGNMENT = 64
"""Constants begin at multiples of so many bytes: what libraries packed expects it."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MKL_CALL = re.compile(r"_mkl_linear(?:\.default)?\(.*, (\w+), (\w+), [^,]+, (\d+)L?(?:, &\w+)?\)")
"""In Python and in C++: the packed weight, the weight, and the number of rows that it was packed for."""

_DECLARATION = re.compile(
    r"^\s*(?://.*|global \w+|\w+ = (?:None|rand_strided)\b.*|(?:\[\[maybe_unused\]\] )?auto \w+ = std::move\(.*"
    r"|constants_tensor = .*)$",
    re.MULTILINE,
)
"""Lines of Python and of C++ that name a constant and do not read it."""


class SharedWeight(msgspec.Struct, frozen=True, tag=True):
    """A constant that is a weight of the model, by its name in the graph."""

    weight: str


class MklWeight(msgspec.Struct, frozen=True, tag=True):
    """A constant that MKL packs from another one, for so many rows."""

    constant: str
    rows: int


class TensorLayout(msgspec.Struct, frozen=True, tag=True):
    """A tensor in a block of memory: `start` and `length` in bytes; `packed` is how oneDNN describes its layout."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    length: int
    packed: bytes = b""

    @property
    def end(self) -> int:
        """Where the next tensor can begin."""
        return -(-(self.start + self.length) // ALIGNMENT) * ALIGNMENT


Constant = SharedWeight | MklWeight | TensorLayout


def describe_constants(
    source: str, constants: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> tuple[dict[str, Constant], list[bytes | memoryview]]:
    """Returns how the constants of code are made again, and the bytes that it takes; raises BackendError if unknown."""
    packed = {name: MklWeight(weight, int(rows)) for name, weight, rows in _MKL_CALL.findall(source)}
    described: dict[str, Constant] = {}
    pieces: list[bytes | memoryview] = []
    end = 0
    for name, value in constants.items():
        if not isinstance(value, torch.Tensor):
            raise BackendError(f"its constant {name} is no tensor")
        if name in packed:
            described[name] = packed[name]
        elif (weight := _same_weight(value, weights)) is not None:
            described[name] = SharedWeight(weight)
        else:
            layout = described[name] = layout_of(value, end)
            pieces += [bytes_of(value, layout.length), bytes(layout.end - layout.start - layout.length)]
            end = layout.end
    return described, pieces


def make_constants(
    described: Mapping[str, Constant], weights: Mapping[str, torch.Tensor], block: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns the constants that `describe_constants` described; `block` has the bytes, and must outlive them."""
    made: dict[str, torch.Tensor] = {}
    for name, constant in described.items():
        if isinstance(constant, SharedWeight):
            made[name] = weights[constant.weight]
        elif isinstance(constant, TensorLayout):
            made[name] = tensor_in(block, constant)
    packed = {name: constant for name, constant in described.items() if isinstance(constant, MklWeight)}
    made |= {name: _pack(made[constant.constant], constant.rows) for name, constant in packed.items()}
    return {name: made[name] for name in described}


def tensors_read(source: str, constants: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the constants that are tensors and that code reads: of what MKL has packed, the packed ones alone, unless
    other code reads a weight as well.
    """
    packed = {weight for _, weight, _ in _MKL_CALL.findall(source)}
    packed -= set(re.findall(r"\w+", _DECLARATION.sub("", _MKL_CALL.sub("", source))))
    return [value for name, value in constants.items() if isinstance(value, torch.Tensor) and name not in packed]


def layout_of(tensor: torch.Tensor, start: int) -> TensorLayout:
    """Returns how a tensor lies in a block, from `start`."""
    dtype, sizes = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    if tensor.is_mkldnn:
        library = torch.ops.mkldnn
        packed = bytes(library._get_mkldnn_serialized_md(tensor).tolist())
        if dtype == "float32" and len(sizes) == 2 and sizes[1] == 1:  # as MKL packs, in a call that was not found
            raise BackendError("one of its constants may hold addresses")
        return TensorLayout(dtype, sizes, (), start, int(library._nbytes(tensor)), packed)
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or type(tensor) not in _PLAIN:
        raise BackendError(f"a constant is no tensor that can be written to a file: {type(tensor).__name__}")
    strides = tuple(tensor.stride())
    pairs = zip(sizes, strides, strict=True)
    elements = sum((size - 1) * stride for size, stride in pairs) + 1 if tensor.numel() else 0
    return TensorLayout(dtype, sizes, strides, start, elements * tensor.element_size())


def bytes_of(tensor: torch.Tensor, length: int) -> memoryview:
    """Returns the memory of a tensor from its first element; valid while the tensor lives."""
    address = int(torch.ops.mkldnn.data_ptr(tensor)) if tensor.is_mkldnn else tensor.data_ptr()
    return memoryview((ctypes.c_uint8 * length).from_address(address) if length else bytearray()).cast("B")


def hash_tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    """Returns a digest of tensors, their names and layouts."""
    pieces: list[bytes | memoryview] = []
    for name, tensor in tensors.items():
        layout = layout_of(tensor, 0)
        pieces += [msgspec.json.encode((name, layout)), bytes_of(tensor, layout.length)]
    return hash_pieces(pieces)


def hash_pieces(pieces: Iterable[bytes | memoryview]) -> str:
    """Returns a digest of what these pieces make together."""
    hasher = fast_digest.new_fastest()
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def _same_weight(value: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> str | None:
    """Returns the name of the weight that has the same bytes; None if there is none."""
    if value.is_mkldnn:
        return None
    for name, weight in weights.items():
        layout = value.dtype, value.shape, value.stride()
        if layout == (weight.dtype, weight.shape, weight.stride()) and _same_bytes(value, weight):
            return name
    return None


def _same_bytes(value: torch.Tensor, weight: torch.Tensor) -> bool:
    if value.data_ptr() == weight.data_ptr():
        return True
    length = layout_of(value, 0).length
    return bytes_of(value, length) == bytes_of(weight, length)


def _pack(weight: torch.Tensor, rows: int) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
    return packed


def tensor_in(block: torch.Tensor, layout: TensorLayout) -> torch.Tensor:
    """Returns the tensor with this layout in a block of bytes, which must outlive it."""
    memory, dtype = block[layout.start : layout.start + layout.length], getattr(torch, layout.dtype)
    if layout.packed:
        return _packed_tensor(memory.data_ptr(), layout, dtype)
    elements = memory.view(dtype) if layout.length else torch.empty(0, dtype=dtype)
    return elements.as_strided(layout.sizes, layout.strides)


def _packed_tensor(address: int, layout: TensorLayout, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor that oneDNN has packed, as AOTInductor makes it from the bytes of a package."""
    library, rank = _library(), len(layout.sizes)
    handle, packed = ctypes.c_void_p(), ctypes.create_string_buffer(layout.packed, len(layout.packed))
    status = library.aoti_torch_create_tensor_from_blob_v2(
        ctypes.c_void_p(address),
        ctypes.c_int64(rank),
        (ctypes.c_int64 * rank)(*layout.sizes),
        (ctypes.c_int64 * rank)(),
        ctypes.c_int64(0),
        getattr(library, f"aoti_torch_dtype_{layout.dtype}")(),
        library.aoti_torch_device_type_cpu(),
        0,
        ctypes.byref(handle),
        library.aoti_torch_layout__mkldnn(),
        packed,
        ctypes.c_int64(len(layout.packed)),
    )
    if status:
        raise BackendError(f"PyTorch cannot make a packed tensor of {dtype} from bytes")
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    steal = hook("torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr")
    tensor: torch.Tensor = steal(capsule(handle, None, None))
    return tensor


@cache
def _library() -> Any:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
