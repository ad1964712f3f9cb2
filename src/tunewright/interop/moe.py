"""MoE tables of vLLM and SGLang: for a number of tokens the fused kernel's config, in files found by their names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge
from tunewright.interop.table import Row
from tunewright.model.decision import Decision
from tunewright.spaces.config import Config

KERNEL = "fused_moe"

VERSION = "triton_version"
"""What vLLM's files may say beside their rows, and its look-up leaves out; SGLang's has a folder for each version."""

_ORDER = (
    "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
    "waves_per_eu", "matrix_instr_nonkdim", "kpack",
)  # fmt: skip
_FOLDER = re.compile(r"triton_(\d+(?:_\w+)*)")
_FIELDS = ("E", "N", "device_name", "dtype", "block_shape", "per_channel_quant")
_MOST_DIGITS = 18


class Tool(StrEnum):
    """Who looks a table up."""

    VLLM = "vLLM"
    SGLANG = "SGLang"


def device_name(reported: str, tool: Tool) -> str:
    """What a tool calls the device that its driver reports by this name; such a name stays as it is."""
    if tool is Tool.SGLANG:
        return reported.replace(" ", "_")
    name = re.sub(r"[\s/]+", "_", reported)
    return "NVIDIA_H200" if "H200" in name.split("_") else name  # vLLM has one table for that whole family


@dataclass(frozen=True)
class Title:
    """What a table is for, as the name of its file says: experts, their width, the device, how weights are kept."""

    experts: int
    width: int
    device: str
    dtype: str = ""
    block_shape: tuple[int, ...] = ()
    per_channel: bool = False
    down: bool = False

    def name(self, tool: Tool) -> str | None:
        """The name by which a tool looks for such a table; None if it never does."""
        if tool is Tool.VLLM and (self.per_channel or self.down):
            return None
        shape = str(list(self.block_shape)) if self.block_shape else ""
        parts = [
            f"E={self.experts},N={self.width},device_name={device_name(self.device, tool)}",
            f",dtype={self.dtype}" if self.dtype else "",
            f",block_shape={shape.replace(' ', '') if tool is Tool.VLLM else shape}" if shape else "",
            ",per_channel_quant=True" if self.per_channel else "",
            "_down" if self.down else "",
        ]
        return "".join(parts) + ".json"


def title_of(name: str) -> Title:
    """What a file's name says, in whatever order and spelling: `title_of(name).name(tool)` is what a tool asks for."""
    stem = edge.word(name, "the name of a table").removesuffix(".json")
    down, said = stem.endswith("_down"), {}
    for part in re.split(r",(?![^\[\]]*\])", stem.removesuffix("_down")):
        field, equals, value = part.partition("=")
        known = next((one for one in _FIELDS if one.lower() == field.strip().lower()), None)
        if known is None or not equals or known in said:
            problem = "says twice" if known in said else "has"
            raise WireError(f"{edge.shown(name)} {problem} {edge.shown(part)}; a table's name has {', '.join(_FIELDS)}")
        said[known] = value
    if missing := [field for field in _FIELDS[:3] if not said.get(field, "").strip()]:
        raise WireError(f"{edge.shown(name)} does not say {', '.join(missing)}; a table's name has all of E, N, device")
    return Title(
        _count(said["E"], name),
        _count(said["N"], name),
        said["device_name"],
        said.get("dtype", ""),
        _shape(said.get("block_shape", ""), name),
        said.get("per_channel_quant", "") == "True",
        down,
    )


def _count(text: str, name: str) -> int:
    if re.fullmatch(r"\s*0*[1-9][0-9]*\s*", text, re.ASCII) is None or len(text) > _MOST_DIGITS:
        raise WireError(f"{edge.shown(name)}: {edge.shown(text)} is no number of experts, of columns or of a block")
    return int(text)


def _shape(text: str, name: str) -> tuple[int, ...]:
    if not text:
        return ()
    if (found := re.fullmatch(r"\s*\[([^,\[\]]+),([^,\[\]]+)\]\s*", text)) is None:
        raise WireError(f"{edge.shown(name)}: {edge.shown(text)} is no block shape; write [128, 128]")
    return _count(found[1], name), _count(found[2], name)


@dataclass(frozen=True)
class MoeTable:
    """What a file says: configs by number of tokens, in the file's order, and under which Triton they were found."""

    title: Title
    rows: Mapping[int, Config]
    triton: str = ""

    def nearest(self, tokens: int) -> tuple[int, Config]:
        """The row that both tools take for so many tokens: the least difference, the first of two."""
        if not self.rows:
            raise WireError(f"the table for {self.title.name(Tool.SGLANG)} has no rows; tune it anew")
        size = nearest(self.rows, tokens)
        return size, self.rows[size]

    def told(self) -> Iterator[Row]:
        """Its rows in words of ours: what to try first, not what is decided."""
        for size, config in self.rows.items():
            yield Row({"E": self.title.experts, "N": self.title.width, "M": size}, config, self.title.device)


