"""Recording: which operators and tuned kernels a program calls, with which sizes, and how often."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tunewright.bench.calls import Call, Suite
from tunewright.bench.watching import OPERATOR
from tunewright.errors import WireError
from tunewright.remarks import Remarks
from tunewright.sharing import wire

log = Remarks(__name__)

# Python runs a module of this name when it starts; one that was there before is then run as well.
_SITE = """import sys
sys.path.remove({here!r})
del sys.modules["sitecustomize"]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("tunewright_watching", {watching!r})
watching = module_from_spec(spec)
spec.loader.exec_module(watching)
watching.install({folder!r})
try:
    import sitecustomize
except ImportError:
    pass
"""

WATCHING = str(Path(__file__).with_name("watching.py"))


class Seen(msgspec.Struct, frozen=True):
    """Calls of one kind: of what, with which sizes and dtype, how often."""

    kind: str
    name: str
    sizes: dict[str, int]
    dtype: str
    count: int


def record(command: Sequence[str]) -> tuple[Suite, int]:
    """What a command, and every Python that it starts, calls; and its exit status."""
    with TemporaryDirectory(prefix="tunewright-record-") as place:
        site, folder = Path(place, "site"), Path(place, "seen")
        site.mkdir()
        folder.mkdir()
        (site / "sitecustomize.py").write_text(_SITE.format(here=str(site), watching=WATCHING, folder=str(folder)))
        given = dict(os.environ)  # noqa: TID251 - handed on
        paths = [str(site), *filter(None, [given.get("PYTHONPATH")])]
        done = subprocess.run(command, env={**given, "PYTHONPATH": os.pathsep.join(paths)}, check=False)
        return _gathered(folder), done.returncode


def _gathered(folder: Path) -> Suite:
    """What all processes saw, the most frequent first."""
    counts: Counter[bytes] = Counter()
    for path in sorted(folder.iterdir()):
        try:
            for seen in wire.decode(path.read_bytes(), list[Seen]):
                counts[wire.encode(msgspec.structs.replace(seen, count=0))] += seen.count
        except WireError as error:
            log.warning("what one process called is lost: %s", error)
    every = [msgspec.structs.replace(wire.decode(body, Seen), count=count) for body, count in counts.most_common()]
    calls = [Call(one.name, one.sizes, one.dtype, one.count) for one in every if one.kind == OPERATOR]
    kernels = [{"name": one.name, "sizes": one.sizes, "dtype": one.dtype, "count": one.count}
               for one in every if one.kind != OPERATOR]  # fmt: skip
    return Suite(tuple(calls), f"recorded with Python {sys.version.split()[0]}", tuple(kernels))


def as_toml(suite: Suite) -> str:
    """A suite as the file that `--shapes` reads."""
    lines = [f"about = {_quoted(suite.about)}"]
    for call in suite.call:
        lines += ["", "[[call]]", f"operator = {_quoted(call.operator)}", *_rest(call.sizes, call.dtype, call.count)]
    for one in suite.kernel:
        lines += ["", "[[kernel]]", f"name = {_quoted(one['name'])}", *_rest(one["sizes"], one["dtype"], one["count"])]
    return "\n".join(lines) + "\n"


def _rest(sizes: dict[str, int], dtype: str, count: int) -> list[str]:
    inner = ", ".join(f"{_quoted(name)} = {size}" for name, size in sizes.items())
    return [f"sizes = {{ {inner} }}", f"dtype = {_quoted(dtype)}", f"count = {count}"]


def _quoted(text: str) -> str:
    """A TOML string; TOML's escapes are JSON's."""
    return wire.encode(text).decode()
