"""What Inductor's memoizers do where ours are tested: run as a program, it prints its findings as JSON.

Private parts of torch 2.13; a file that torch writes is looked at, never shared with anything else.
"""

import contextlib
import json
import os
import pickle
import resource
import sys
import threading
from pathlib import Path

OPENED = Path(os.environ["TMPDIR"], "opened")


class Trap:
    """Pickled, it is a program that runs when it is read."""

    def __reduce__(self):
        return Path.write_text, (OPENED, "by unpickling")


def raised(call) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its name is the finding
        return type(error).__name__
    return ""


def counted(memoizer):
    """A memoised sum, and its calls."""
    calls = []

    @memoizer.memoize()
    def add(a, b):
        calls.append((a, b))
        return a + b

    return add, calls


def files(memoizer) -> list[Path]:
    folder = memoizer._disk_cache._cache_dir
    return [path for path in folder.iterdir() if path.is_file()] if folder.exists() else []


def off_by_default(caching) -> bool:
    add, calls = counted(caching.Memoizer())
    add(1, 2), add(1, 2)
    return len(calls) == 2


def functions_collide(caching) -> bool:
    shared = caching.Memoizer()
    first, second = shared.memoize()(lambda x: x + 1), shared.memoize()(lambda x: x + 2)
    return (first(1), second(1)) == (2, 2)


def spellings_differ(caching) -> bool:
    add, calls = counted(caching.Memoizer())
    add(1, 2), add(1, b=2)
    return len(calls) == 2


def truncated_file_raises(caching) -> str:
    writer = caching.PersistentMemoizer("truncated")
    counted(writer)[0](1, 2)
    (path,) = files(writer)
    path.write_bytes(path.read_bytes()[:20])
    return raised(lambda: counted(caching.PersistentMemoizer("truncated"))[0](1, 2))


def fresh_deletes(caching) -> bool:
    from torch._inductor.utils import fresh_cache

    memoizer = caching.PersistentMemoizer("fresh")
    counted(memoizer)[0](1, 2)
    before = len(files(memoizer))
    with fresh_cache():
        pass
    return before == 1 and not files(memoizer)


def pickle_runs(caching) -> bool:
    writer = caching.PersistentMemoizer("trap")
    counted(writer)[0](1, 2)
    (path,) = files(writer)
    path.write_bytes(path.read_bytes()[:4] + pickle.dumps(Trap()))
    raised(lambda: counted(caching.PersistentMemoizer("trap"))[0](1, 2))
    return OPENED.exists()


def threads_all_compute(caching) -> int:
    calls, together = [], threading.Barrier(8)

    @caching.Memoizer().memoize()
    def slow(x):
        calls.append(x)
        with contextlib.suppress(threading.BrokenBarrierError):  # where some wait for others, they never come together
            together.wait(10)
        return x

    threads = [threading.Thread(target=slow, args=(1,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(calls)


def half_a_write_stays(caching) -> list[str]:
    """A disk that is full after 4 kB: what the writer hears, and what a reader with room again hears."""
    memoizer = caching.PersistentMemoizer("half")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, usual[1]))
    try:
        wrote = raised(lambda: memoizer.memoize()(lambda x: "x" * 100_000)(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    return [wrote, raised(lambda: caching.PersistentMemoizer("half").memoize()(lambda x: "x" * 100_000)(1))]


def grows(caching) -> int:
    memoizer = caching.PersistentMemoizer("grows")
    add, _ = counted(memoizer)
    for i in range(50):
        add(i, i)
    return len(files(memoizer))


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        from torch._inductor.runtime import caching

        off = off_by_default(caching)
        os.environ["TORCHINDUCTOR_ENABLE_CACHING_MODULE"] = "1"
        for cached in (caching.config._env_var_val, caching.config._env_var_config, caching.config._versioned_config):
            cached.cache_clear()
        probes = (functions_collide, spellings_differ, truncated_file_raises, fresh_deletes, pickle_runs,
                  threads_all_compute, half_a_write_stays, grows)  # fmt: skip
        found = {"off_by_default": off} | {probe.__name__: probe(caching) for probe in probes}
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
