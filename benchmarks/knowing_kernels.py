"""Kernels whose sources and recorded times are both at hand: how each is compiled, launched and executed in part.

The sources are read from a folder and never kept. Long loops are cut short, which `repeats` says.
"""

from __future__ import annotations

import json
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tunewright.backends.gpu_targets import KIB, TARGETS, TargetSpec
from tunewright.cuda.nvcc import BuildRequest, compile_kernel, find_nvcc
from tunewright.emulator import GridLaunch
from tunewright.emulator.cost_model import CardRates, block_limits, predict_seconds
from tunewright.emulator.figures import BlockFigures, block_figures
from tunewright.emulator.ptx_text import Module, parse_module
from tunewright.errors import TunewrightError

ARCH = "sm_80"
"""What all kernels are compiled for: counts of PTX differ little between targets, and one compilation serves all."""

TURING = TargetSpec("sm_75", "cuda", 75, 64 * KIB, 64 * KIB, 32, 16, reserved=0)
CARDS: dict[str, tuple[TargetSpec, CardRates]] = {
    "A100": (TARGETS["sm_80"], CardRates(108, 1.41, 1555, floats=2, l2_bytes=47)),
    "A4000": (TARGETS["sm_86"], CardRates(48, 1.56, 448)),
    "A6000": (TARGETS["sm_86"], CardRates(84, 1.80, 768)),
    "RTX3090": (TARGETS["sm_86"], CardRates(82, 1.695, 936)),
    "RTX3060L": (TARGETS["sm_86"], CardRates(30, 1.425, 336)),
    "RTX2080Ti": (TURING, CardRates(68, 1.545, 616, floats=2, l2_bytes=32)),
    "TITANRTX": (TURING, CardRates(72, 1.77, 672, floats=2, l2_bytes=32)),
}
"""Data sheets of the cards."""


@dataclass(frozen=True)
class PartialLaunch:
    """A launch of which some blocks are executed: `grid` is that of the real one, `executed` what is emulated."""

    source: str
    function: str
    macros: Mapping[str, Any]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: Sequence[Any]
    moved: int
    """Bytes that the real launch must move."""

    constants: Mapping[str, Any] | None = None
    executed: tuple[int, int, int] | None = None
    repeats: float = 1.0


class ConfigFigures(msgspec.Struct, frozen=True):
    """Figures of a config, or why there are none, and the CPU seconds that they took."""

    config: dict[str, int]
    registers: int = 0
    shared: int = 0
    moved: int = 0
    figures: BlockFigures | None = None
    error: str = ""
    compile_seconds: float = 0.0
    execute_seconds: float = 0.0


