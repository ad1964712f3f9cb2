"""Examples that live outside of the package: installed as anyone would, and tested by their own tests."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def installed(example: Path, place: Path) -> dict[str, str]:
    """The environment of a process that has an example: its source, and entry points as an installer writes them."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    info = place / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project.get("entry-points", {}).items()
    info.joinpath("entry_points.txt").write_text(
        "\n".join(f"[{group}]\n" + "\n".join(f"{n} = {v}" for n, v in points.items()) for group, points in groups)
    )
    paths = [str(place), str(example / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_an_example_package_passes_its_own_tests_and_the_contract_kits(example, tmp_path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", str(example / "tests")]
    done = subprocess.run(
        command, cwd=tmp_path, env=installed(example, tmp_path / "site"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
