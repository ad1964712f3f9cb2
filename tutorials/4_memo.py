"""Tutorial 4: remember the results of any function, in the store that keeps the decisions.

    python tutorials/4_memo.py

`@memo` keeps results in this process, `@persistent_memo` in the store, for every process that shares it. The example is
a slow function that looks for the largest matrix product that fits into a time limit. If several processes ask at once,
one measures and the others wait for its result.

Run this file twice: the first run takes a few seconds, the second reads the store.
"""

import asyncio
import time

import numpy as np

import tunewright as tw


@tw.persistent_memo(most=1000)
def seconds_for(size, dtype="float32"):
    """Returns how long one product takes. A change of this docstring invalidates results; one of a comment does not."""
    a = np.ones((size, size), dtype=dtype)
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    return (time.perf_counter() - start) / 3


@tw.memo
def largest(milliseconds):
    """Returns the largest size below that time; a second call uses the result kept in this process."""
    return max((size for size in (64, 128, 256, 512, 1024) if 1e3 * seconds_for(size) < milliseconds), default=0)


# For a coroutine function, the awaited result is kept. `encoders` turns `self`, or any argument that is not a plain
# value, into a part of the key.
class Machine:
    def __init__(self, name):
        self.name = name


@tw.persistent_memo(encoders={Machine: lambda machine: machine.name}, seconds=3600)
async def report(machine, size):
    await asyncio.sleep(0.2)
    return {"machine": machine.name, "ms": round(1e3 * seconds_for(size), 2)}


async def reports():
    return await asyncio.gather(*(report(Machine("this one"), 256) for _ in range(5)))


def main():
    for limit in (1, 10, 100):
        print(f"below {limit:3} ms: {largest(limit)}")
    # These are the same call, however the arguments are passed; 256.0 would be another.
    assert seconds_for(256) == seconds_for(size=256) == seconds_for(256, dtype="float32")
    print(asyncio.run(reports())[0], f"after {report.cache_info().misses} computation(s) for 5 tasks")

    with seconds_for.disabled():
        print(f"now, whatever is stored: {1e3 * seconds_for(256):.2f} ms")
    with seconds_for.fresh():
        seconds_for(64)
        print(f"in a cache of its own: {seconds_for.cache_info().currsize} result(s), which nobody else sees")
    print(f"{seconds_for.cache_info().currsize} results in the store")
    print(f"measurements {seconds_for.cache_info().misses}")


if __name__ == "__main__":
    main()
