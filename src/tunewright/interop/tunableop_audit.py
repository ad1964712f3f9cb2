"""TunableOp audit: what is wrong with results that PyTorch is to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tunewright.errors import WireError
from tunewright.interop import edge, tunableop
from tunewright.interop.findings import TRITON, Asked, Fault, Page
from tunewright.interop.tunableop import ABSENT, MANDATORY, Line, Result, Results

_KERNELS = re.compile(r"Default|-?\d+|Gemm_(?:Rocblas|Hipblaslt|Cublaslt)_\S+")
_ANEW = "tune with PyTorch again; it writes the file anew"


class TunableOpAudit:
    """Looks through results one by one, then for what is asked for and in none of them."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._known: set[tuple[str, str]] = set()

    def look(self, path: Path, page: Page) -> None:
        """Note what is wrong with the results at `path`."""
        try:
            lines = list(tunableop.parsed(path))
        except WireError as error:
            page.error(Fault.DAMAGED, str(error), "get the file anew, or tune again")
            return
        for line in lines:
            if line.problem:
                page.error(Fault.DAMAGED, line.problem, "correct or remove the line", _at(line))
        results = Results(_validators(lines, page), tuple(_rows(lines, page)))
        self._known |= {(row.op, row.params) for row in results.rows}
        _name(path, page)
        _versions(results, self._asked, page)
        _strides(results, page)

    def compare(self, folder: Page) -> None:
        """Note products that are asked for and in no file."""
        for call in dict.fromkeys(shape.call for shape in self._asked.shapes if shape.call is not None):
            if self._known and call not in self._known:
                wrong = f"{edge.shown(call[0])} with {edge.shown(call[1])} is asked for, and no file has it"
                folder.warn(Fault.UNTUNED, wrong, "tune it: torch.cuda.tunable.tune_gemm_in_file")


def _strides(results: Results, page: Page) -> None:
    if not results.rows:
        page.warn(Fault.DAMAGED, "it has no results, so nothing is looked up in it", _ANEW)
    if len({tunableop.has_strides(row.params) for row in results.rows} - {None}) > 1:
        wrong = "some parameters name leading dimensions (ld) and some do not; one version asks for one kind only"
        page.warn(Fault.UNREACHABLE, wrong, _ANEW)


def _at(line: Line) -> str:
    return f"line {line.number}"


def _validators(lines: Iterable[Line], page: Page) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if line.validator is not None:
            name, value = line.validator
            if found.get(name, value) != value:
                wrong = f"{name} is {edge.shown(found[name])} above and {edge.shown(value)} here; the last one counts"
                page.error(Fault.COLLISION, wrong, "keep the one that the rows were tuned with", _at(line))
            found[name] = value
    return found


def _rows(lines: Iterable[Line], page: Page) -> Iterator[Result]:
    seen: dict[tuple[str, str], Result] = {}
    for line in lines:
        if (row := line.result) is None:
            continue
        yield row
        if why := tunableop.objection(row.op, row.params):
            page.error(Fault.UNREACHABLE, f"no look-up asks for it: {why}", "remove the line", _at(line))
        if _KERNELS.fullmatch(row.kernel) is None:
            wrong = f"{edge.shown(row.kernel)} is none of the libraries' kernels that we know"
            page.warn(Fault.VALUE, wrong, "write Default, or tune again", _at(line))
        first = seen.setdefault((row.op, row.params), row)
        if first is not row:
            wrong = f"the same product is above, with {edge.shown(first.kernel)}; the first one counts"
            page.error(Fault.COLLISION, wrong, "keep one of the lines", _at(line))


def _name(path: Path, page: Page) -> None:
    """Note a name that PyTorch never asks for: it puts the number of the device before the ending, or for `%d`."""
    if "%d" in path.name or not re.search(r"\d", path.name):
        wrong = "PyTorch puts the device's number into the name that it asks for, and here is none"
        page.warn(Fault.UNREACHABLE, wrong, "rename it to tunableop_results0.csv, or set that very name in the program")


def _versions(results: Results, asked: Asked, page: Page) -> None:
    if results.validators.get(MANDATORY) is None:
        page.error(Fault.VERSION, f"it does not say {MANDATORY}, so PyTorch takes nothing of it", _ANEW)
    expected = {name: value for name, value in asked.versions.items() if name != TRITON}
    for name, (wanted, actual) in results.validated(expected).items():
        if wanted == ABSENT or (name == MANDATORY and actual == ABSENT):
            continue
        wrong = f"{name}: expected {wanted}, the file says {actual}; PyTorch takes nothing of it"
        page.error(Fault.VERSION, wrong, _ANEW)
