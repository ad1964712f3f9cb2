"""Audit of TunableOp results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tunewright.errors import WireError
from tunewright.interop import tunableop, untrusted
from tunewright.interop.findings import TRITON, AuditRequest, Fault, FileFindings
from tunewright.interop.tunableop import ABSENT, MANDATORY, ResultLine, TunableOpResults, TunedGemm

_KERNELS = re.compile(r"Default|-?\d+|Gemm_(?:Rocblas|Hipblaslt|Cublaslt)_\S+")
_RETUNE = "tune with PyTorch again; it writes the file anew"


class TunableOpAudit:
    """Checks results one by one, then for requested GEMMs that none of them has."""

    def __init__(self, request: AuditRequest) -> None:
        self._request = request
        self._known: set[tuple[str, str]] = set()

    def check_file(self, path: Path, page: FileFindings) -> None:
        """Add findings of the results at `path`."""
        try:
            lines = list(tunableop.parse_lines(path))
        except WireError as error:
            page.error(Fault.DAMAGED, str(error), "get the file anew, or tune again")
            return
        for line in lines:
            if line.problem:
                page.error(Fault.DAMAGED, line.problem, "correct or remove the line", _line_label(line))
        results = TunableOpResults(_check_validators(lines, page), tuple(_check_rows(lines, page)))
        self._known |= {(row.op, row.params) for row in results.rows}
        _check_name(path, page)
        _check_versions(results, self._request, page)
        _check_strides(results, page)

    def check_all(self, folder: FileFindings) -> None:
        """Add findings of requested GEMMs that are in no file."""
        for call in dict.fromkeys(shape.call for shape in self._request.shapes if shape.call is not None):
            if self._known and call not in self._known:
                wrong = f"{untrusted.quote(call[0])} with {untrusted.quote(call[1])} is asked for, and no file has it"
                folder.warn(Fault.UNTUNED, wrong, "tune it: torch.cuda.tunable.tune_gemm_in_file")


def _check_strides(results: TunableOpResults, page: FileFindings) -> None:
    if not results.rows:
        page.warn(Fault.DAMAGED, "it has no results, so nothing is looked up in it", _RETUNE)
    if len({tunableop.has_strides(row.params) for row in results.rows} - {None}) > 1:
        wrong = "some parameters name leading dimensions (ld) and some do not; one version asks for one kind only"
        page.warn(Fault.UNREACHABLE, wrong, _RETUNE)


def _line_label(line: ResultLine) -> str:
    return f"line {line.number}"


def _check_validators(lines: Iterable[ResultLine], page: FileFindings) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if line.validator is not None:
            name, value = line.validator
            if found.get(name, value) != value:
                wrong = (
                    f"{name} is {untrusted.quote(found[name])} above and {untrusted.quote(value)} "
                    f"here; the last one counts"
                )
                page.error(Fault.COLLISION, wrong, "keep the one that the rows were tuned with", _line_label(line))
            found[name] = value
    return found


def _check_rows(lines: Iterable[ResultLine], page: FileFindings) -> Iterator[TunedGemm]:
    seen: dict[tuple[str, str], TunedGemm] = {}
    for line in lines:
        if (row := line.result) is None:
            continue
        yield row
        if why := tunableop.lookup_problem(row.op, row.params):
            page.error(Fault.UNREACHABLE, f"no look-up asks for it: {why}", "remove the line", _line_label(line))
        if _KERNELS.fullmatch(row.kernel) is None:
            wrong = f"{untrusted.quote(row.kernel)} is none of the libraries' kernels that we know"
            page.warn(Fault.VALUE, wrong, "write Default, or tune again", _line_label(line))
        first = seen.setdefault((row.op, row.params), row)
        if first is not row:
            wrong = f"the same product is above, with {untrusted.quote(first.kernel)}; the first one counts"
            page.error(Fault.COLLISION, wrong, "keep one of the lines", _line_label(line))


def _check_name(path: Path, page: FileFindings) -> None:
    """Add a finding of a name that PyTorch never looks for: it inserts the device number, or replaces `%d`."""
    if "%d" in path.name or not re.search(r"\d", path.name):
        wrong = "PyTorch puts the device's number into the name that it asks for, and here is none"
        page.warn(Fault.UNREACHABLE, wrong, "rename it to tunableop_results0.csv, or set that very name in the program")


def _check_versions(results: TunableOpResults, request: AuditRequest, page: FileFindings) -> None:
    if results.validators.get(MANDATORY) is None:
        page.error(Fault.VERSION, f"it does not say {MANDATORY}, so PyTorch takes nothing of it", _RETUNE)
    expected = {name: value for name, value in request.versions.items() if name != TRITON}
    for name, (wanted, actual) in results.validated(expected).items():
        if wanted == ABSENT or (name == MANDATORY and actual == ABSENT):
            continue
        wrong = f"{name}: expected {wanted}, the file says {actual}; PyTorch takes nothing of it"
        page.error(Fault.VERSION, wrong, _RETUNE)
