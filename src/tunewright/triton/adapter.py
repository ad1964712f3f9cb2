"""Adapter to Triton: all uses of its private parts at a launch; `releases` checks that they are there."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tunewright.backends.cuda_timer import PAUSE_CYCLES
from tunewright.backends.gpu_state import read_gpu_state
from tunewright.model.device import Device, Toolchain
from tunewright.triton import releases

try:
    import triton
    from triton import knobs
    from triton._C.libtriton import get_cache_invalidating_env_vars, native_specialize_impl
    from triton.backends import BaseBackend
    from triton.compiler.compiler import make_backend
    from triton.runtime import autotuner as stock
    from triton.runtime.cache import get_cache_manager, triton_key
    from triton.runtime.driver import driver
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITCallable, JITFunction, TensorWrapper
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError as error:
    raise releases.import_failed(error) from error

Config: TypeAlias = stock.Config
Autotuner, Heuristics = stock.Autotuner, stock.Heuristics
heuristics = stock.heuristics
Dtype, library_digest = triton.language.dtype, triton_key

CPU_ROOM = 512 << 20
"""Bytes of arguments that may be copied on a device whose free memory is not known."""

_DEVICE_LIMITS = {
    "max_shared_mem": "shared memory",
    "max_num_regs": "registers",
    "multiprocessor_count": "processors",
    "warpSize": "warp",
    "mem_bus_width": "memory bus",
}
"""Device properties that decide which config is best, by their names in keys; users set clock rates."""


def innermost(fn: Any) -> Any:
    """Returns the jitted function under decorators: a `JITFunction`, or an `InterpretedFunction`."""
    while not isinstance(fn, JITFunction | InterpretedFunction) and hasattr(fn, "fn"):
        fn = fn.fn
    return fn


def is_interpreted(fn: Any) -> bool:
    """Whether a kernel runs in Triton's interpreter, where times say nothing about a device."""
    return isinstance(innermost(fn), InterpretedFunction)


def is_interpreting() -> bool:
    """Whether this process runs kernels in Triton's interpreter."""
    return bool(knobs.runtime.interpret)


def is_callable_on_device(value: Any) -> bool:
    """Whether `value` is a JIT function that is not Triton's own; its source is part of a kernel that calls it."""
    jitted = isinstance(value, JITCallable | InterpretedFunction)
    return jitted and not str(value.fn.__module__).startswith("triton.")


def constant_of(value: Any) -> str | None:
    """Returns a compile-time constant as text; None for other values."""
    if isinstance(value, triton.language.constexpr):
        value = value.value
    if isinstance(value, triton.language.dtype):
        return str(value)
    return repr(value) if isinstance(value, bool | int | float | str) else None


def is_tensor(value: Any) -> bool:
    """Whether Triton treats `value` as a pointer."""
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def tensor_of(value: Any) -> Any:
    """Returns the tensor behind an argument: itself, or what a descriptor describes; None for other values."""
    if isinstance(value, TensorDescriptor):
        return value.base
    return value if is_tensor(value) else None


def has_known_memory(tensor: Any) -> bool:
    """Whether a tensor is torch's, or wraps one of torch's with a type that torch does not have."""
    return hasattr(tensor, "untyped_storage") or isinstance(tensor, TensorWrapper)


def with_tensors(value: Any, tensors: Mapping[int, Any]) -> Any:
    """Returns an argument with its tensors replaced by others, given by the ids of those they replace."""
    if isinstance(value, tuple | list):
        parts = [with_tensors(part, tensors) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, TensorDescriptor):
        blocks = list(value.block_shape)  # a hook may set them
        return replace(value, base=with_tensors(value.base, tensors), block_shape=blocks)
    if id(value) in tensors and isinstance(value, TensorWrapper):
        return TensorWrapper(tensors[id(value)], value.dtype)
    return tensors.get(id(value), value)


class Param(NamedTuple):
    """One parameter of a kernel, and how Triton specializes on it."""

    name: str
    constexpr: bool
    const: bool = False
    specialize: bool = True
    align: bool = True


def params_of(fn: Any) -> tuple[Param, ...]:
    """Returns the parameters of a kernel, in order."""
    jit = innermost(fn)
    if isinstance(jit, JITFunction):
        return tuple(
            Param(p.name, p.is_constexpr, p.is_const, not p.do_not_specialize, not p.do_not_specialize_on_alignment)
            for p in jit.params
        )
    annotated = inspect.signature(jit.fn).parameters.values()
    return tuple(Param(p.name, "constexpr" in str(p.annotation)) for p in annotated)


