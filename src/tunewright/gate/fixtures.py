"""What the fixtures of the pytest plugin do: races functions, also against another revision of what they import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunewright.errors import SettingsError
from tunewright.gate.calls import CallContest
from tunewright.gate.checkouts import baseline_checkout, top_folder
from tunewright.gate.sides import Side, SideKind, in_checkouts, open_sides
from tunewright.gate.verdict import Contest, GateOptions, GateResult, run_gate


class RaceRunner:
    """Races functions of a test; `record` is called with every result."""

    def __init__(self, module: str | None, seconds: float, record: Callable[[GateResult], None]) -> None:
        self._module, self._seconds, self._record = module, seconds, record

    def race(self, old: Any, new: Any, by: float = 0.03, seconds: float | None = None) -> GateResult:
        """Races a function against another, or against itself at the revision or checkout that `old` names.

        A function at the top of a module runs in new processes, which import it. If it is one of the test file, the
        file is the one here, and what it imports comes from the checkout.
        """
        options = GateOptions(by, self._seconds if seconds is None else seconds)
        with contextlib.ExitStack() as stack:
            result = run_gate(self._open(old, new, stack), options)
        self._record(result)
        return result

    def _open(self, old: Any, new: Any, stack: contextlib.ExitStack) -> Contest:
        side = self._side(new)
        if not isinstance(old, str):
            before = self._side(old)
            if side is None or before is None:
                return CallContest(old, new)
            return stack.enter_context(open_sides(before, side))
        if side is None:
            raise SettingsError(
                f"{getattr(new, '__name__', new)!r} cannot be imported at another revision; "
                "give a function at the top of a module"
            )
        top = top_folder(side.folder)
        side = replace(side, folder=top)
        checkout = stack.enter_context(baseline_checkout(old, top))
        return stack.enter_context(open_sides(*in_checkouts(side, top, checkout)))

    def _side(self, function: Any) -> Side | None:
        """Returns a function as a side, as another process can import it; None for a closure."""
        name, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", ""))
        value: Any = module
        for part in name.split("."):
            value = getattr(value, part, None)
        if module is None or value is not function:
            return None
        file = getattr(module, "__file__", None)
        if file is None:
            return None
        path = Path(file).resolve()
        harness = self._module is not None and path == Path(self._module).resolve()
        typed = f"{path}:{name}" if harness else f"{module.__name__}:{name}"
        return Side(typed, SideKind.FUNCTION, path.parent, harness=harness)
