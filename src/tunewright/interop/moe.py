"""MoE tables of vLLM and SGLang: configs of the fused kernel by number of tokens, in files found by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import untrusted
from tunewright.interop.table import ForeignRow
from tunewright.model.decision import Decision
from tunewright.spaces.config import Config

KERNEL = "fused_moe"

VERSION = "triton_version"
"""Optional field of vLLM's files besides the rows; SGLang has a folder for each version instead."""

_ORDER = (
    "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
    "waves_per_eu", "matrix_instr_nonkdim", "kpack",
)  # fmt: skip
_FOLDER = re.compile(r"triton_(\d+(?:_\w+)*)")
_FIELDS = ("E", "N", "device_name", "dtype", "block_shape", "per_channel_quant")
_MAX_DIGITS = 18


class Tool(StrEnum):
    """Tool that looks a table up."""

    VLLM = "vLLM"
    SGLANG = "SGLang"


def device_name(reported: str, tool: Tool) -> str:
    """Returns a tool's name of the device that the driver reports by this name; idempotent."""
    if tool is Tool.SGLANG:
        return reported.replace(" ", "_")
    name = re.sub(r"[\s/]+", "_", reported)
    return "NVIDIA_H200" if "H200" in name.split("_") else name  # vLLM has one table for the whole family


@dataclass(frozen=True)
class TableName:
    """What a table is for, by its file name: experts, their width, the device, and the format of weights."""

    experts: int
    width: int
    device: str
    dtype: str = ""
    block_shape: tuple[int, ...] = ()
    per_channel: bool = False
    down: bool = False

    def name(self, tool: Tool) -> str | None:
        """Returns the file name by which a tool looks for such a table; None if it never does."""
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


def parse_name(name: str) -> TableName:
    """Returns the parsed file name, in any order and spelling; `parse_name(name).name(tool)` is the tool's name."""
    stem = untrusted.check_text(name, "the name of a table").removesuffix(".json")
    down, fields = stem.endswith("_down"), {}
    for part in re.split(r",(?![^\[\]]*\])", stem.removesuffix("_down")):
        field, equals, value = part.partition("=")
        known = next((known for known in _FIELDS if known.lower() == field.strip().lower()), None)
        if known is None or not equals or known in fields:
            problem = "repeats" if known in fields else "has"
            raise WireError(
                f"{untrusted.quote(name)} {problem} {untrusted.quote(part)}; a table's name has {', '.join(_FIELDS)}"
            )
        fields[known] = value
    if missing := [field for field in _FIELDS[:3] if not fields.get(field, "").strip()]:
        raise WireError(f"{untrusted.quote(name)} lacks {', '.join(missing)}; a table's name has E, N and device_name")
    return TableName(
        _count(fields["E"], name),
        _count(fields["N"], name),
        fields["device_name"],
        fields.get("dtype", ""),
        _shape(fields.get("block_shape", ""), name),
        fields.get("per_channel_quant", "") == "True",
        down,
    )


def _count(text: str, name: str) -> int:
    if re.fullmatch(r"\s*0*[1-9][0-9]*\s*", text, re.ASCII) is None or len(text) > _MAX_DIGITS:
        raise WireError(
            f"{untrusted.quote(name)}: {untrusted.quote(text)} is not a number of experts, columns or block elements"
        )
    return int(text)


def _shape(text: str, name: str) -> tuple[int, ...]:
    if not text:
        return ()
    if (sizes := re.fullmatch(r"\s*\[([^,\[\]]+),([^,\[\]]+)\]\s*", text)) is None:
        raise WireError(f"{untrusted.quote(name)}: {untrusted.quote(text)} is not a block shape; write [128, 128]")
    return _count(sizes[1], name), _count(sizes[2], name)


@dataclass(frozen=True)
class MoeTable:
    """Contents of a file: configs by number of tokens, in the file's order, and the version of Triton."""

    title: TableName
    rows: Mapping[int, Config]
    triton: str = ""

    def nearest(self, tokens: int) -> tuple[int, Config]:
        """Returns the row that both tools use for a number of tokens: the nearest, of two the first."""
        if not self.rows:
            raise WireError(f"the table for {self.title.name(Tool.SGLANG)} has no rows; tune it anew")
        size = nearest_size(self.rows, tokens)
        return size, self.rows[size]

    def foreign_rows(self) -> Iterator[ForeignRow]:
        """Yields the rows as configs to try first."""
        for size, config in self.rows.items():
            yield ForeignRow({"E": self.title.experts, "N": self.title.width, "M": size}, config, self.title.device)


def nearest_size(sizes: Iterable[int], tokens: int) -> int:
    """Returns the nearest size, of two the first."""
    return min(sizes, key=lambda size: abs(size - tokens))