def nearest(sizes: Iterable[int], tokens: int) -> int:
    """The size with the least difference, the first of two."""
    return min(sizes, key=lambda size: abs(size - tokens))


def seeds(path: Path | str, most: int = 3) -> Callable[..., list[Config]]:
    """What a table says for about so many tokens, as seeds: configs to race first, a function of the size M."""
    table = read(Path(path))

    def nearby(M: int, **sizes: int) -> list[Config]:  # noqa: N803 - what the tools call the number of tokens
        sized = sorted(table.rows, key=lambda size: abs(size - M))
        return list(dict.fromkeys(table.rows[size] for size in sized))[:most]

    return nearby


def gathered(title: Title, decisions: Iterable[Decision], triton: str = "") -> MoeTable:
    """The table of what was decided for a kernel whose sizes are M, and E and N if they are named."""
    rows: dict[int, Config] = {}
    for decision in decisions:
        dims = decision.key.signature.dims
        if "M" not in dims:
            raise WireError(f"{decision.key.kernel}: {decision.key.signature} has no dimension M; name the tokens so")
        if (dims.get("E", title.experts), dims.get("N", title.width)) != (title.experts, title.width):
            raise WireError(f"{decision.key.signature} is not of E={title.experts}, N={title.width}; gather it apart")
        if rows.setdefault(dims["M"], decision.config) != decision.config:
            raise WireError(f"two decisions for M={dims['M']} differ; gather those of one device and one toolchain")
    return MoeTable(title, dict(sorted(rows.items())), triton)


def read(path: Path) -> MoeTable:
    """The table in the file at `path`."""
    repeated: list[str] = []
    content = edge.load_table(path, repeated)
    if repeated:
        raise WireError(f"{path} has {edge.shown(repeated[0])} twice; keep one")
    return told(content, title_of(path.name), str(path), triton_of(path))


def triton_of(path: Path) -> str:
    """The version of Triton that the folder of a file stands for; nothing if it is none of SGLang's."""
    found = _FOLDER.fullmatch(path.resolve().parent.name)
    return found[1].replace("_", ".") if found else ""


def told(content: Any, title: Title, where: str, triton: str = "") -> MoeTable:
    """The table that a file's content says."""
    head = edge.mapping(content, where)
    rows: dict[int, Config] = {}
    for key, said in head.items():
        if key == VERSION:
            triton = edge.word(said, f"{where}: {VERSION}")
            continue
        size = size_of(key, where)
        if size in rows:
            raise WireError(f"{where} has two rows for M={size}; keep one")
        if size < 1:
            raise WireError(f"{where} has a row for M={size}; nobody asks for that, so drop it")
        rows[size] = config_of(said, f"{where}: M={size}")
    return MoeTable(title, rows, triton)


def size_of(key: str, where: str) -> int:
    """The number of tokens that a row is for, read as the tools do."""
    try:
        if len(key) <= _MOST_DIGITS:
            return int(key)
    except ValueError:
        pass
    raise WireError(f"{where}: {edge.shown(key)} is no number of tokens; the tools stop at it")


def config_of(said: Any, where: str) -> Config:
    """The config of a row."""
    entries = edge.mapping(said, where)
    if len(entries) > edge.MOST_KNOBS:
        raise WireError(f"{where} sets {len(entries):,} parameters; at most {edge.MOST_KNOBS} are read")
    return Config({edge.name(name, where): edge.value(value, f"{where}: {name}") for name, value in entries.items()})


def write(table: MoeTable, folder: Path, tool: Tool) -> Path:
    """Keep `table` where a tool looks for it below its folder of configs, under the name that it asks for."""
    name = table.title.name(tool)
    if name is None:
        raise WireError(f"{tool} has no tables per channel or for the way down; write it for {Tool.SGLANG}")
    for part in (name, table.triton):
        if "/" in part or "\0" in part:
            raise WireError(f"{edge.shown(part)} cannot be part of a file's name")
    content: dict[str, Any] = {}
    if tool is Tool.SGLANG and table.triton:
        folder = folder / f"triton_{table.triton.replace('.', '_')}"
        edge.made(folder)
    elif table.triton:
        content[VERSION] = table.triton
    content |= {str(size): _ordered(config) for size, config in table.rows.items()}
    path = folder / name
    edge.put(path, json.dumps(content, indent=4) + "\n")
    return path


def _ordered(config: Config) -> dict[str, Any]:
    """A config in the order in which the tools write it."""
    names = [name for name in _ORDER if name in config]
    return {name: config[name] for name in [*names, *(name for name in config if name not in _ORDER)]}
