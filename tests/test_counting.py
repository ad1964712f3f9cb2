"""CI's last line: what passed and failed, and a machine that is busy while it is asked to be."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


def count(*words):
    return subprocess.run([sys.executable, SCRIPTS / "count.py", *words], capture_output=True, text=True, check=False)


def report(path, **counts):
    given = " ".join(f'{name}="{value}"' for name, value in counts.items())
    path.write_text(f"<testsuites><testsuite {given}></testsuite></testsuites>")
    return str(path)


def test_steps_and_tests_are_counted_together(tmp_path) -> None:
    one = report(tmp_path / "one.xml", tests=10, failures=0, errors=0, skipped=2)
    two = report(tmp_path / "two.xml", tests=3, failures=0, errors=0, skipped=0)
    done = count("5", "0", one, two)
    assert (done.stdout, done.returncode) == ("16 passed, 0 failed, 2 skipped\n", 0)


def test_a_failed_step_a_failed_test_or_a_missing_report_is_a_failure(tmp_path) -> None:
    bad = report(tmp_path / "bad.xml", tests=10, failures=1, errors=1, skipped=0)
    good = report(tmp_path / "good.xml", tests=1)
    assert (count("1", "0", bad).stdout, count("1", "0", bad).returncode) == ("9 passed, 2 failed, 0 skipped\n", 1)
    assert count("1", "1", good).returncode == 1
    assert count("1", "0", str(tmp_path / "missing.xml")).returncode == 1


BUSY = """
import subprocess, time
for _ in range(600):
    found = subprocess.run(["ps", "-ww", "-o", "args=", "--ppid", str({parent})], capture_output=True, text=True).stdout
    if sum(line.endswith("-c while True: pass") for line in found.splitlines()) == 4 and "os.fsync" in found:
        print("busy"); break
    time.sleep(0.1)
raise SystemExit(3)
"""


def test_a_command_runs_beside_busy_processes_which_end_with_it(tmp_path) -> None:
    command = [
        sys.executable,
        SCRIPTS / "shake.py",
        sys.executable,
        "-c",
        BUSY.format(parent="__import__('os').getppid()"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3, "its status is the command's"
    assert done.stdout.splitlines()[0] == "busy"
    assert re.search(r"shaken by 4 busy processes and a writer", done.stdout)
    assert not list(tmp_path.iterdir()), "what was written is removed"