def seeds(path: Path | str, most: int = 3) -> Callable[..., list[Config]]:
    """Returns a function of the size M that gives seeds: the configs of the nearest rows, to race first."""
    table = read(Path(path))

    def nearby(M: int, **sizes: int) -> list[Config]:  # noqa: N803 - what the tools call the number of tokens
        sized = sorted(table.rows, key=lambda size: abs(size - M))
        return list(dict.fromkeys(table.rows[size] for size in sized))[:most]

    return nearby


def table_from_decisions(title: TableName, decisions: Iterable[Decision], triton: str = "") -> MoeTable:
    """Returns a table of the decisions of a kernel with the dimension M, and optionally E and N."""
    rows: dict[int, Config] = {}
    for decision in decisions:
        dims = decision.key.signature.dims
        if "M" not in dims:
            raise WireError(
                f"{decision.key.kernel}: {decision.key.signature} has no dimension M; name the number of tokens M"
            )
        if (dims.get("E", title.experts), dims.get("N", title.width)) != (title.experts, title.width):
            raise WireError(
                f"{decision.key.signature} is not for E={title.experts}, N={title.width}; export it separately"
            )
        if rows.setdefault(dims["M"], decision.config) != decision.config:
            raise WireError(f"two decisions for M={dims['M']} differ; export one device and one toolchain at a time")
    return MoeTable(title, dict(sorted(rows.items())), triton)


def read(path: Path) -> MoeTable:
    """Returns the table in a file."""
    repeated: list[str] = []
    content = untrusted.load_table(path, repeated)
    if repeated:
        raise WireError(f"{path} has {untrusted.quote(repeated[0])} twice; keep one")
    return parse(content, parse_name(path.name), str(path), triton_version_of(path))


def triton_version_of(path: Path) -> str:
    """Returns the version of Triton by the folder of a file; "" if the folder is not of SGLang."""
    version = _FOLDER.fullmatch(path.resolve().parent.name)
    return version[1].replace("_", ".") if version else ""


def parse(content: Any, title: TableName, where: str, triton: str = "") -> MoeTable:
    """Returns the table from the content of a file."""
    head = untrusted.check_object(content, where)
    rows: dict[int, Config] = {}
    for key, fields in head.items():
        if key == VERSION:
            triton = untrusted.check_text(fields, f"{where}: {VERSION}")
            continue
        size = parse_tokens(key, where)
        if size in rows:
            raise WireError(f"{where} has two rows for M={size}; keep one")
        if size < 1:
            raise WireError(f"{where} has a row for M={size}, which is never looked up; remove it")
        rows[size] = parse_config(fields, f"{where}: M={size}")
    return MoeTable(title, rows, triton)


def parse_tokens(key: str, where: str) -> int:
    """Returns the number of tokens of a row, parsed as the tools do."""
    try:
        if len(key) <= _MAX_DIGITS:
            return int(key)
    except ValueError:
        pass
    raise WireError(f"{where}: {untrusted.quote(key)} is not a number of tokens; the tools fail on it")


def parse_config(fields: Any, where: str) -> Config:
    """Returns the config of a row."""
    entries = untrusted.check_object(fields, where)
    if len(entries) > untrusted.MAX_KNOBS:
        raise WireError(f"{where} sets {len(entries):,} parameters; at most {untrusted.MAX_KNOBS} are read")
    return Config(
        {
            untrusted.check_name(name, where): untrusted.check_value(value, f"{where}: {name}")
            for name, value in entries.items()
        }
    )


def write(table: MoeTable, folder: Path, tool: Tool) -> Path:
    """Write `table` where a tool looks for it in its folder of configs."""
    name = table.title.name(tool)
    if name is None:
        raise WireError(f"{tool} has no per-channel or down-projection tables; write it for {Tool.SGLANG}")
    for part in (name, table.triton):
        if "/" in part or "\0" in part:
            raise WireError(f"{untrusted.quote(part)} cannot be part of a file name")
    content: dict[str, Any] = {}
    if tool is Tool.SGLANG:
        if not table.triton:
            raise WireError(f"{tool} looks tables up by the version of Triton; export decisions of one version")
        folder = folder / f"triton_{table.triton.replace('.', '_')}"
        untrusted.make_folder(folder)
    elif table.triton:
        content[VERSION] = table.triton
    content |= {str(size): _in_tool_order(config) for size, config in table.rows.items()}
    path = folder / name
    untrusted.write_file(path, json.dumps(content, indent=4) + "\n")
    return path


def _in_tool_order(config: Config) -> dict[str, Any]:
    """Returns a config in the order in which the tools write it."""
    names = [name for name in _ORDER if name in config]
    return {name: config[name] for name in [*names, *(name for name in config if name not in _ORDER)]}
