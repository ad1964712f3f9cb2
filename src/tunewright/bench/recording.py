"""Records which operators and tuned kernels a program calls, with which sizes, and how often."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tunewright.bench.calls import CallSuite, OperatorCall
from tunewright.bench.tracing import OPERATOR
from tunewright.errors import WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores import serialization

log = LazyLogger(__name__)

# Python runs a module of this name when it starts; one that was there before is then run as well.
_SITE = """import sys
sys.path.remove({here!r})
ours = sys.modules.pop("sitecustomize")
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("tunewright_tracing", {tracing!r})
tracing = module_from_spec(spec)
spec.loader.exec_module(tracing)
tracing.install({folder!r})
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = ours
"""

TRACING = str(Path(__file__).with_name("tracing.py"))


class RecordedCall(msgspec.Struct, frozen=True):
    """Calls of one operator or kernel with the same sizes and dtype, and their count."""

    kind: str
    name: str
    sizes: dict[str, int]
    dtype: str
    count: int


def record(command: Sequence[str]) -> tuple[CallSuite, int]:
    """Runs a command; returns what it and every Python that it starts call, and its exit status."""
    with TemporaryDirectory(prefix="tunewright-record-") as temporary:
        site, folder = Path(temporary, "site"), Path(temporary, "seen")
        site.mkdir()
        folder.mkdir()
        (site / "sitecustomize.py").write_text(_SITE.format(here=str(site), tracing=TRACING, folder=str(folder)))
        environ = dict(os.environ)  # noqa: TID251 - handed on
        paths = [str(site), *filter(None, [environ.get("PYTHONPATH")])]
        process = subprocess.run(command, env={**environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False)
        return _collect(folder), process.returncode


def _collect(folder: Path) -> CallSuite:
    """Returns the calls of all processes, the most frequent first."""
    counts: Counter[bytes] = Counter()
    for path in sorted(folder.iterdir()):
        try:
            for recorded in serialization.decode(path.read_bytes(), list[RecordedCall]):
                counts[serialization.encode(msgspec.structs.replace(recorded, count=0))] += recorded.count
        except WireError as error:
            log.warning("the calls of one process are lost: %s", error)
    records = [
        msgspec.structs.replace(serialization.decode(body, RecordedCall), count=count)
        for body, count in counts.most_common()
    ]
    calls = [
        OperatorCall(record.name, record.sizes, record.dtype, record.count)
        for record in records
        if record.kind == OPERATOR
    ]
    kernels = [
        {"name": record.name, "sizes": record.sizes, "dtype": record.dtype, "count": record.count}
        for record in records
        if record.kind != OPERATOR
    ]
    return CallSuite(tuple(calls), f"recorded with Python {sys.version.split()[0]}", tuple(kernels))


def as_toml(suite: CallSuite) -> str:
    """Returns a suite in the format that `--shapes` reads."""
    lines = [f"about = {_quoted(suite.about)}"]
    for call in suite.call:
        lines += ["", "[[call]]", f"operator = {_quoted(call.operator)}", *_fields(call.sizes, call.dtype, call.count)]
    for kernel in suite.kernel:
        fields = _fields(kernel["sizes"], kernel["dtype"], kernel["count"])
        lines += ["", "[[kernel]]", f"name = {_quoted(kernel['name'])}", *fields]
    return "\n".join(lines) + "\n"


def _fields(sizes: dict[str, int], dtype: str, count: int) -> list[str]:
    inner = ", ".join(f"{_quoted(name)} = {size}" for name, size in sizes.items())
    return [f"sizes = {{ {inner} }}", f"dtype = {_quoted(dtype)}", f"count = {count}"]


def _quoted(text: str) -> str:
    """Returns a TOML string; TOML's escapes are JSON's."""
    return serialization.encode(text).decode()
