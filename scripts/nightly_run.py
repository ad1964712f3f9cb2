"""Run everything that is too slow for a pull request, one step after another, and keep the figures by commit."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import nightly_figures
import processes
from nightly_steps import ROOT, Step, steps

SCHEMA = 1
FAILED = ("failed", "limit", "unavailable")
DONE = ("passed", "expected", "unexpected")


@dataclass
class Result:
    """How a step ended: passed, failed, limit, interrupted; of a version also expected, unexpected, unavailable."""

    name: str
    status: str
    seconds: float
    limit: float
    note: str = ""
    load: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    spreads: dict[str, list[float]] = field(default_factory=dict)


class Run:
    """The steps of one commit, and what is known of them: `folder` has a file for each that ended, and its log."""

    def __init__(self, folder: Path, known: Sequence[Step]) -> None:
        self.folder, self.known = folder, known
        for name in ("steps", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.interrupted: Result | None = None

    def forget(self, chosen: Sequence[Step]) -> None:
        """Remove what is known of these steps."""
        for step in chosen:
            self._file(step.name).unlink(missing_ok=True)

    def results(self) -> dict[str, Result]:
        """What is known, by step, in their order."""
        found = {}
        for step in self.known:
            if (path := self._file(step.name)).exists():
                found[step.name] = Result(**json.loads(path.read_text()))
        if self.interrupted:
            found[self.interrupted.name] = self.interrupted
        return found

    def perform(self, chosen: Sequence[Step], say: Callable[[str], None]) -> bool:
        """Run steps, a failure or not. False if it was interrupted: the step that ran is then not kept."""
        began = time.monotonic()
        for number, step in enumerate(chosen, 1):
            elapsed = datetime.timedelta(seconds=round(time.monotonic() - began))
            say(f"[{number}/{len(chosen)}] {step.name}: at most {step.limit:.0f} s; {elapsed} so far")
            started = time.monotonic()
            try:
                result = self._one(step)
            except KeyboardInterrupt:
                self.interrupted = Result(step.name, "interrupted", time.monotonic() - started, step.limit)
                say(f"interrupted; {len(chosen) - number + 1} steps are left: --resume goes on with them")
                return False
            replace(self._file(step.name), json.dumps(asdict(result)))
            say(f"    {result.status} after {result.seconds:.1f} s{f': {result.note}' if result.note else ''}")
        return True

    def _file(self, name: str) -> Path:
        return self.folder / "steps" / f"{name}.json"

    def _one(self, step: Step) -> Result:
        log, output = (self.folder / "logs" / f"{step.name}.{suffix}" for suffix in ("log", "out"))
        load, seconds, left, status = os.getloadavg()[0], 0.0, 0, 0
        environment = {name: value for name, value in os.environ.items() if name != "CI"}
        with ExitStack() as stack:
            errors = stack.enter_context(log.open("wb"))
            if not step.keeps_cache:
                environment["XDG_CACHE_HOME"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="nightly-"))
            for command in step.commands:
                apart = stack.enter_context(output.open("wb")) if step.prints or step.ends_with else None
                ended = processes.run(
                    command,
                    step.limit - seconds,
                    environment=environment,
                    folder=ROOT,
                    output=apart or errors,
                    errors=errors,
                )
                seconds, left, status = seconds + ended.seconds, left + ended.left, ended.status
                if status != 0:
                    break
        result = Result(step.name, "passed", round(seconds, 1), step.limit, load=round(load, 2))
        if left:
            result.note = f"{left} processes were left running, and stopped"
        judge(step, result, status, output.read_text(errors="replace") if apart else "")
        if result.status in FAILED:
            result.note = "; ".join(filter(None, [result.note, f"read {shown(log)}"]))
        return result


def shown(log: Path) -> str:
    """A log as one would type it."""
    return str(log.relative_to(ROOT) if log.is_relative_to(ROOT) else log)


def judge(step: Step, result: Result, status: int | None, printed: str) -> None:
    """Decide on the status of a step, and take its figures."""
    if status is None:
        result.status, result.note = "limit", f"stopped at its limit of {step.limit:.0f} s"
        return
    if status != 0:
        result.status, result.note = "failed", f"it ended with status {status}"
    last = printed.strip().rpartition("\n")[2]
    if step.prints:
        try:
            said = json.loads(last)
        except ValueError:
            if status == 0:
                result.status, result.note = "failed", "it printed no JSON"
            return
        take_row(result, said) if step.prints == "row" else take_figures(result, said)
    elif status == 0 and step.ends_with and not last.endswith(step.ends_with):
        result.status, result.note = "failed", f"its last line is {last!r}, and must end with {step.ends_with!r}"


def take_figures(result: Result, said: Mapping[str, Any]) -> None:
    """Keep what a benchmark printed."""
    result.figures, result.spreads = nightly_figures.flat(said)
    if result.status == "failed" and said.get("wrong"):
        result.note = "; ".join(map(str, said["wrong"]))


def take_row(result: Result, said: Mapping[str, Any]) -> None:
    """Keep what the matrix says of one environment."""
    row = said["rows"][0]
    result.status, result.note = row["status"], row["reason"]
    result.figures = {name: row[name] for name in ("passed", "failed", "skipped")}


def replace(path: Path, text: str) -> None:
    """Write a file, as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)


