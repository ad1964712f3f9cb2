"""Releasing: cut the changelog, set the version, build twice, and check what was built. Run it as `scripts/release`."""

from __future__ import annotations

import argparse
import datetime
import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
TOOLS = PROJECT / "scripts" / "release-requirements.txt"

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
IS_SET = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
UNRELEASED = "## [Unreleased]"


class Refused(Exception):
    """A release that cannot be made; the message says what to do."""


def numbers(version: str) -> tuple[int, int, int, str, int]:
    """A version as something that can be compared: a final one comes after its pre-releases."""
    found = VERSION.fullmatch(version)
    if found is None:
        raise Refused(f"{version!r} is not a version: write 1.2.3, or 1.2.3a1, 1.2.3b1, 1.2.3rc1")
    major, minor, patch, stage, count = found.groups()
    return int(major), int(minor), int(patch), stage or "~", int(count or 0)


def section(changelog: str, name: str) -> str:
    """What a changelog says under `## [name]`, without its heading; empty if there is nothing."""
    found = re.search(rf"^## \[{re.escape(name)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def cut(changelog: str, version: str, date: str) -> str:
    """A changelog whose unreleased changes are those of `version`."""
    if changelog.count(f"{UNRELEASED}\n") != 1:
        raise Refused(f"CHANGELOG.md must have one line {UNRELEASED!r}: add it above the newest version")
    if not re.search(r"^- ", section(changelog, "Unreleased"), re.MULTILINE):
        raise Refused("CHANGELOG.md has nothing under [Unreleased]: describe the changes there, then run this again")
    if f"\n## [{version}]" in changelog:
        raise Refused(f"CHANGELOG.md has a section [{version}] already: choose another version")
    return changelog.replace(f"{UNRELEASED}\n", f"{UNRELEASED}\n\n## [{version}] - {date}\n", 1)


def current(text: str) -> str:
    """The version that version.py sets."""
    found = IS_SET.search(text)
    if found is None:
        raise Refused('src/tunewright/version.py sets no version: write __version__ = "1.2.3"')
    return found[1]


def newer(version: str, now: str) -> None:
    """Refuse a version that does not come after the current one."""
    if numbers(version) <= numbers(now):
        raise Refused(f"{version} does not come after {now}: choose a later version")


def cited(citation: str, version: str, date: str) -> str:
    """CITATION.cff with this version and date."""
    text, one = re.subn(r"^version: .*$", f"version: {version}", citation, flags=re.MULTILINE)
    text, two = re.subn(r"^date-released: .*$", f"date-released: {date}", text, flags=re.MULTILINE)
    if (one, two) != (1, 1):
        raise Refused("CITATION.cff must have one line `version:` and one line `date-released:`: add them")
    return text


def supported(pyproject: str) -> list[str]:
    """The Pythons that the classifiers name, as `3.11`."""
    named = tomllib.loads(pyproject)["project"]["classifiers"]
    return [one.rpartition(" ")[2] for one in named if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)]


# What follows runs commands.


