"""Tasks from files: a Python file or a folder with `task`, or a file in the style of KernelBench, read as it is."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunewright.cases.foreign_arrays import from_host, to_host
from tunewright.model.foreign import is_foreign
from tunewright.referee.messages import Entry
from tunewright.referee.task import USUAL_IMPORTS, Task, TaskError

KERNELBENCH = ("Model", "get_inputs", "get_init_inputs")
"""The names that a file of KernelBench defines."""

TORCH_IMPORTS = (*USUAL_IMPORTS, "torch", "triton")


@dataclass(frozen=True, eq=False)
class ModelTask(Task):
    """A task of KernelBench: `Model` is the reference, and candidates define `ModelNew` with the same parameters."""

    model: Any = None
    initial: Callable[[], Sequence[Any]] = list

    def bind(self, seed: int) -> Callable[..., Any]:
        """Returns the model with the parameters of this seed, in double precision where it can be."""
        torch = _torch()
        torch.manual_seed(seed)
        model = self.model(*self.initial()).eval()

        def forward(*args: Any) -> Any:
            tensors = [from_host(arg, "torch", "cpu") if hasattr(arg, "dtype") else arg for arg in args]
            wide = any(t.dtype == torch.float64 for t in tensors if isinstance(t, torch.Tensor))
            with torch.no_grad():
                return to_host((model.double() if wide else model.float())(*tensors))

        return forward

    def candidate_entry(self, source: str, seed: int) -> Entry:
        """Returns what runs `ModelNew` of a source."""
        return self._model_entry("ModelNew", source, seed)

    def reference_entry(self, seed: int) -> Entry:
        """Returns what runs `Model`."""
        return self._model_entry("Model", self.source, seed)

    def _model_entry(self, name: str, source: str, seed: int) -> Entry:
        try:
            initial = json.dumps(list(self.initial()))
        except (TypeError, ValueError) as error:
            raise TaskError(f"get_init_inputs must give numbers, texts and lists: {error}") from error
        return Entry("model", name, source, library="torch", seed=seed, initial=initial)


def load_task(place: str | Path) -> Task:
    """Returns the task at a path: FILE.py, or a folder with task.py."""
    path = Path(place)
    path = path / "task.py" if path.is_dir() else path
    if not path.is_file():
        raise TaskError(f"no task at {place}: give a Python file, or a folder with task.py")
    source = path.read_text()
    names = runpy.run_path(str(path))
    task = names.get("task")
    if isinstance(task, Task):
        return _with_source(task, source, path)
    if all(name in names for name in KERNELBENCH):
        return _model_task(names, source, path)
    raise TaskError(
        f"{path} defines no `task = tunewright.referee.Task(...)`, nor {', '.join(KERNELBENCH)} as KernelBench does"
    )


def _with_source(task: Task, source: str, path: Path) -> Task:
    values = {name: getattr(task, name) for name in task.__dataclass_fields__}
    return type(task)(**(values | {"source": source, "path": str(path)}))


def _model_task(names: Mapping[str, Any], source: str, path: Path) -> Task:
    torch = _torch()

    def inputs(rng: Any) -> list[Any]:
        torch.manual_seed(int(rng.integers(1 << 62)))
        return [to_host(value) if is_foreign(value) else value for value in names["get_inputs"]()]

    declared = {name.lower(): names[name] for name in ("TOLERANCE", "IMPORTS", "FORBIDDEN", "LIMITS") if name in names}
    return ModelTask(
        reference=names["Model"],
        inputs=inputs,
        name="ModelNew",
        library="torch",
        preload=("torch",),
        source=source,
        path=str(path),
        model=names["Model"],
        initial=names["get_init_inputs"],
        **({"imports": TORCH_IMPORTS} | declared),
    )


def _torch() -> Any:
    try:
        import importlib  # noqa: PLC0415 - only for tasks of KernelBench

        return importlib.import_module("torch")
    except ImportError as error:
        raise TaskError("tasks in the style of KernelBench need torch; try: pip install torch") from error