def specialize_argument(param: Param, value: Any) -> tuple[str, str]:
    """Returns how Triton specializes on an argument: its type, and what of its value the code is compiled for."""
    if param.constexpr:
        return "constexpr", _constexpr(value)
    try:
        kind, special = native_specialize_impl(_backend(), value, param.const, param.specialize, param.align)
    except TypeError:
        return type(value).__name__, _constexpr(value)  # Triton raises the error at the launch
    return str(kind), "" if special is None else str(special)


def _constexpr(value: Any) -> str:
    """Returns a value that is compiled in as text that is the same in every process."""
    if isinstance(value, JITCallable | InterpretedFunction):
        return f"{value.fn.__module__}.{value.fn.__qualname__}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_constexpr, value))})"
    constant = constant_of(value)
    return constant if constant is not None else str(value) if value is None else f"{type(value).__name__}"


def _backend() -> Any:
    """Returns the compiler backend of the current target; the base class in the interpreter."""
    return BaseBackend if knobs.runtime.interpret else _backend_for(driver.active.get_current_target())


@cache
def _backend_for(target: Any) -> Any:
    return make_backend(target)


def current_device() -> int:
    """Returns the index of the device of the next launch."""
    return int(driver.active.get_current_device())


def use_device(number: int) -> Any:
    """Makes a device the current one, and returns what torch calls it."""
    driver.active.set_current_device(number)
    return driver.active.get_active_torch_device()


def driver_installer() -> tuple[str, ...] | None:
    """Returns what installs the active driver in another process if it is simulated; None if nothing does.

    That is the `module:name` of a function that returns a context manager, and its arguments. A real driver needs none.
    """
    if not getattr(driver.active, "pretends", False):
        return ()
    installer: tuple[str, ...] = getattr(driver.active, "installer", ())
    return installer or None


def driver_holder() -> Any:
    """Returns Triton's holder of the active driver, for generated code that reads it at every launch."""
    return driver


def device_interface() -> Any:
    """Returns the driver's module like `torch.cuda`, with events and graph capture; None if it has none."""
    get_interface = getattr(driver.active, "get_device_interface", None)
    return get_interface() if get_interface else None


def wait_for_device() -> None:
    """Waits until the device is idle: the errors of launches surface now."""
    if wait := getattr(device_interface(), "synchronize", None):
        wait()


def device() -> Device:
    """Returns the model of the current device; cards of one architecture with different limits are different."""
    number, target = current_device(), driver.active.get_current_target()
    properties: Mapping[str, Any] = driver.active.utils.get_device_properties(number)
    limits = {limit: int(properties[name]) for name, limit in _DEVICE_LIMITS.items() if name in properties}
    get_name = getattr(device_interface(), "get_device_name", None)
    architecture = f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)
    model = get_name(number) if get_name else f"{target.backend} {architecture}"
    return Device(target.backend, str(model), architecture, limits={"warp": target.warp_size, **limits})


def device_name() -> str:
    """Returns a name of the card itself, by which processes take turns timing on it: its UUID, else its index."""
    number = current_device()
    get_properties = getattr(device_interface(), "get_device_properties", None)
    return f"gpu-{getattr(get_properties(number) if get_properties else None, 'uuid', None) or number}"


def toolchain() -> Toolchain:
    """Returns the versions of what compiles kernels here: Triton, libtriton with its LLVM, ptxas."""
    if knobs.runtime.interpret:
        return {"triton": releases.VERSION}
    target = driver.active.get_current_target()
    return {"triton": releases.VERSION, "libtriton": _digest(triton_key()), **_assembler(_backend_for(target), target)}


@cache
def _assembler(backend: Any, target: Any) -> dict[str, str]:
    version = str(backend.hash())  # for CUDA, the version text of ptxas with the architecture
    releases = [
        part.strip() for line in version.splitlines() for part in line.split(",") if part.strip().startswith("V")
    ]
    return {"ptxas" if target.backend == "cuda" else "assembler": releases[0] if releases else _digest(version)}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def execution_mode(*, interpreted: bool) -> dict[str, str]:
    """Returns the settings that change the code of a kernel beside its source and arguments."""
    language = knobs.language
    is_forced_off = getattr(language, "force_disable_fp_fusion", False)  # since Triton 3.9
    fused = language.default_fp_fusion and not is_forced_off
    mode = {"execution": "interpreted" if interpreted else "compiled", "fp fusion": "on" if fused else "off"}
    mode |= {"f32": language.fp32_default} if language.fp32_default else {}
    mode |= {"debug": "on"} if knobs.runtime.debug else {}
    variables = sorted(get_cache_invalidating_env_vars().items())
    return mode | {name.lower(): str(value) for name, value in variables if "FP_FUSION" not in name}


def is_capturing() -> bool:
    """Whether launches are being captured into a graph; what is measured then would end up in it."""
    query = getattr(device_interface(), "is_current_stream_capturing", None)
    return bool(query()) if query else False


