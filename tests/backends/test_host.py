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
    return host.source_of(load(tmp_path, text, name).kernel)


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
    assert host.source_of(scope["f"]) != host.source_of(scope["g"])


def test_builtins_and_ufuncs_have_an_identity() -> None:
    import numpy as np

    assert host.source_of(np.matmul) != host.source_of(np.add)
    assert host.source_of(len) == host.source_of(len)


def test_this_cpu_is_described_without_naming_the_host() -> None:
    import platform

    device = host.cpu()
    assert device.kind == "cpu"
    assert device.limits["cores"] >= 1
    assert device.architecture == platform.machine()
    assert platform.node() not in str(device)


def test_a_system_without_proc_is_described_all_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(host, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(host, "_CACHES", tmp_path / "none")
    device = host.cpu.__wrapped__()
    assert device.model
    assert set(device.limits) == {"cores"}
