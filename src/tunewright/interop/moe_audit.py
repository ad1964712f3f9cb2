"""MoE audit: what is wrong with tables of vLLM and SGLang, one by one and beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge, moe
from tunewright.interop.findings import TRITON, Asked, Fault, Page
from tunewright.interop.launches import AMD, BLOCKS, CHECKS, impossible
from tunewright.interop.moe import Title, Tool
from tunewright.sharing.nearby import plain_name

WIDEST, FARTHEST, STEEPEST = 4, 2, 8
"""How many times neighbouring sizes, a size and its row, and the tiles of neighbours may differ."""

_DTYPES = ("fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "mxfp4_w4a4", "float32")
_UNNAMED = ("float16", "bfloat16", "fp16", "bf16", "half")
_WEIGHT_ONLY = ("int4_w4a16", "int8_w8a16")
_MAKERS = ("NVIDIA", "AMD")
_ANYONE = "AMD_Radeon_Graphics"


@dataclass
class Sheet:
    """A table as it was found: what its name and its folder say, its rows, and what is noted of it."""

    name: str
    page: Page
    title: Title | None
    rows: dict[int, Mapping[str, Any]]
    folder: str
    triton: str

    @property
    def tool(self) -> Tool:
        """Who finds it where it is: only one of the two looks into a folder for a version of Triton."""
        return Tool.SGLANG if self.folder else Tool.VLLM


class MoeAudit:
    """Looks through tables one by one, then compares them with each other and with what is asked for."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._sheets: list[Sheet] = []

    def look(self, path: Path, page: Page) -> None:
        """Note what is wrong with the table at `path`."""
        if sheet := _sheet(path, page):
            self._sheets.append(sheet)

    def compare(self, folder: Page) -> None:
        """Note what is wrong with all tables together."""
        named = [(sheet, sheet.title) for sheet in self._sheets if sheet.title is not None]
        _aliases(named)
        _collisions(named)
        if self._asked.device:
            _device(named, self._asked.device, folder)
        if TRITON in self._asked.versions:
            _versions(self._sheets, self._asked.versions[TRITON])
        _shapes(named, self._asked, folder)


def _sheet(path: Path, page: Page) -> Sheet | None:
    folder = moe.triton_of(path)
    title = _title(path.name, folder, page)
    repeated: list[str] = []
    try:
        content = edge.mapping(edge.load_table(path, repeated), "the file")
    except WireError as error:
        page.error(Fault.DAMAGED, str(error), "get the file anew, or tune again")
        return None
    for name in dict.fromkeys(repeated):
        page.error(Fault.COLLISION, f"{edge.shown(name)} is there twice; the last one counts", "keep one of them", name)
    recorded = str(content.pop(moe.VERSION, ""))
    if recorded and folder:
        wrong = f"SGLang reads {moe.VERSION} as a number of tokens, and stops"
        page.error(Fault.VALUE, wrong, "remove it; the folder says the version", moe.VERSION)
    rows = _rows(content, title, page)
    _buckets(sorted(rows), page)
    _cliffs(rows, page)
    return Sheet(path.name, page, title, rows, folder, folder or recorded)


def _title(name: str, folder: str, page: Page) -> Title | None:
    try:
        title = moe.title_of(name)
    except WireError as error:
        page.error(Fault.UNREACHABLE, str(error), "name it E=..,N=..,device_name=..[,dtype=..][,block_shape=..].json")
        return None
    tools = [Tool.SGLANG] if folder else list(Tool)  # vLLM looks into no folder for a version
    names = {tool: asked for tool in tools if (asked := title.name(tool)) is not None}
    if name not in names.values():
        wanted = " or ".join(dict.fromkeys(names.values()))
        page.error(Fault.UNREACHABLE, "no look-up asks for a file of this name", f"rename it to {wanted}")
    elif not folder and name != names.get(Tool.VLLM):
        theirs = f"vLLM asks for {names[Tool.VLLM]}" if Tool.VLLM in names else "vLLM asks for no such table"
        wrong = f"SGLang looks for this name only in folders triton_X_Y_Z, and {theirs}"
        page.error(Fault.UNREACHABLE, wrong, "move it to the folder of the Triton it was tuned with, or rename it")
    _spelling(title, page)
    return title