def cache_folder() -> Path:
    """Returns the folder in which Triton keeps compiled code."""
    return Path(knobs.cache.dir)


def set_cache_folder(folder: Path) -> None:
    """Makes Triton keep compiled code in a folder, in this process."""
    knobs.cache.dir = str(folder)


def is_verbose() -> bool:
    """Whether TRITON_PRINT_AUTOTUNING is set."""
    return bool(knobs.autotuning.print)


def autotune_listener() -> Callable[..., Any] | None:
    """Returns Triton's listener for decisions; None if there is none, as before Triton 3.8."""
    listener: Callable[..., Any] | None = getattr(knobs.autotuning, "listener", None)
    return listener


def on_compile(callback: Callable[[str], None]) -> None:
    """Calls `callback` with the name of each kernel that is compiled, not loaded; keeps an earlier listener."""
    previous = knobs.compilation.listener

    def listen(**event: Any) -> Any:
        if previous is not None:
            previous(**event)
        if not event["cache_hit"]:
            callback(str(event["src"].name))

    knobs.compilation.listener = listen


def has_results() -> bool:
    """Whether launches have results; those of a fake driver without an effect have none."""
    if is_interpreting() or not getattr(driver.active, "pretends", False):
        return True
    return getattr(driver.active, "effect", None) is not None


def gpu_complaints() -> list[str]:
    """Returns what disturbs cards like the current one, as far as NVML, amdsmi or a fake driver say so."""
    states = driver.active.gpu_states() if getattr(driver.active, "pretends", False) else read_gpu_state()
    model = device().model
    return [sentence for state in states if state.name == model for sentence in state.complaints()]


def free_memory() -> int | None:
    """Returns the free bytes of the device; None if they are not known."""
    query = None if is_interpreting() else getattr(device_interface(), "mem_get_info", None)
    return int(query()[0]) if query else None


def room_for_copies() -> int:
    """Returns how many bytes all copies may take: half of the free memory, on a CPU a fixed number."""
    free = free_memory()
    return CPU_ROOM if free is None else free // 2


def has_clusters(device: Device) -> bool:
    """Whether a device has clusters of blocks and dependent launches: Hopper and later."""
    return device.kind == "cuda" and int(device.architecture.removeprefix("sm_") or 0) >= 90


class EventClock:
    """Events of the active driver and its cache flush, as Triton's own benchmark uses them."""

    name = "gpu events"

    def __init__(self) -> None:
        self._interface = device_interface()
        self._cache = driver.active.get_empty_cache_for_benchmark()

    @staticmethod
    def is_available() -> bool:
        """Whether the active driver has events."""
        return hasattr(device_interface(), "Event") and hasattr(driver.active, "get_empty_cache_for_benchmark")

    def event(self) -> Any:
        """Returns an event for the stream, with timing."""
        return self._interface.Event(enable_timing=True)

    @property
    def flush_bytes(self) -> int:
        """The bytes of the buffer that flushes the caches; 0 if the driver has none."""
        return 0 if self._cache is None else int(self._cache.numel() * self._cache.element_size())

    def flush(self) -> None:
        """Flushes the caches of the device."""
        driver.active.clear_cache(self._cache)

    def pause(self) -> None:
        """Makes the device idle for some tens of microseconds, while the host goes on; nothing if it cannot."""
        if sleep := getattr(self._interface, "_sleep", None):
            sleep(PAUSE_CYCLES)

    def wait(self) -> None:
        """Waits until the device is idle."""
        self._interface.synchronize()


def write_timings(fn: Any, key: Sequence[Any], configs: Sequence[Any], timings: Mapping[Any, Any]) -> None:
    """Writes the file of timings that Triton's own autotuner writes, for tools that read it."""
    jit = innermost(fn)
    parts = [triton_key(), _backend().hash(), jit.cache_key, str(sorted(get_cache_invalidating_env_vars().items()))]
    name = sha256("-".join([*parts, str(tuple(key)), *map(str, configs)]).encode()).hexdigest()
    rows = [(config.__dict__, times) for config, times in timings.items()]
    text = json.dumps({"key": key, "configs_timings": rows})
    get_cache_manager(name).put(text, f"{jit.__name__[:150]}.autotune.json", binary=False)


_PATCHED = ((triton, "autotune"), (triton.runtime, "autotune"), (stock, "autotune"))


def stock_autotune() -> Any:
    """Returns Triton's own decorator, patched or not."""
    return _STOCK


_STOCK = stock.autotune


def patch(autotune: Callable[..., Any]) -> None:
    """Replaces Triton's decorator by `autotune` wherever Triton exports it."""
    for module, name in _PATCHED:
        setattr(module, name, autotune)