def table(known: Sequence[Step], results: Mapping[str, Result]) -> list[str]:
    """All steps as Markdown."""
    lines = ["| step | status | seconds | limit | figures |", "|---|---|---|---|---|"]
    for step in known:
        result = results.get(step.name)
        if result is None:
            lines.append(f"| {step.name} | not run | | {step.limit:.0f} | |")
            continue
        told = nightly_figures.headline(step.name.removeprefix("benchmark-"), result.figures)
        if step.prints == "row":
            told = ", ".join(f"{name} {value:g}" for name, value in result.figures.items())
        told = "; ".join(filter(None, [told, result.note])).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {step.name} | {result.status} | {result.seconds:.1f} | {step.limit:.0f} | {told} |")
    return lines


def machine() -> dict[str, Any]:
    """What figures depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def git(*arguments: str) -> str:
    """What git says."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {arguments[0]} failed: {done.stderr.strip()}; run scripts/nightly in a clone of the repository")
    return done.stdout


def revision() -> str:
    """The commit, with a digest of what was changed since, if anything was."""
    commit, changes = git("rev-parse", "HEAD").strip()[:12], git("diff", "HEAD", "--binary")
    for name in git("ls-files", "--others", "--exclude-standard").splitlines():
        changes += f"{name} {sha256((ROOT / name).read_bytes()).hexdigest()}\n"
    return f"{commit}-{sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


def write(run: Run, name: str, place: Path) -> list[str]:
    """The table and the figures, as files; the table."""
    results = run.results()
    said = table(run.known, results)
    replace(run.folder / "table.md", "\n".join(said) + "\n")
    whole = {
        "schema": SCHEMA,
        "commit": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load": [round(one, 2) for one in os.getloadavg()],
        "steps": {key: {k: v for k, v in asdict(one).items() if k != "name"} for key, one in results.items()},
    }
    replace(place, json.dumps(whole, indent=1) + "\n")
    return said


def select(known: Sequence[Step], only: Sequence[str], skip: Sequence[str]) -> list[Step]:
    """Steps by name or pattern."""
    for pattern in (*only, *skip):
        if not any(fnmatchcase(step.name, pattern) for step in known):
            sys.exit(f"no step is called {pattern}: see scripts/nightly --list")
    return [
        step
        for step in known
        if (not only or any(fnmatchcase(step.name, one) for one in only))
        and not any(fnmatchcase(step.name, one) for one in skip)
    ]


