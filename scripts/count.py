"""How many steps and tests passed and failed, as one plain line: `python scripts/count.py PASSED FAILED XML ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def tests(files: list[Path]) -> tuple[int, int, int]:
    """Tests that passed, failed and were skipped, from files in JUnit's format; a file that is missing is a failure."""
    passed = failed = skipped = 0
    for file in files:
        if not file.is_file():
            failed += 1
            continue
        for suite in ElementTree.parse(file).getroot().iter("testsuite"):
            wrong = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            left_out = int(suite.get("skipped", 0))
            passed += int(suite.get("tests", 0)) - wrong - left_out
            failed += wrong
            skipped += left_out
    return passed, failed, skipped


def main(words: list[str]) -> int:
    """Print the line; the exit status is 1 if anything failed."""
    steps_passed, steps_failed = map(int, words[:2])
    passed, failed, skipped = tests([Path(word) for word in words[2:]])
    print(f"{steps_passed + passed} passed, {steps_failed + failed} failed, {skipped} skipped")
    return 1 if steps_failed + failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
