"""What a fresh process pays before its first result: a model compiled there, or loaded from a bundle.

    python benchmarks/torch_ship.py [--quick] [--json]

A transformer layer (width 256, 4 heads, 32 positions). Each measurement is a process of its own with empty caches, in
turns, one thread; CPU seconds of the process and its children, from the model in eager mode to the first result.

- cold_start_ratio: `torch.compile` cold, over loading the bundle with `CXX=/nonexistent`.
- process_ratio: the same over whole processes, `import torch` included.
- started, compiles, autotunes: processes started and what PyTorch's counters say, after loading.

The peer is PyTorch's own way to load the same machine code, `aoti_load_package`, with a compiler at hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from figures import Goal, Report, Series, cpu_seconds, parser

GOALS = (
    Goal("cold_start_ratio", ">=", 20),
    Goal("started", "==", 0),
    Goal("compiles", "==", 0),
    Goal("autotunes", "==", 0),
)
WIDTH, HEADS, LENGTH = 256, 4, 32
WAYS = ("cold", "shipped", "stock")


class Layer(torch.nn.Module):
    """A transformer layer, written out: eager mode has a shortcut for PyTorch's own that no compiler sees into."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.parts, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        parts = self.parts(self.before(x)).view(1, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts.unbind(0))
        x = x + self.out(mixed.transpose(1, 2).reshape(1, LENGTH, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.between(x))))


def make() -> tuple[Any, tuple[Any, ...]]:
    """The layer and a call."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Layer().eval(), (torch.randn(1, LENGTH, WIDTH),)


def child(way: str, folder: Path) -> None:
    """One measurement: what it took, what it started, how wrong the result is."""
    model, call = make()
    started: list[str] = []
    sys.addaudithook(lambda event, _: started.append(event) if event in ("subprocess.Popen", "os.fork") else None)
    with torch.no_grad():
        right = model(*call)
        if way == "shipped":
            from tunewright.torch import load
        began = cpu_seconds()
        counts: dict[str, int] = {}
        if way == "cold":
            got = torch.compile(model)(*call)
        elif way == "shipped":
            loaded = load(folder / "layer.bundle", pin=(folder / "pin").read_text())
            got, counts = loaded(*call), dict(loaded.counts)
        else:
            got = torch._inductor.aoti_load_package(str(folder / "layer.pt2"))(*call)
        taken = cpu_seconds() - began
    error = float((got - right).abs().max())
    print(json.dumps({"cpu": taken, "whole": cpu_seconds(), "started": len(started), "error": error, "counts": counts}))


def save(folder: Path) -> None:
    """The bundle that is loaded, and the package in it as a file of its own."""
    from tunewright.torch import bundle
    from tunewright.torch.loading import open_bundle
    from tunewright.torch.shipping import package_name

    model, call = make()
    pin = bundle(folder / "layer.bundle", model, call)
    (folder / "pin").write_text(pin)
    store, shipment = open_bundle(folder / "layer.bundle", None, pin)
    (folder / "layer.pt2").write_bytes(store.read_attachment("torch", package_name(shipment.calls[0])) or b"")


def process(way: str, folder: Path) -> dict[str, Any]:
    """A fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": empty}
        if way == "shipped":
            env["CXX"] = "/nonexistent"
        done = subprocess.run(
            [sys.executable, __file__, "--child", way, str(folder)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    return json.loads(done.stdout) if done.stdout.strip() else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Ship, then load and compile in turns."""
    takes = parser(__doc__)
    takes.add_argument("--child", nargs=2, help="one measurement, for the others")
    given = takes.parse_args(arguments)
    if given.child:
        way, folder = given.child[0], Path(given.child[1])
        save(folder) if way == "save" else child(way, folder)
        return 0
    report, told = Report(), {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        process("save", Path(name))
        for _ in range(1 if given.quick else 3):
            for way in ("shipped", "cold", "shipped", "stock", "shipped"):
                told[way].append(process(way, Path(name)))
    cpu = {way: Series(one["cpu"] for one in found) for way, found in told.items()}
    whole = {way: Series(one["whole"] for one in found) for way, found in told.items()}
    report.figures = {
        "cold_start_ratio": round(cpu["cold"].median / cpu["shipped"].median, 1),
        "process_ratio": round(whole["cold"].median / whole["shipped"].median, 2),
        "stock_over_shipped": round(cpu["stock"].median / cpu["shipped"].median, 2),
        "started": max(one["started"] for one in told["shipped"]),
        "stock_started": max(one["started"] for one in told["stock"]),
        "cold_started": max(one["started"] for one in told["cold"]),
        "compiles": sum(one["counts"].get("compiles", 0) for one in told["shipped"]),
        "autotunes": sum(one["counts"].get("autotunes", 0) for one in told["shipped"]),
        **{f"{way}_cpu_s": cpu[way].plain() for way in WAYS},
        **{f"{way}_process_cpu_s": whole[way].plain() for way in WAYS},
    }
    worst = max(one["error"] for found in told.values() for one in found)
    report.check(worst < 1e-4, f"a result is off by {worst:.1e}")
    for way in WAYS:
        starts = report.figures["started" if way == "shipped" else f"{way}_started"]
        report.lines.append(
            f"{way:<8} {cpu[way].text('s', 3)} CPU to the first result, {whole[way].text('s', 2)} with imports, "
            f"{starts} processes started"
        )
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
