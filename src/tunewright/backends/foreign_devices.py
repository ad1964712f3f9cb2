"""Devices and clocks of calls with arrays of other libraries than numpy.

Arrays in a device's memory (torch, JAX and CuPy on a GPU) have not been run on a device: only on a CPU.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tunewright.backends.host import cpu
from tunewright.measure.clock import HostTimer
from tunewright.model.device import Device
from tunewright.model.foreign import device_of, is_foreign, library_of
from tunewright.model.signature import Signature
from tunewright.ports.backend import Timer

_FOREIGN = re.compile(r"\w+\[[^]=]*\][^@]*@(\w+):(.+)")


def library_versions(signature: Signature) -> dict[str, str]:
    """Returns the versions of the libraries whose arrays are arguments."""
    names = sorted({library for library, _ in _places(signature)})
    return {name: str(getattr(sys.modules[name], "__version__", "")) for name in names if name in sys.modules}


def device(signature: Signature) -> Device:
    """Returns the device that has the arguments: this CPU, or the first other one."""
    others = [(library, place) for library, place in _places(signature) if place != "cpu"]
    return _device(*others[0]) if others else cpu()


def _places(signature: Signature) -> list[tuple[str, str]]:
    """Returns the library and the device of each argument that is not numpy's: `float32[N]@torch:cuda:0`."""
    matches = (_FOREIGN.fullmatch(text) for text in signature.args)
    return [(match[1], match[2]) for match in matches if match]


def _device(library: str, place: str) -> Device:
    """Returns a device by the name that arrays have of it; by its library if that can say more."""
    kind, _, number = place.partition(":")
    index = int(number) if number.isdigit() else 0
    model, architecture = place, ""
    if library == "torch" and kind in ("cuda", "rocm"):
        torch = sys.modules["torch"]
        model = torch.cuda.get_device_name(index)
        architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(index))
    elif library == "jax":
        model = str(sys.modules["jax"].devices()[index].device_kind)
    return Device(kind=kind, model=model, architecture=architecture)


def timer_for(call: Callable[[], Any], args: Sequence[Any], threads: int) -> Timer:
    """Returns a timer of a call: on the host, or by the events of a device that has an argument."""
    foreign = [arg for arg in args if is_foreign(arg)] if any(hasattr(arg, "__dlpack__") for arg in args) else []
    elsewhere = [arg for arg in foreign if device_of(arg) != "cpu"]
    if any(library_of(arg) == "torch" and arg.is_cuda for arg in elsewhere):
        from tunewright.backends.cuda_timer import CudaTimer  # noqa: PLC0415 - only for arrays on a GPU

        return CudaTimer(call)
    return HostTimer(_waiting(call), 2 if elsewhere else threads)


def _waiting(call: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a call that ends when its results are there: JAX and CuPy return before."""
    jax, cupy = sys.modules.get("jax"), sys.modules.get("cupy")
    if jax is None and cupy is None:
        return call
    wait = getattr(jax, "block_until_ready", None)

    def waited() -> Any:
        result = call()
        if wait is not None:
            wait(result)
        if cupy is not None:
            cupy.cuda.get_current_stream().synchronize()
        return result

    return waited
