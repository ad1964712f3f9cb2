"""The other side of `shipped` in `mlir.py`: a product from a bundle, in a process without MLIR.

    python mlir_shipped.py KERNEL BUNDLE CACHE

Says in a line of JSON what was measured and compiled here; then, for every line that it is sent, what one call took.
"""

from __future__ import annotations

import json
import sys
import time

sys.modules["torch_mlir"] = None  # type: ignore[assignment]

import mlir  # noqa: E402
import tunewright as tw  # noqa: E402


def main() -> None:
    """Load, say at what cost, then serve."""
    name, bundle, cache = sys.argv[1:]
    kernel = getattr(mlir, f"product_{name}")
    kernel.using(tw.Session(mode="strict", store=bundle, cache=cache))
    args = mlir.arrays(mlir.SQUARES[name])
    kernel(*args)
    counts = kernel.session.counts
    print(json.dumps({"measured": counts["measurements"], "compiled": counts["compiles"]}), flush=True)
    for _ in sys.stdin:
        kernel(*args)
        start = time.thread_time()
        kernel(*args)
        print(time.thread_time() - start, flush=True)


if __name__ == "__main__":
    main()
