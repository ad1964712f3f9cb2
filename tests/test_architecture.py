"""The claims of docs/architecture.md, as tests."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import tunewright
import tunewright as tw

ROOT = Path(tunewright.__file__).parent
PROJECT = Path(__file__).parent.parent
SOURCES = sorted(ROOT.rglob("*.py"))
HEART = ["model", "ports", "measure", "engine", "session.py", "fronts/tuned.py"]

PUBLIC = {
    "C", "Case", "Config", "Figure", "In", "InOut", "Knob", "NoDecision", "NothingWorked", "Out", "Python", "Rule",
    "Session", "Space", "Tuned", "TunewrightError", "Variant", "__version__", "configure", "current_session", "memo",
    "persistent_memo", "seal", "tune", "unseal",
}  # fmt: skip


def crossed(call) -> list[str]:
    """The modules of ours that `call` enters, in order of first entry."""
    seen: dict[str, None] = {}

    def look(frame, event, arg):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("tunewright.") and frame.f_code.co_name != "<module>":
            seen.setdefault(name.removeprefix("tunewright."))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


def triple(x: tw.In("N"), *, step: int):
    return 3 * x


TUNING = [
    "fronts.call", "fronts.tuned", "pools.loading", "fronts.declaration", "fronts.buckets",
    "session", "sharing.supply", "backends.python", "backends.host", "sharing.nearby",
    "sharing.flight", "sharing.leases",
    "cases.inputs", "fronts.seeds", "sharing.sealing", "engine.budget",
    "pools.serial", "strategies.random", "sharing.prior",
    "engine.journal", "engine.stopping", "engine.decide",
    "engine.run", "measure.attempt", "cases.exam", "cases.arguments", "cases.judge",
    "measure.lease", "measure.clock", "measure.race", "measure.stats", "measure.quiet", "sharing.transcripts",
]  # fmt: skip


def test_a_tuning_run_goes_from_top_to_bottom_as_drawn() -> None:
    # All configs are the same, so that there are always finalists to race.
    session = tw.Session(pool="serial", strategy="random")
    tuned = tw.tune(tw.Space(tw.Knob("step", range(12))), session=session)(triple)
    import tunewright.sharing.flight  # what loading it does is no part of the path  # noqa: F401

    rooms = crossed(lambda: tuned(np.ones(3)))
    values = ("model.", "spaces.", "cases.case", "settings", "report.", "remarks", "stores.", "ports.", "sharing.wire")
    assert [room for room in rooms if not room.startswith(values)] == TUNING


def test_a_cached_launch_is_one_generated_call() -> None:
    tuned = tw.tune(tw.Space(tw.Knob("step", [1, 2])), session=tw.Session(pool="serial"))(triple)
    tuned(np.ones(3))
    assert crossed(lambda: tuned(np.ones(3))) == ["fronts.call"]


def test_a_fresh_process_with_a_warm_store_never_loads_a_strategy() -> None:
    code = (
        "import sys, numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('step', [1, 2])), session=tw.Session(pool='serial'))\n"
        "def triple(x: tw.In('N'), *, step): return 3 * x\n"
        "triple(np.ones(3))\n"
        "late = ('tunewright.strategies', 'tunewright.pools.p', 'rich', 'click')\n"
        "print([name for name in sys.modules if name.startswith(late)])"
    )
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert "strategies.portfolio" in said[0]
    assert said[1].strip() == "[]"


def test_files_functions_and_parameters_stay_small() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 50, (path, node.name)
                named = [a for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]
                # What click hands over is what a person typed, not a parameter list anyone writes.
                assert len(named) <= 6, (path, node.name)


def test_the_heart_can_be_read_in_an_afternoon() -> None:
    files = [file for part in HEART for file in ([ROOT / part] if part.endswith(".py") else (ROOT / part).glob("*.py"))]
    total = sum(file.read_text().count("\n") for file in files)
    assert total <= 3000, total


def test_the_public_names_are_these() -> None:
    assert set(tunewright.__all__) == PUBLIC
    for name in PUBLIC - {"__version__"}:
        assert getattr(tunewright, name).__doc__


def test_importing_us_loads_no_optional_package_and_no_face() -> None:
    code = (
        "import sys, json, numpy, msgspec; before = set(sys.modules); import tunewright;"
        "fresh = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(json.dumps(sorted(fresh - sys.stdlib_module_names - {'numpy'})))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == ["tunewright"]


def test_blind_excepts_stand_in_attempt_alone() -> None:
    for path in SOURCES:
        blind = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ExceptHandler)
            and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
            and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
        ]
        assert not blind or path.name == "attempt.py", path


def test_nothing_names_a_path_of_this_machine_or_pickles() -> None:
    for path in [*SOURCES, *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("*.md"), *PROJECT.glob("benchmarks/*.py")]:
        text = path.read_text()
        assert not re.search(r"/(work|root|home/\w+)/", text), path
        assert "import pickle" not in text, path


def test_every_module_says_what_it_is() -> None:
    for path in SOURCES:
        said = ast.get_docstring(ast.parse(path.read_text()))
        assert said, path


def test_the_picture_of_the_house_names_every_room() -> None:
    picture = (PROJECT / "docs" / "architecture.md").read_text()
    for path in SOURCES:
        if path.name not in ("__init__.py", "__main__.py"):
            assert path.name in picture, path