def read(path: Path) -> dict[str, Any]:
    """The figures of a run."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"cannot read {path}: {error}; name a file that scripts/nightly wrote, as build/nightly/COMMIT.json")
    if found.get("schema") != SCHEMA:
        sys.exit(f"{path} has schema {found.get('schema')}, this program reads {SCHEMA}: run scripts/nightly again")
    return found


def compare(old: Path, new: Path, *, everything: bool) -> int:
    """Say which figures got worse; 1 if any did."""
    before, after = read(old), read(new)
    found = nightly_figures.compare(before, after)
    if not found.same_machine:
        print(f"different machines: {before['machine']} and {after['machine']}")
        print("absolute times are not comparable; only ratios and counts are judged")
    for title, lines in (
        ("worse beyond the spread", found.worse),
        ("missing", found.missing),
        ("new", found.new),
        ("not judged on another machine", found.left_out),
        *((("judged", found.judged), ("not judged", found.others)) if everything else ()),
    ):
        if lines:
            print(f"{title}:", *lines, sep="\n  ")
    print(f"{len(found.judged)} figures judged, {len(found.worse)} worse")
    return int(bool(found.worse))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    takes = argparse.ArgumentParser(prog="scripts/nightly", description=(__doc__ or "").splitlines()[0])
    takes.add_argument("--list", action="store_true", help="name the steps and their limits, and do nothing")
    takes.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these steps; patterns as benchmark-*")
    takes.add_argument("--skip", nargs="+", default=[], metavar="NAME", help="all but these")
    takes.add_argument("--resume", action="store_true", help="go on with this commit: what ended is not run again")
    takes.add_argument("--retry-failed", action="store_true", help="as --resume, but what failed is run again")
    takes.add_argument(
        "--compare", nargs="+", type=Path, metavar="FILE", help="figures of an old run, and of a new one"
    )
    takes.add_argument("--all", action="store_true", help="with --compare: also show figures that are not judged")
    given = takes.parse_args(arguments)
    if given.compare and len(given.compare) > 2:
        takes.error("--compare takes an old file and at most one new one")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, or compare."""
    given = parsed(arguments)
    known, name = steps(), ""
    chosen = select(known, given.only, given.skip)
    if given.list:
        for step in chosen:
            print(f"{step.name:<28} {step.limit:>6.0f} s")
        return 0
    name = revision()
    base = ROOT / "build" / "nightly"
    place = base / f"{name}.json"
    if given.compare:
        return compare(given.compare[0], given.compare[1] if len(given.compare) > 1 else place, everything=given.all)
    if not Path(known[0].commands[0][0]).exists():
        sys.exit("there is no .venv: run scripts/bootstrap --peers first")
    return night(Run(base / name, known), chosen, given, place)


def night(run: Run, chosen: Sequence[Step], given: argparse.Namespace, place: Path) -> int:
    """Run what is left to run, write what is known; 1 if something failed or was not reached."""
    signal.signal(signal.SIGTERM, interrupt)
    if given.resume or given.retry_failed:
        kept = DONE if given.retry_failed else (*DONE, *FAILED)
        ended = {name for name, one in run.results().items() if one.status in kept}
    else:
        run.forget(chosen)
        ended = set()
    left = [step for step in chosen if step.name not in ended]
    print(
        f"{run.folder.name}: {len(left)} steps, {len(chosen) - len(left)} ended before; logs in {run.folder / 'logs'}"
    )
    whole = run.perform(left, lambda line: print(line, flush=True))
    print("\n".join(write(run, run.folder.name, place)))
    results = run.results()
    failed = [step.name for step in chosen if step.name in results and results[step.name].status in FAILED]
    print(f"{len(failed)} of {len(chosen)} failed: {', '.join(failed) or 'none'}")
    for step in chosen:
        if step.name in results and results[step.name].status == "unexpected":
            print(f"{step.name}: {results[step.name].note}")
    return int(bool(failed) or not whole)


def interrupt(*_: object) -> NoReturn:
    """End as Ctrl-C does."""
    raise KeyboardInterrupt