def _spelling(title: Title, page: Page) -> None:
    """Note names that both tools would write so, but of things that no driver and no kernel calls so."""
    maker = title.device.partition("_")[0]
    if (right := next((one for one in _MAKERS if one == maker.upper()), maker)) != maker:
        wrong = f"drivers write {right}, not {edge.shown(maker)}, so no look-up asks for this device"
        page.error(Fault.UNREACHABLE, wrong, "rename the file as the driver spells the device")
    if title.device == _ANYONE:
        wrong = f"several devices call themselves {_ANYONE}, and all of them take this table"
        page.warn(Fault.ALIAS, wrong, "update the driver's list of devices, and name the table for one")
    if title.dtype.lower() in _UNNAMED:
        page.error(Fault.UNREACHABLE, f"dtype={title.dtype} is never asked for", "leave dtype out: 16 bits have none")
    elif title.dtype and title.dtype not in _DTYPES and not title.dtype.startswith("w_mx"):
        wrong = f"dtype={edge.shown(title.dtype)} is none that we know to be asked for"
        page.warn(Fault.UNREACHABLE, wrong, f"known are {', '.join(_DTYPES)}")


def _rows(content: dict[str, Any], title: Title | None, page: Page) -> dict[int, Mapping[str, Any]]:
    rows: dict[int, Mapping[str, Any]] = {}
    seen: dict[int, str] = {}
    for key, said in content.items():
        row = f"M={key}"
        try:
            size = moe.size_of(key, "the table")
            config = edge.mapping(said, "the row")
        except WireError as error:
            page.error(Fault.DAMAGED, str(error), "correct it, or remove the row", row)
            continue
        if size < 1:
            page.error(Fault.UNREACHABLE, "nobody asks for so few tokens", "remove the row", row)
        elif size in seen:
            wrong = f"{edge.shown(seen[size])} and {edge.shown(key)} are the same number; the last one counts"
            page.error(Fault.COLLISION, wrong, "keep one of the rows", row)
        else:
            seen[size] = key
            _config(config, title, page, row)
            rows[size] = config
    if not rows:
        page.error(Fault.DAMAGED, "it has no row that can be used", "tune it anew, or remove it: there are defaults")
    return rows


def _config(config: Mapping[str, Any], title: Title | None, page: Page, row: str) -> None:
    for wrong in impossible(config):
        page.error(Fault.VALUE, wrong, "tune this row anew", row)
    # Kernels for weights of few bits choose these blocks by themselves.
    own = title is not None and title.dtype in _WEIGHT_ONLY and bool(title.block_shape)
    needed = BLOCKS[:1] if own else (*BLOCKS, "GROUP_SIZE_M")
    if missing := [name for name in needed if name not in config]:
        page.error(Fault.VALUE, f"{', '.join(missing)} is missing", "tune this row anew", row)
    if not own and (left := [name for name in ("num_warps", "num_stages") if name not in config]):
        page.warn(Fault.VALUE, f"{', '.join(left)} is left to Triton's default", "tune this row anew", row)
    if unknown := [name for name in config if name not in CHECKS]:
        named = ", ".join(map(edge.shown, unknown))
        page.warn(Fault.VALUE, f"no kernel that we know takes {named}", "check its spelling, or remove it", row)
    if title is not None and title.device.startswith("NVIDIA") and (foreign := sorted(AMD & config.keys())):
        wrong = f"only AMD's compiler knows {', '.join(foreign)}; NVIDIA's stops at it"
        page.error(Fault.VALUE, wrong, "tune on the device that the file is named for", row)


def _buckets(sizes: Sequence[int], page: Page) -> None:
    for below, above in pairwise([1, *sizes]):
        if above > WIDEST * below:
            wrong = f"there is no row between {below} and {above} tokens" + ("" if below in sizes else ", nor below")
            page.warn(Fault.GAP, wrong, f"tune sizes between them, at most {WIDEST} times apart", f"M={above}")


def _cliffs(rows: Mapping[int, Mapping[str, Any]], page: Page) -> None:
    tiles = {size: _tile(config) for size, config in sorted(rows.items())}
    sizes = list(tiles)
    for before, here, after in zip(sizes, sizes[1:], sizes[2:], strict=False):
        low, tile, high = tiles[before], tiles[here], tiles[after]
        if not (low and tile and high):
            continue
        if tile >= STEEPEST * max(low, high) or STEEPEST * tile <= min(low, high):
            wrong = f"its tile differs {STEEPEST} times or more from those for {before} and {after} tokens"
            page.warn(Fault.CLIFF, wrong, "race this row against its neighbours' configs", f"M={here}")


