"""Rules for the tests themselves: no verdict depends on how busy the machine is."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Not the CPU time of a process or a thread, which does not grow while others run.
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}


def reads_a_clock(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a test itself, not what it hands to others, reads a clock or sleeps."""
    inner = {
        node
        for nested in ast.walk(function)
        if isinstance(nested, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef) and nested != function
        for node in ast.walk(nested)
    }
    return any(
        isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) in CLOCKS
        and getattr(getattr(node.func, "value", None), "id", "time") == "time"
        for node in ast.walk(function)
        if node not in inner
    )


def marks(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {name for decorator in node.decorator_list for name in re.findall(r"mark\.(\w+)", ast.unparse(decorator))}


def unmarked(text: str) -> list[str]:
    """The tests in a file that read a clock without the marker."""
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and "clock" not in marks(node)
        and reads_a_clock(node)
    ]


@pytest.mark.parametrize("file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: file.stem)
def test_a_test_that_reads_a_clock_or_sleeps_carries_the_marker(file) -> None:
    assert not unmarked(file.read_text()), "use wait_until, an event or a scripted clock, or mark it: CONTRIBUTING.md"


def test_such_a_test_is_found_out() -> None:
    body = "    began = time.monotonic()\n    assert time.monotonic() - began < 1\n"
    assert unmarked(f"def test_x():\n{body}") == ["test_x"]
    assert unmarked("def test_x():\n    sleep(1)\n") == ["test_x"]
    assert not unmarked(f"@pytest.mark.clock('within 1 s')\ndef test_x():\n{body}")
    assert not unmarked("def test_x():\n    race(lambda: time.sleep(1))\n")


@pytest.mark.parametrize("written", ["", "(0.1)", "()"])
def test_a_marker_without_a_tolerance_is_refused(pytester, written) -> None:
    pytester.makeconftest((TESTS / "conftest.py").read_text())
    pytester.makepyfile(f"import pytest\n@pytest.mark.clock{written}\ndef test_x(): pass\n")
    said = pytester.runpytest("-p", "no:cacheprovider")
    assert said.ret == pytest.ExitCode.USAGE_ERROR
    said.stderr.fnmatch_lines(["*test_x*state the tolerance*"])


def test_only_tests_about_real_time_are_run_again(pytester) -> None:
    pytester.makeconftest((TESTS / "conftest.py").read_text())
    pytester.makepyfile(
        'import pytest\n@pytest.mark.clock("never")\ndef test_x(): assert 0\ndef test_y(): assert 0\n',
    )
    said = pytester.runpytest("-rR", "-W", "ignore")
    said.assert_outcomes(failed=2)
    assert sum(line.startswith("RERUN") and "test_x" in line for line in said.outlines) == 2
    assert not any(line.startswith("RERUN") and "test_y" in line for line in said.outlines)