def run(*command: str | Path, cwd: Path = PROJECT, env: Mapping[str, str] | None = None, umask: int = -1) -> str:
    """What a command says; if it fails, that is the reason to refuse."""
    done = subprocess.run(command, cwd=cwd, env=env, umask=umask, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise Refused(
            f"this failed; repair what it says, then run this again:\n$ {' '.join(map(str, command))}\n{said}"
        )
    return done.stdout.strip()


def say(text: str) -> None:
    """One line for whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def environment(**more: str) -> dict[str, str]:
    """The environment of this process without what would change what is built or tried."""
    kept = os.environ
    return {name: kept[name] for name in kept if not name.startswith(("TUNEWRIGHT_", "PYTHON", "VIRTUAL_ENV"))} | more


def tools() -> Path:
    """The folder of programs to build and check with: an environment in the cache, made anew when the list changes."""
    here = os.environ
    cache = Path(here.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(here.get("TUNEWRIGHT_DEV_CACHE") or cache / "tunewright-dev") / "release"
    wanted, stamp = TOOLS.read_text(), place / "installed.txt"
    if not (stamp.is_file() and stamp.read_text() == wanted):
        say(f"-- installing {TOOLS.name}")
        shutil.rmtree(place, ignore_errors=True)
        run(sys.executable, "-m", "venv", place)
        run(place / "bin" / "python", "-m", "pip", "install", "-q", "-r", TOOLS, env=environment())
        stamp.write_text(wanted)
    return place / "bin"


def pythons(wanted: Sequence[str]) -> dict[str, Path | None]:
    """An interpreter of each version: from PYTHONS, from PATH, or from pyenv; None where there is none."""
    named = os.environ.get("PYTHONS", "").split()
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found: dict[str, Path | None] = {}
    for version in wanted:
        on_path = [] if named else [f"python{version}"]
        from_pyenv = [] if named else sorted(map(str, root.glob(f"versions/{version}.*/bin/python")), reverse=True)
        found[version] = next((path for one in named + on_path + from_pyenv if (path := _is(one, version))), None)
    return found


def _is(name: str, version: str) -> Path | None:
    """Where the interpreter is that `name` starts, if it is of this version."""
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    program = shutil.which(name)
    done = program and subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    if not done or done.returncode:  # a shim of pyenv for a version that is not switched on fails
        return None
    said, _, path = done.stdout.strip().partition(" ")
    return Path(path) if said == version else None


@contextmanager
def checkout(commit: str, place: Path) -> Iterator[Path]:
    """A clean checkout of a commit, while this is open."""
    run("git", "worktree", "add", "--quiet", "--detach", place, commit)
    try:
        yield place
    finally:
        run("git", "worktree", "remove", "--force", place)


def refuse_early(version: str, tagged: bool) -> None:
    """Refuse what can be seen before anything is made."""
    numbers(version)
    if changed := run("git", "status", "--porcelain"):
        raise Refused(f"there are changes that are not committed; commit or stash them first:\n{changed}")
    tag = run("git", "tag", "--list", f"v{version}")
    if not tagged and tag:
        raise Refused(f"the tag v{version} exists: choose another version, or build it with --tagged")
    if tagged and (not tag or run("git", "rev-parse", f"v{version}^{{commit}}") != run("git", "rev-parse", "HEAD")):
        raise Refused(f"HEAD is not at the tag v{version}: run git checkout v{version} first")


def committed(version: str, place: Path) -> str:
    """The release as a commit on top of HEAD, which no branch has yet."""
    with checkout("HEAD", place) as tree:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        log, module, citation = tree / "CHANGELOG.md", tree / "src/tunewright/version.py", tree / "CITATION.cff"
        now = current(module.read_text())
        newer(version, now)
        log.write_text(cut(log.read_text(), version, date))
        module.write_text(IS_SET.sub(f'__version__ = "{version}"', module.read_text()))
        citation.write_text(cited(citation.read_text(), version, date))
        # The hooks need an environment that a fresh checkout does not have.
        run("git", "commit", "--quiet", "--all", "--no-verify", "--message", f"Release {version}", cwd=tree)
        return run("git", "rev-parse", "HEAD", cwd=tree)


def refuse_uncut(version: str) -> None:
    """Refuse a tag whose files say another version."""
    now = current((PROJECT / "src/tunewright/version.py").read_text())
    if now != version or not section((PROJECT / "CHANGELOG.md").read_text(), version):
        raise Refused(
            f"v{version} holds version {now}: delete the tag, and run scripts/release {version} on its branch"
        )


def built(tree: Path, out: Path, programs: Path, odd: bool) -> list[Path]:
    """The sdist of a checkout and the wheel made from it; `odd` is another machine, as far as that can be pretended."""
    env = environment(SOURCE_DATE_EPOCH=run("git", "log", "-1", "--format=%ct", cwd=tree))
    env |= {"TZ": "Pacific/Kiritimati", "LC_ALL": "C"} if odd else {}
    build = (programs / "python", "-m", "build", "--no-isolation", "--outdir", out, tree)
    run(*build, cwd=out.parent, env=env, umask=0o077 if odd else -1)
    return sorted(out.iterdir())


def installed(wheel: Path, python: Path, place: Path, programs: Path) -> Path:
    """An environment that holds a wheel, what it depends on, and nothing else."""
    run(python, "-m", "venv", "--without-pip", place, env=environment())
    there = place / "bin" / "python"
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "--python", there, "install", "-q")
    name = "==".join(wheel.name.split("-")[:2])
    # From a folder and not by its path, which would be noted in the environment, and so in the SBOM.
    run(*pip, "--no-deps", "--no-index", "--find-links", wheel.parent, name, env=environment())
    run(*pip, name, env=environment())
    return there


def quick_start(tree: Path, python: Path, place: Path, version: str) -> str:
    """What the README's quick start says in a second process, which must measure nothing."""
    empty = place / "empty"
    empty.mkdir()
    env = environment(XDG_CACHE_HOME=str(place / "cache"), XDG_CONFIG_HOME=str(place / "config"))
    run(python, tree / "docs/making/blocks.py", tree / "README.md", empty, env=env)
    if version not in (said := run(python, "-m", "tunewright", "--version", cwd=empty, env=env)):
        raise Refused(f"the wheel says {said!r} and not {version}: see [tool.hatch.version] in pyproject.toml")
    first, second = (run(python, "saxpy.py", cwd=empty, env=env) for _ in range(2))
    if first.endswith("measured 0") or not second.endswith("measured 0"):
        raise Refused(f"the quick start must measure in its first process alone: look at the store; {first}; {second}")
    return "measured " + " then ".join(said.rpartition(" ")[2] for said in (first, second))


def sbom(python: Path, pyproject: Path, version: str, out: Path, programs: Path) -> None:
    """The bill of materials of an environment, as CycloneDX: equal environments make equal bytes."""
    told = out.with_suffix(".toml")  # the version is in version.py, where the program does not look
    told.write_text(pyproject.read_text().replace('dynamic = ["version"]', f'version = "{version}"'))
    how = ("environment", "--output-reproducible", "--of", "JSON", "--sv", "1.6", "--mc-type", "library")
    run(programs / "cyclonedx-py", *how, "--pyproject", told, "-o", out, python, cwd=out.parent, env=environment())
    if json.loads(out.read_text())["metadata"]["component"].get("version") != version:
        raise Refused("the SBOM does not name the version: see `dynamic` in pyproject.toml")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checked(version: str, commit: str, place: Path, allow_missing: bool) -> list[tuple[str, str]]:
    """Build a commit into dist/VERSION and check that; what was checked, with what came of it."""
    told: list[tuple[str, str]] = []
    programs, out = tools(), PROJECT / "dist" / version
    with checkout(commit, place / "one") as tree, checkout(commit, place / "two") as other:
        say("-- building twice")
        first, second = built(tree, place / "first", programs, False), built(other, place / "second", programs, True)
        if [one.name for one in first] != [one.name for one in second] or len(first) != 2:
            raise Refused("two builds made different files: compare [tool.hatch.build] with what is committed")
        for one, two in zip(first, second, strict=True):
            if not filecmp.cmp(one, two, shallow=False):
                raise Refused(
                    f"two builds of {one.name} differ: run diffoscope on them, and remove what depends on time"
                )
            told.append((one.name, f"two builds are identical; {one.stat().st_size:,} bytes"))
        run(programs / "twine", "check", "--strict", *first, env=environment())
        told.append(("twine check --strict", "passed"))
        found = pythons(supported((tree / "pyproject.toml").read_text()))
        if (missing := [name for name, path in found.items() if path is None]) and not allow_missing:
            raise Refused(f"no Python {', '.join(missing)}: install it, name it in PYTHONS, or pass --allow-missing")
        wheel, bill = next(one for one in first if one.suffix == ".whl"), place / f"tunewright-{version}.cdx.json"
        for name, python in found.items():
            say(f"-- the quick start on Python {name}")
            if python is None:
                told.append((f"Python {name}", "MISSING, not tried"))
                continue
            there = installed(wheel, python, place / name / "env", programs)
            told.append((f"Python {name}", f"quick start passed; {quick_start(tree, there, place / name, version)}"))
            if not bill.exists():
                sbom(there, tree / "pyproject.toml", version, bill, programs)
                told.append((bill.name, f"CycloneDX of the wheel and its dependencies on Python {name}"))
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        kept = [*first, *([bill] if bill.exists() else [])]
        for one in kept:
            shutil.copy(one, out)
        (out / "SHA256SUMS").write_text("".join(f"{digest(one)}  {one.name}\n" for one in kept))
        (out / "NOTES.md").write_text(section((tree / "CHANGELOG.md").read_text(), version) + "\n")
    return [*told, ("SHA256SUMS", f"{len(kept)} files")]


def main(arguments: Sequence[str]) -> None:
    """Make a release, or say why not."""
    parser = argparse.ArgumentParser("scripts/release", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("version", help="as 1.2.3, without a v")
    parser.add_argument("--dry-run", action="store_true", help="do everything, and leave the branch as it is")
    parser.add_argument("--tagged", action="store_true", help="build a release that is already cut, from its tag")
    parser.add_argument("--allow-missing", action="store_true", help="go on where a supported Python is not installed")
    said = parser.parse_args(arguments)
    refuse_early(said.version, said.tagged)
    with tempfile.TemporaryDirectory(prefix="tunewright-release-") as folder:
        place = Path(folder)
        if said.tagged:
            refuse_uncut(said.version)
        commit = run("git", "rev-parse", "HEAD") if said.tagged else committed(said.version, place / "cut")
        told = checked(said.version, commit, place, said.allow_missing)
    if not (said.tagged or said.dry_run):
        run("git", "merge", "--quiet", "--ff-only", commit)
    width = max(len(name) for name, _ in told)
    say("\n".join(["", *(f"{name:<{width}}  {what}" for name, what in told), "", f"dist/{said.version}/"]))
    if not (said.tagged or said.dry_run):
        tag = f"v{said.version}"
        say(f"next: git tag -a {tag} -m 'Release {said.version}' && git push origin HEAD {tag}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Refused as refused:
        sys.exit(f"scripts/release: {refused}")
