"""Audit of MoE tables of vLLM and SGLang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import moe, untrusted
from tunewright.interop.findings import TRITON, AuditRequest, Fault, FileFindings
from tunewright.interop.launches import AMD_ONLY, BLOCKS, CHECKS, launch_problems
from tunewright.interop.moe import TableName, Tool
from tunewright.stores.fallback import normalize_device_name

MAX_GAP, MAX_DISTANCE, MAX_TILE_RATIO = 4, 2, 8
"""Maximum ratios of neighboring sizes, of a size and its row, and of the tiles of neighbors."""

_DTYPES = ("fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "mxfp4_w4a4", "float32")
_DEFAULT_DTYPES = ("float16", "bfloat16", "fp16", "bf16", "half")
_WEIGHT_ONLY = ("int4_w4a16", "int8_w8a16")
_VENDORS = ("NVIDIA", "AMD")
_GENERIC_DEVICE = "AMD_Radeon_Graphics"


@dataclass
class CheckedTable:
    """A table with its name, folder, rows and findings."""

    name: str
    page: FileFindings
    title: TableName | None
    rows: dict[int, Mapping[str, Any]]
    folder: str
    triton: str

    @property
    def tool(self) -> Tool:
        """The tool that finds it: only SGLang has folders for versions of Triton."""
        return Tool.SGLANG if self.folder else Tool.VLLM


class MoeAudit:
    """Checks tables one by one, then against each other and against the request."""

    def __init__(self, request: AuditRequest) -> None:
        self._request = request
        self._tables: list[CheckedTable] = []

    def check_file(self, path: Path, page: FileFindings) -> None:
        """Add findings of the table at `path`."""
        if table := _check_table(path, page):
            self._tables.append(table)

    def check_all(self, folder: FileFindings) -> None:
        """Add findings of all tables together."""
        named = [(table, table.title) for table in self._tables if table.title is not None]
        _check_aliases(named)
        _check_collisions(named)
        if self._request.device:
            _check_device(named, self._request.device, folder)
        if TRITON in self._request.versions:
            _check_versions(self._tables, self._request.versions[TRITON])
        _check_shapes(named, self._request, folder)


def _check_table(path: Path, page: FileFindings) -> CheckedTable | None:
    folder = moe.triton_version_of(path)
    title = _check_name(path.name, folder, page)
    repeated: list[str] = []
    try:
        content = untrusted.check_object(untrusted.load_table(path, repeated), "the file")
    except WireError as error:
        page.error(Fault.DAMAGED, str(error), "get the file anew, or tune again")
        return None
    for name in dict.fromkeys(repeated):
        page.error(
            Fault.COLLISION, f"{untrusted.quote(name)} is there twice; the last one counts", "keep one of them", name
        )
    recorded = str(content.pop(moe.VERSION, ""))
    if recorded and folder:
        wrong = f"SGLang reads {moe.VERSION} as a number of tokens, and stops"
        page.error(Fault.VALUE, wrong, "remove it; the folder says the version", moe.VERSION)
    rows = _check_rows(content, title, page)
    _check_gaps(sorted(rows), page)
    _check_cliffs(rows, page)
    return CheckedTable(path.name, page, title, rows, folder, folder or recorded)


def _check_name(name: str, folder: str, page: FileFindings) -> TableName | None:
    try:
        title = moe.parse_name(name)
    except WireError as error:
        page.error(Fault.UNREACHABLE, str(error), "name it E=..,N=..,device_name=..[,dtype=..][,block_shape=..].json")
        return None
    tools = [Tool.SGLANG] if folder else list(Tool)  # vLLM looks into no folder for a version
    names = {tool: file_name for tool in tools if (file_name := title.name(tool)) is not None}
    if name not in names.values():
        wanted = " or ".join(dict.fromkeys(names.values()))
        page.error(Fault.UNREACHABLE, "no look-up asks for a file of this name", f"rename it to {wanted}")
    elif not folder and name != names.get(Tool.VLLM):
        theirs = f"vLLM asks for {names[Tool.VLLM]}" if Tool.VLLM in names else "vLLM asks for no such table"
        wrong = f"SGLang looks for this name only in folders triton_X_Y_Z, and {theirs}"
        page.error(Fault.UNREACHABLE, wrong, "move it to the folder of the Triton it was tuned with, or rename it")
    _check_spelling(title, page)
    return title


def _check_spelling(title: TableName, page: FileFindings) -> None:
    """Add findings of device and dtype names that no driver or kernel uses."""
    maker = title.device.partition("_")[0]
    if (right := next((vendor for vendor in _VENDORS if vendor == maker.upper()), maker)) != maker:
        wrong = f"drivers write {right}, not {untrusted.quote(maker)}, so no look-up asks for this device"
        page.error(Fault.UNREACHABLE, wrong, "rename the file as the driver spells the device")
    if title.device == _GENERIC_DEVICE:
        wrong = f"several devices call themselves {_GENERIC_DEVICE}, and all of them take this table"
        page.warn(Fault.ALIAS, wrong, "update the driver's list of devices, and name the table for one")
    if title.dtype.lower() in _DEFAULT_DTYPES:
        page.error(Fault.UNREACHABLE, f"dtype={title.dtype} is never asked for", "leave dtype out: 16 bits have none")
    elif title.dtype and title.dtype not in _DTYPES and not title.dtype.startswith("w_mx"):
        wrong = f"dtype={untrusted.quote(title.dtype)} is none that we know to be asked for"
        page.warn(Fault.UNREACHABLE, wrong, f"known are {', '.join(_DTYPES)}")


def _check_rows(content: dict[str, Any], title: TableName | None, page: FileFindings) -> dict[int, Mapping[str, Any]]:
    rows: dict[int, Mapping[str, Any]] = {}
    seen: dict[int, str] = {}
    for key, said in content.items():
        row = f"M={key}"
        try:
            size = moe.parse_tokens(key, "the table")
            config = untrusted.check_object(said, "the row")
        except WireError as error:
            page.error(Fault.DAMAGED, str(error), "correct it, or remove the row", row)
            continue
        if size < 1:
            page.error(Fault.UNREACHABLE, "nobody asks for so few tokens", "remove the row", row)
        elif size in seen:
            wrong = f"{untrusted.quote(seen[size])} and {untrusted.quote(key)} are the same number; the last one counts"
            page.error(Fault.COLLISION, wrong, "keep one of the rows", row)
        else:
            seen[size] = key
            _check_config(config, title, page, row)
            rows[size] = config
    if not rows:
        page.error(Fault.DAMAGED, "it has no row that can be used", "tune it anew, or remove it: there are defaults")
    return rows


def _check_config(config: Mapping[str, Any], title: TableName | None, page: FileFindings, row: str) -> None:
    for wrong in launch_problems(config):
        page.error(Fault.VALUE, wrong, "tune this row anew", row)
    # Kernels for quantized weights choose these blocks themselves.
    own = title is not None and title.dtype in _WEIGHT_ONLY and bool(title.block_shape)
    needed = BLOCKS[:1] if own else (*BLOCKS, "GROUP_SIZE_M")
    if missing := [name for name in needed if name not in config]:
        page.error(Fault.VALUE, f"{', '.join(missing)} is missing", "tune this row anew", row)
    if not own and (left := [name for name in ("num_warps", "num_stages") if name not in config]):
        page.warn(Fault.VALUE, f"{', '.join(left)} is left to Triton's default", "tune this row anew", row)
    if unknown := [name for name in config if name not in CHECKS]:
        named = ", ".join(map(untrusted.quote, unknown))
        page.warn(Fault.VALUE, f"no kernel that we know takes {named}", "check its spelling, or remove it", row)
    if title is not None and title.device.startswith("NVIDIA") and (foreign := sorted(AMD_ONLY & config.keys())):
        wrong = f"only AMD's compiler knows {', '.join(foreign)}; NVIDIA's stops at it"
        page.error(Fault.VALUE, wrong, "tune on the device that the file is named for", row)


def _check_gaps(sizes: Sequence[int], page: FileFindings) -> None:
    for below, above in pairwise([1, *sizes]):
        if above > MAX_GAP * below:
            wrong = f"there is no row between {below} and {above} tokens" + ("" if below in sizes else ", nor below")
            page.warn(Fault.GAP, wrong, f"tune sizes between them, at most {MAX_GAP} times apart", f"M={above}")


def _check_cliffs(rows: Mapping[int, Mapping[str, Any]], page: FileFindings) -> None:
    tiles = {size: _tile(config) for size, config in sorted(rows.items())}
    sizes = list(tiles)
    for before, here, after in zip(sizes, sizes[1:], sizes[2:], strict=False):
        low, tile, high = tiles[before], tiles[here], tiles[after]
        if not (low and tile and high):
            continue
        if tile >= MAX_TILE_RATIO * max(low, high) or MAX_TILE_RATIO * tile <= min(low, high):
            wrong = f"its tile differs {MAX_TILE_RATIO} times or more from those for {before} and {after} tokens"
            page.warn(Fault.CLIFF, wrong, "race this row against its neighbors' configs", f"M={here}")


def _tile(config: Mapping[str, Any]) -> int:
    sizes = [config.get(name) for name in BLOCKS]
    return prod(sizes) if all(type(size) is int and size > 0 for size in sizes) else 0  # type: ignore[arg-type]


Named = Sequence[tuple[CheckedTable, TableName]]


def _check_aliases(named: Named) -> None:
    spelt: dict[str, dict[str, list[CheckedTable]]] = defaultdict(lambda: defaultdict(list))
    for table, title in named:
        spelt[normalize_device_name(title.device)][title.device].append(table)
    for names in spelt.values():
        usual = max(names, key=lambda name: (_reachable(names[name]), name))
        for name in names:
            for table in names[name] if name != usual else ():
                if not table.page.has(Fault.UNREACHABLE):
                    wrong = f"{name} and {usual} seem to be one device, which has one of these names only"
                    table.page.warn(Fault.ALIAS, wrong, "see what the driver calls it, and rename the others")


def _reachable(tables: Sequence[CheckedTable]) -> int:
    return sum(not table.page.has(Fault.UNREACHABLE) for table in tables)


def _check_collisions(named: Named) -> None:
    places: dict[tuple[str, str], CheckedTable] = {}
    for table, _ in named:
        first = places.setdefault((table.name, table.folder), table)
        if first.rows != table.rows:
            wrong = f"{first.page.file} answers the same look-up, with other rows; which one does depends on folders"
            table.page.error(Fault.COLLISION, wrong, "keep the one that is meant")


def _check_device(named: Named, device: str, folder: FileFindings) -> None:
    for table, title in named:
        wanted = moe.device_name(device, table.tool)
        same = normalize_device_name(title.device) == normalize_device_name(wanted)
        if same and title.device != wanted and not table.page.has(Fault.UNREACHABLE):
            wrong = f"on {device} the look-up asks for {wanted}, not for {title.device}"
            table.page.error(Fault.UNREACHABLE, wrong, "rename the file")
    if named and not any(title.device == moe.device_name(device, table.tool) for table, title in named):
        others = ", ".join(sorted({title.device for _, title in named})[:5])
        folder.error(Fault.UNTUNED, f"no MoE table is for {device}; there are some for {others}", "tune it there")


def _check_versions(tables: Sequence[CheckedTable], wanted: str) -> None:
    tuned = {table.name for table in tables if table.triton == wanted}
    for table in tables:
        if table.triton and table.triton != wanted and table.name not in tuned:
            wrong = f"tuned with Triton {table.triton}, to be used with {wanted}"
            table.page.warn(Fault.VERSION, wrong, "tune it anew, or race its rows against the defaults")


def _check_shapes(named: Named, request: AuditRequest, folder: FileFindings) -> None:
    """Add findings of requested sizes without a near row, or without a table."""
    wanted: dict[tuple[int | None, int | None], set[int]] = defaultdict(set)
    for dims in (shape.dims for shape in request.shapes if "M" in shape.dims):
        wanted[dims.get("E"), dims.get("N")].add(dims["M"])
    for (experts, width), tokens in wanted.items():
        fitting = [
            table
            for table, title in named
            if experts in (None, title.experts)
            and width in (None, title.width)
            and (not request.device or title.device == moe.device_name(request.device, table.tool))
        ]
        for table in fitting:
            _check_distances(table, tokens)
        if named and not fitting and experts is not None and width is not None:
            wrong = f"E={experts}, N={width} is asked for, and no table is for it"
            folder.error(Fault.UNTUNED, wrong, "tune it; until then there are defaults")


def _check_distances(table: CheckedTable, tokens: set[int]) -> None:
    far: dict[int, list[int]] = defaultdict(list)
    for count in sorted(tokens) if table.rows else ():
        size = moe.nearest_size(table.rows, count)
        if max(size, count) > MAX_DISTANCE * min(size, count):
            far[size].append(count)
    for size, counts in far.items():
        listed = ", ".join(map(str, counts[:5])) + (", ..." if len(counts) > 5 else "")
        wrong = f"{listed} tokens are asked for, and this row, more than {MAX_DISTANCE} times off, is the nearest"
        table.page.warn(Fault.FAR, wrong, "tune these sizes too", f"M={size}")
