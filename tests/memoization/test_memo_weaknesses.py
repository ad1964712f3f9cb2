"""Each weakness known of Inductor's memoizers: ours has it not, and theirs, where torch is installed, still has it."""

import importlib.util
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from file_shelf import FileShelf

from tunewright.memoization import memo, persistent_memo

PROBE = Path(__file__).with_name("inductor_memo.py")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """What Inductor's memoizers do, found out in a process of its own."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    folder = str(tmp_path_factory.mktemp("inductor"))
    environment = os.environ | {"TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
    environment.pop("TORCHINDUCTOR_ENABLE_CACHING_MODULE", None)
    ran = subprocess.run([sys.executable, str(PROBE)], env=environment, capture_output=True, text=True, check=False)
    if "ImportError" in ran.stderr or "ModuleNotFoundError" in ran.stderr:
        pytest.skip("this torch has no such memoizers")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture
def store(tmp_path):
    return FileShelf(tmp_path / "shelf")


def add(a, b):
    return a + b


def test_it_is_on_by_default(store) -> None:
    for decorate in (memo, persistent_memo(store=store)):
        g = decorate(add)
        g(1, 2), g(1, 2)
        assert g.cache_info()[:2] == (1, 1)


def test_two_functions_in_one_place_do_not_collide(store) -> None:
    shared = persistent_memo(store=store)
    first, second = shared(lambda x: x + 1), shared(lambda x: x + 2)
    assert (first(1), second(1), first(1), second(1)) == (2, 3, 2, 3)


def test_spellings_of_one_call_agree(store) -> None:
    for decorate in (memo, persistent_memo(store=store)):
        g = decorate(add)
        assert g(1, 2) == g(1, b=2) == g(b=2, a=1)
        assert g.cache_info().misses == 1


def test_a_truncated_record_is_a_miss(store, tmp_path) -> None:
    g = persistent_memo(store=store)(add)
    g(1, 2)
    store.damage(lambda body: body[:20])
    assert g(1, 2) == 3
    assert g.cache_info().misses == 2
    g.dump(tmp_path / "dump")
    (tmp_path / "dump").write_bytes((tmp_path / "dump").read_bytes()[:20])
    assert memo(add).load(tmp_path / "dump") == (0, 1)


def test_a_fresh_cache_leaves_the_real_one_alone(store) -> None:
    g = persistent_memo(store=store)(add)
    g(1, 2)
    before = list(store.entries(f"memo {__name__}:add"))
    assert len(before) == 1
    with g.fresh():
        g(1, 2), g(3, 4)
        assert g.cache_info().misses == 2
    assert list(store.entries(f"memo {__name__}:add")) == before


class Trap:
    """Pickled, it is a program that runs when it is read."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "by unpickling")


def test_what_is_stored_is_text_and_never_runs(store, tmp_path) -> None:
    import pickle

    trap = pickle.dumps(Trap(tmp_path / "opened"))
    g = persistent_memo(store=store)(add)
    g(1, 2)
    ((_, body),) = store.entries(f"memo {__name__}:add")
    assert json.loads(body)["record"]["value"] == 3
    store.damage(lambda body: trap)
    (tmp_path / "dump").write_bytes(trap)
    assert (g(1, 2), g.load(tmp_path / "dump").taken) == (3, 0)
    assert not (tmp_path / "opened").exists()


def test_threads_wait_for_one_that_computes(store, joins, wait_until) -> None:
    for decorate in (memo(version=1), persistent_memo(store=store, version=1)):
        calls = []
        joins.clear()

        def slow(x):
            calls.append(x)  # noqa: B023 - called within this round
            wait_until(lambda: len(joins) == 7, "the others waiting")
            return x

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(decorate(slow), [1] * 8)) == [1] * 8
        assert calls == [1]


def test_half_a_write_leaves_nothing_behind(store, tmp_path) -> None:
    g = persistent_memo(store=store)(lambda x: "x" * x)
    g(10)
    g.dump(tmp_path / "dump")
    before = (tmp_path / "dump").read_bytes()
    local = memo(lambda x: "x" * x)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, usual[1]))
    try:
        assert g(100_000) == "x" * 100_000, "a store that cannot write is passed over"
        local(100_000)
        with pytest.raises(OSError, match="large"):
            local.dump(tmp_path / "dump")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert (tmp_path / "dump").read_bytes() == before
    assert g.cache_info().currsize == 1
    assert g(100_000) == "x" * 100_000


def test_what_is_kept_can_be_bounded(store) -> None:
    for decorate in (memo(most=10), persistent_memo(store=store, most=10)):
        g = decorate(add)
        for i in range(50):
            g(i, i)
        assert g.cache_info().currsize == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weakness", "shown"),
    [
        ("off_by_default", True),
        ("functions_collide", True),
        ("spellings_differ", True),
        ("fresh_deletes", True),
        ("pickle_runs", True),
        ("threads_all_compute", 8),
        ("grows", 50),
    ],
)
def test_the_weakness_is_real(theirs, weakness, shown) -> None:
    assert theirs[weakness] == shown


@pytest.mark.slow
def test_the_weakness_of_torn_files_is_real(theirs) -> None:
    assert theirs["truncated_file_raises"]
    wrote, read = theirs["half_a_write_stays"]
    assert wrote == "OSError"
    assert read, "what the failed write left behind is believed, and raises"