def _tile(config: Mapping[str, Any]) -> int:
    sizes = [config.get(name) for name in BLOCKS]
    return prod(sizes) if all(type(size) is int and size > 0 for size in sizes) else 0  # type: ignore[arg-type]


Named = Sequence[tuple[Sheet, Title]]


def _aliases(named: Named) -> None:
    spelt: dict[str, dict[str, list[Sheet]]] = defaultdict(lambda: defaultdict(list))
    for sheet, title in named:
        spelt[plain_name(title.device)][title.device].append(sheet)
    for names in spelt.values():
        usual = max(names, key=lambda name: (_reachable(names[name]), name))
        for name in names:
            for sheet in names[name] if name != usual else ():
                if not sheet.page.has(Fault.UNREACHABLE):
                    wrong = f"{name} and {usual} seem to be one device, which has one of these names only"
                    sheet.page.warn(Fault.ALIAS, wrong, "see what the driver calls it, and rename the others")


def _reachable(sheets: Sequence[Sheet]) -> int:
    return sum(not sheet.page.has(Fault.UNREACHABLE) for sheet in sheets)


def _collisions(named: Named) -> None:
    places: dict[tuple[str, str], Sheet] = {}
    for sheet, _ in named:
        first = places.setdefault((sheet.name, sheet.folder), sheet)
        if first.rows != sheet.rows:
            wrong = f"{first.page.file} answers the same look-up, with other rows; which one does depends on folders"
            sheet.page.error(Fault.COLLISION, wrong, "keep the one that is meant")


def _device(named: Named, device: str, folder: Page) -> None:
    for sheet, title in named:
        wanted = moe.device_name(device, sheet.tool)
        same = plain_name(title.device) == plain_name(wanted)
        if same and title.device != wanted and not sheet.page.has(Fault.UNREACHABLE):
            wrong = f"on {device} the look-up asks for {wanted}, not for {title.device}"
            sheet.page.error(Fault.UNREACHABLE, wrong, "rename the file")
    if named and not any(title.device == moe.device_name(device, sheet.tool) for sheet, title in named):
        others = ", ".join(sorted({title.device for _, title in named})[:5])
        folder.error(Fault.UNTUNED, f"no MoE table is for {device}; there are some for {others}", "tune it there")


def _versions(sheets: Sequence[Sheet], wanted: str) -> None:
    tuned = {sheet.name for sheet in sheets if sheet.triton == wanted}
    for sheet in sheets:
        if sheet.triton and sheet.triton != wanted and sheet.name not in tuned:
            wrong = f"tuned with Triton {sheet.triton}, to be used with {wanted}"
            sheet.page.warn(Fault.VERSION, wrong, "tune it anew, or race its rows against the defaults")


def _shapes(named: Named, asked: Asked, folder: Page) -> None:
    """Note sizes that are asked for and have no row near them, or no table at all."""
    wanted: dict[tuple[int | None, int | None], set[int]] = defaultdict(set)
    for dims in (shape.dims for shape in asked.shapes if "M" in shape.dims):
        wanted[dims.get("E"), dims.get("N")].add(dims["M"])
    for (experts, width), tokens in wanted.items():
        fitting = [
            sheet
            for sheet, title in named
            if experts in (None, title.experts)
            and width in (None, title.width)
            and (not asked.device or title.device == moe.device_name(asked.device, sheet.tool))
        ]
        for sheet in fitting:
            _far(sheet, tokens)
        if named and not fitting and experts is not None and width is not None:
            wrong = f"E={experts}, N={width} is asked for, and no table is for it"
            folder.error(Fault.UNTUNED, wrong, "tune it; until then there are defaults")


def _far(sheet: Sheet, tokens: set[int]) -> None:
    far: dict[int, list[int]] = defaultdict(list)
    for count in sorted(tokens) if sheet.rows else ():
        size = moe.nearest(sheet.rows, count)
        if max(size, count) > FARTHEST * min(size, count):
            far[size].append(count)
    for size, counts in far.items():
        listed = ", ".join(map(str, counts[:5])) + (", ..." if len(counts) > 5 else "")
        wrong = f"{listed} tokens are asked for, and this row, more than {FARTHEST} times off, is the nearest"
        sheet.page.warn(Fault.FAR, wrong, "tune these sizes too", f"M={size}")
