"""The pytest plugin: what passes, fails, is skipped, and is an expected failure with a remedy."""

import subprocess
from importlib.metadata import entry_points

import pytest

PLUGIN = "tunewright.gate.pytest_plugin"
OPTIONS = () if "tunewright" in entry_points(group="pytest11").names else ("-p", PLUGIN)

SCRIPTED = """
import pytest
from tunewright.gate import calls, sides, verdict
from tunewright.pools.command_times import ProcessTimes

RATIO = {ratio}

@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    now = [0.0]
    def draw(self, swap, seconds):
        now[0] += {step}
        return [(ProcessTimes(0.1, 0.1, 0.1, 0.0), ProcessTimes(0.1 * RATIO, 0.1, 0.1, 0.0))]
    monkeypatch.setattr(verdict.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sides.FunctionContest, "draw", draw)
    monkeypatch.setattr(calls.CallContest, "draw", draw)
"""

TESTS = """
def work(): pass
def other(): pass

def test_functions(race):
    assert race(other, work).outcome != "slower"

def test_closures(race):
    assert race(lambda: None, lambda: None, by=0.05).by == 0.05

def test_gate(assert_not_slower):
    assert_not_slower(work, baseline=other, by=0.03)

def test_plain():
    pass
"""


@pytest.fixture
def suite(pytester):
    """A suite whose functions take as long as is said."""

    def run(*words, ratio=1.0, step=0.2, tests=TESTS):
        pytester.makeconftest(SCRIPTED.format(ratio=ratio, step=step))
        pytester.makepyfile(test_speed=tests)
        return pytester.runpytest("-p", "no:cacheprovider", *OPTIONS, *words)

    return run


def test_without_the_option_nothing_is_raced(suite) -> None:
    done = suite("-rs")
    done.assert_outcomes(passed=1, skipped=3)
    done.stdout.fnmatch_lines(["*speed is compared only with --tunewright*"])


def test_functions_that_are_as_fast_pass_and_are_listed(suite) -> None:
    done = suite("--tunewright")
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines(["*= tunewright =*", "*test_gate: not slower by 3 %: it takes 1.000 times as long*"])


def test_a_slower_function_fails_with_the_interval(suite) -> None:
    done = suite("--tunewright", ratio=1.2)
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(["*slower: it takes 1.200 times as long (*"])


def test_what_is_not_known_is_an_expected_failure_with_a_remedy(suite) -> None:
    done = suite("--tunewright", "-rx", "-k", "gate", step=50)
    done.assert_outcomes(xfailed=1, deselected=3)
    done.stdout.fnmatch_lines(["*not known:*give it more time*"])


def test_strict_fails_where_it_is_not_known(suite) -> None:
    done = suite("--tunewright", "--tunewright-strict", "-k", "gate", step=50)
    done.assert_outcomes(failed=1, deselected=3)
    done.stdout.fnmatch_lines(["*not known:*give it more time*"])


def test_a_function_that_takes_arguments_is_refused(suite) -> None:
    tests = "def test_it(race):\n    race(lambda x: x, lambda: None)\n"
    done = suite("--tunewright", tests=tests)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*race a function without arguments*"])


PACKAGE = "def solve(): sum(range({count}))\ndef only_{count}(): pass\n"
CHECKOUTS = """
import pkg
def work(): pkg.solve()
def test_package(assert_not_slower): assert_not_slower(pkg.solve, baseline="v1", by=0.5, seconds=0.01)
def test_case(assert_not_slower): assert_not_slower(work, baseline="v1", by=0.5, seconds=0.01)
def test_new(assert_not_slower): assert_not_slower(pkg.only_900, baseline="v1")
def test_closure(assert_not_slower): assert_not_slower(lambda: None, baseline="v1")
def test_no_revision(assert_not_slower): assert_not_slower(work, baseline="nonesuch")
"""


def test_two_checkouts_are_raced_in_one_run(pytester) -> None:
    (pytester.path / "src").mkdir()
    package = pytester.path / "src" / "pkg.py"
    package.write_text(PACKAGE.format(count=1))
    git = "git -c user.name=a -c user.email=a@b"
    subprocess.run(f"git init -q . && git add -A && {git} commit -qm old && git tag v1", shell=True, check=True)
    package.write_text(PACKAGE.format(count=900))
    pytester.makepyfile(test_speed=CHECKOUTS)
    pytester.makeini("[pytest]\npythonpath = src\n")
    done = pytester.runpytest("-p", "no:cacheprovider", *OPTIONS, "--tunewright", "-rsx")
    # A hundredth of a second is too short to know anything: both checkouts were loaded and timed once.
    done.assert_outcomes(xfailed=2, skipped=1, failed=2)
    done.stdout.fnmatch_lines_random(
        [
            "*nothing to compare with: *defines no 'only_900'*",
            "*give a function at the top of a module*",
            "*'nonesuch' is no revision*",
        ]
    )
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 1