def _up(size: int, part: int) -> int:
    return -(-size // part)


def _empty(count: int, dtype: Any = np.float32) -> Any:
    return np.zeros(count, dtype)


def _convolution(config: Mapping[str, int], folder: Path) -> PartialLaunch:
    x, y = config["block_size_x"], config["block_size_y"]
    grid = (_up(4096, x * config["tile_size_x"]), _up(4096, y * config["tile_size_y"]), 1)
    source = (folder / "kernels" / "convolution_milo.cu").read_text()
    source = source.replace("__global__ void convolution_naive", "static __device__ void convolution_naive")
    return PartialLaunch(
        source, "convolution_kernel", {**config, "block_size_z": 1}, grid, (x, y, 1),
        [_empty(4096 * 4096), _empty(4110 * 4110), _empty(225)], 4 * (4096**2 + 4110**2),
    )  # fmt: skip


def _dedispersion(config: Mapping[str, int], folder: Path) -> PartialLaunch:
    cut, channels = 96, 1536
    x, y = config["block_size_x"], config["block_size_y"]
    grid = (_up(25000, x * config["tile_size_x"]), _up(2048, y * config["tile_size_y"]), 1)
    place = folder / "kernels" / "dedisp_milo"
    header = (place / "dedispersion.h").read_text().replace("nr_channels 1536", f"nr_channels {channels // cut}")
    source = (place / "dedispersion.cu").read_text()
    source = "\n".join(
        header if "#include" in line and ".h" in line else line
        for line in source.splitlines()
        if "pragma unroll loop_unroll_factor_channel" not in line
    )
    frequency, width = 1425.0, 0.1953125
    number = np.arange(channels, dtype=np.float32)
    delay = 1.0 / (frequency + number * width) ** 2 - 1 / (frequency + (channels - 1) * width) ** 2
    shifts = (4148.808 * delay / 0.00004096).astype(np.float32)
    shifts[-1] = 0
    macros = {name: value for name, value in config.items() if not name.startswith("loop_")}
    return PartialLaunch(
        source, "dedispersion_kernel", macros, grid, (x, y, 1),
        [_empty(25650 * channels // cut + 4096, np.uint8), _empty(2048 * 25000), shifts[::cut].copy()],
        25650 * channels + 4 * 2048 * 25000, repeats=cut,
    )  # fmt: skip


def _pnpoly(config: Mapping[str, int], folder: Path) -> PartialLaunch:
    threads, tile, points, cut = config["block_size_x"], config["tile_size"], 20_000_000, 15
    source = (folder.parent / "hub" / "currently_unused" / "kernels" / "pnpoly.cu").read_text()
    source = source.replace("__global__ void cn_pnpoly_naive", "static __device__ void cn_pnpoly_naive")
    source = source.replace("#define VERTICES 600", f"#define VERTICES {600 // cut}")
    random = np.random.default_rng(7)
    angle = np.sort(random.random(600 // cut)) * 2 * np.pi
    corners = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    before = np.roll(corners, 1, 0)
    slopes = ((before[:, 0] - corners[:, 0]) / (before[:, 1] - corners[:, 1])).astype(np.float32)
    own = threads * tile * 2
    return PartialLaunch(
        source, "cn_pnpoly", config, (_up(points, threads * tile), 1, 1), (threads, 1, 1),
        [_empty(own, np.int32), random.standard_normal((own, 2)).astype(np.float32), own], points * 12,
        constants={"d_vertices": corners, "d_slopes": slopes}, executed=(2, 1, 1), repeats=cut,
    )  # fmt: skip


def _gemm(config: Mapping[str, int], folder: Path) -> PartialLaunch:
    size, depth = 4096, 64
    place = folder / "kernels" / "gemm_milo"
    parts = ["cl_to_cuda.h", "common.opencl", *(f"xgemm_part{number}.opencl" for number in range(1, 5))]
    source = "\n".join((place / part).read_text() for part in parts)
    grid = (size // config["MWG"], size // config["NWG"], 1)
    block = (config["MDIMC"], config["NDIMC"], 1)
    matrix = _empty(size * depth)
    args = [size, size, depth, 1.0, 1.0, matrix, _empty(size * depth), _empty(size * size)]
    return PartialLaunch(
        source, "Xgemm", config, grid, block, args, 4 * 3 * size * size, repeats=size / depth
    )  # fmt: skip


KERNELS: dict[str, Callable[[Mapping[str, int], Path], PartialLaunch]] = {
    "convolution": _convolution,
    "convolution11": _convolution,
    "dedispersion": _dedispersion,
    "pnpoly": _pnpoly,
    "gemm": _gemm,
}


def config_figures(kernel: str, config: Mapping[str, int], folder: Path) -> ConfigFigures:
    """Compiles a config, executes some of its blocks, and returns the figures."""
    launch, began = KERNELS[kernel](config, folder), _cpu()
    known = {name: int(value) for name, value in config.items()}
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "kernel.cu")
        source.write_text(launch.source)
        options = [f"-D{name}={value}" for name, value in launch.macros.items()]
        try:
            build = compile_kernel(
                find_nvcc(), BuildRequest(source, launch.function, ARCH, options, known=[source]), Path(place)
            )
        except TunewrightError as error:
            return ConfigFigures(known, error=str(error)[:200], compile_seconds=_cpu() - began)
    compiled, began = _cpu() - began, _cpu()
    module = _with_constants(parse_module(build.ptx), launch.constants or {})
    try:
        figures = block_figures(
            module, build.entry, GridLaunch(launch.executed or launch.grid, launch.block), launch.args
        )
    except TunewrightError as error:
        return ConfigFigures(known, error=str(error)[:200], compile_seconds=compiled)
    figures = msgspec.structs.replace(figures, grid=launch.grid, repeats=launch.repeats)
    resources = build.resources
    return ConfigFigures(
        known, resources.registers, resources.shared, launch.moved, figures, "", compiled, _cpu() - began
    )


def _with_constants(module: Module, constants: Mapping[str, Any]) -> Module:
    variables = [
        replace(variable, initial=constants[variable.name].tobytes()) if variable.name in constants else variable
        for variable in module.variables
    ]
    return replace(module, variables=variables)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def predictions(found: ConfigFigures, card: str) -> dict[str, float]:
    """Returns the predicted seconds on a card, and each limit by itself; empty if a block does not fit."""
    target, rates = CARDS[card]
    if found.figures is None:
        return {}
    figures = found.figures
    resident = target.blocks(found.registers, found.shared, figures.warps)
    if not resident:
        return {}
    blocks = float(np.prod(figures.grid)) * figures.repeats
    limits = {name: max(cycles, 1e-9) * blocks for name, cycles in block_limits(figures, rates).items()}
    return {"model": predict_seconds(figures, resident, rates, found.moved), **limits}


def load_figures(path: Path) -> dict[tuple[int, ...], ConfigFigures]:
    """Returns the figures kept in a file, by the values of their configs."""
    if not path.exists():
        return {}
    kept = [msgspec.json.decode(line, type=ConfigFigures) for line in path.read_bytes().splitlines()]
    return {tuple(one.config.values()): one for one in kept}


def keep(path: Path, found: ConfigFigures) -> None:
    """Adds the figures of a config to a file."""
    with path.open("a") as file:
        file.write(json.dumps(msgspec.to_builtins(found)) + "\n")
