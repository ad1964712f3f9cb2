import importlib.util
import textwrap

from tunewright.backends import host


def load(tmp_path, text, name="kernel_module"):
    path = tmp_path / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = """
    SCALE = 3

    def helper(x):
        return x + 1

    def kernel(x):
        return helper(x) * SCALE
"""


def digest_of(tmp_path, text, name="m"):
    import linecache

    linecache.clearcache()
    return host.function_digest(load(tmp_path, text, name).kernel)


def test_lines_comments_docstrings_paths_and_decorators_do_not_count(tmp_path) -> None:
    other = """
    # a comment above


    SCALE = 3
    def helper(x):
        "says what it does"
        return x + 1  # why
    import functools
    @functools.wraps(helper, assigned=(), updated=())
    def kernel(x):
        '''Docstring.'''

        return helper(x) * SCALE
    del kernel.__wrapped__
    """
    (tmp_path / "elsewhere").mkdir()
    assert digest_of(tmp_path, PLAIN) == digest_of(tmp_path / "elsewhere", other, "n")


def test_the_function_its_helpers_and_constants_count(tmp_path) -> None:
    first = digest_of(tmp_path, PLAIN, "a")
    for i, (old, new) in enumerate([("x + 1", "x + 2"), ("SCALE = 3", "SCALE = 4"), ("(x) *", "(x) +")]):
        assert digest_of(tmp_path, PLAIN.replace(old, new), f"b{i}") != first


def test_functions_without_source_are_told_apart() -> None:
    scope: dict = {}
    exec("f = lambda x: x + 1\ng = lambda x: x + 2\nh = lambda x: x + 1", scope)
    assert host.function_digest(scope["f"]) != host.function_digest(scope["g"])


def test_builtins_and_ufuncs_have_an_identity() -> None:
    import numpy as np

    assert host.function_digest(np.matmul) != host.function_digest(np.add)
    assert host.function_digest(len) == host.function_digest(len)


def test_this_cpu_is_described_without_naming_the_host() -> None:
    import platform

    device = host.cpu()
    assert device.kind == "cpu"
    assert device.limits["cores"] >= 1
    assert device.architecture == platform.machine()
    assert platform.node() not in str(device)


def test_a_system_without_proc_is_described_all_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(host, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(host, "_CACHE_FOLDER", tmp_path / "none")
    device = host.cpu.__wrapped__()
    assert device.model
    assert set(device.limits) == {"cores"}


def closing(n):
    def kernel(x):
        return x * n

    return kernel


def test_what_a_function_closes_over_and_its_defaults_count() -> None:
    def one(x, k=1): ...

    def two(x, k=2): ...

    two.__qualname__ = one.__qualname__
    assert host.function_digest(closing(1)) != host.function_digest(closing(1000))
    assert host.function_digest(closing((1, 2))) == host.function_digest(closing((1, 2)))
    assert host.function_digest(one) != host.function_digest(two)


def test_what_changes_while_the_program_runs_does_not_count() -> None:
    seen = []
    before = host.function_digest(closing(seen))
    seen.append(1)
    assert host.function_digest(closing(seen)) == before


SCRIPT = """
A = lambda x: x + 1
B = lambda x: x + {}
C = lambda x: x in {{1, 2, 3, "a", "b"}}
def kernel(x): return A(x), B(x), C(x)
"""


def test_digests_do_not_depend_on_the_seed_of_hashes(tmp_path) -> None:
    import os
    import subprocess
    import sys

    code = (
        "import sys; sys.path.insert(0, {!r}); import k\n"
        "from tunewright.backends.host import function_digest; print(function_digest(k.kernel))"
    )
    said = set()
    for seed in range(4):
        (tmp_path / "k.py").write_text(SCRIPT.format(2))
        env = {**os.environ, "PYTHONHASHSEED": str(seed)}
        out = subprocess.run(
            [sys.executable, "-c", code.format(str(tmp_path))], capture_output=True, text=True, env=env, check=True
        )
        said.add(out.stdout)
    assert len(said) == 1
    assert digest_of(tmp_path, SCRIPT.format(2), "l1") != digest_of(tmp_path, SCRIPT.format(3), "l2")


def test_helpers_behind_a_cache_and_partials_count(tmp_path) -> None:
    text = """
    import functools

    @functools.lru_cache
    def helper(n):
        return n * {}

    def kernel(x):
        return helper(2) + x
    """
    assert digest_of(tmp_path, text.format(2), "c1") != digest_of(tmp_path, text.format(3), "c2")
    from functools import partial

    assert host.function_digest(partial(max, 2)) != host.function_digest(partial(max, 3))


def test_functions_that_refer_to_each_other_are_read_once() -> None:
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert host.function_digest(even) == host.function_digest(even)
