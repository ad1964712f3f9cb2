"""Tutorial 4: remember the results of any function, in the store that keeps the decisions.

    python tutorials/4_memo.py

`@memo` remembers in this process, `@persistent_memo` in the store, for every process that shares it. The function here
stands for something slow: it looks for the largest matrix product that fits into a time. Of processes that ask at once
one measures, and the others wait for its answer.

Run this file twice: the first run takes a few seconds, the second asks the store.
"""

import asyncio
import time

import numpy as np

import tunewright as tw


@tw.persistent_memo(most=1000)
def seconds_for(size, dtype="float32"):
    """How long one product takes. A change of this text is a new question; a comment is not."""
    a = np.ones((size, size), dtype=dtype)
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    return (time.perf_counter() - start) / 3


@tw.memo
def largest(milliseconds):
    """The largest size below that time; asked twice, this process knows."""
    return max((size for size in (64, 128, 256, 512, 1024) if 1e3 * seconds_for(size) < milliseconds), default=0)


# A coroutine function is remembered by what it returns. Its self, or any argument that is no plain value, counts by
# what `encoders` says of it.
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
    # However it is spelled, it is the same call; but 256.0 would be another.
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
