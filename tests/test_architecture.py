"""The claims of docs/architecture.md, as tests."""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

import tunewright
import tunewright as tw

ROOT = Path(tunewright.__file__).parent
PROJECT = Path(__file__).parent.parent
SOURCES = sorted(ROOT.rglob("*.py"))
HEART = ["model", "ports", "measure", "engine", "session.py", "kernel/tuned.py"]

PUBLIC = {
    "C", "Callable", "Case", "Command", "Config", "CpuSeconds", "Cuda", "Feature", "In", "InOut", "Jax", "Knob",
    "NoDecision", "NothingWorked", "Numba", "Out", "Python", "Range", "Referee", "Regex", "Rule", "Seconds", "Session",
    "Space", "TuneOptions", "Tuned", "TunewrightError", "Variant", "__version__", "configure", "current_session",
    "memo", "persistent_memo", "seal", "tune", "unseal",
}  # fmt: skip


parsed = functools.cache(ast.parse)


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
    "kernel.generated_call", "kernel.tuned", "kernel.parameter_names", "pools.kernel_loader", "kernel.buckets",
    "kernel.declaration", "session", "stores.cache_folder", "stores.artifact_provider", "backends.python",
    "backends.host", "backends.foreign_devices", "stores.fallback", "stores.singleflight", "stores.leases",
    "cases.inputs", "kernel.workloads", "measure.evaluator", "measure.audit", "kernel.seeds", "stores.seal",
    "engine.budget", "pools.serial", "strategies.random", "stores.prior",
    "engine.journal", "stores.trying", "engine.stopping", "engine.search_loop", "engine.decide", "engine.final",
    "measure.kernel_workload", "cases.arguments", "cases.contents", "cases.validation", "cases.tolerance",
    "measure.judge", "stores.file_lock", "cases.expected", "cases.foreign_arrays", "measure.kernel_candidate",
    "measure.case_check", "measure.clock", "engine.repeated_failures", "measure.failures", "measure.race", "stats",
    "measure.noise", "stores.transcripts",
]  # fmt: skip


KEEPING = (
    "stores.serialization",
    "stores.memory",
    "stores.sqlite",
    "stores.records",
    "stores.retention",
    "stores.tiered",
    "stores.locations",
    "stores.circuit_breaker",
    "stores.process_id",
    "stores.files",
    "stores.network_files",
    "stores.choice_digest",
    "stores.capabilities",
    "stores.statistics",
    "stores.namespaces",
    "stores.trust",
    "stores.user_file",
)
"""Where the store itself is at work, and where it is decided whether it may be used."""


def test_a_tuning_run_goes_from_top_to_bottom_as_drawn() -> None:
    # All configs are the same, so that there are always finalists to race.
    session = tw.Session(pool="serial", strategy="random")
    tuned = tw.tune(tw.Space(tw.Knob("step", range(12))), session=session)(triple)
    import tunewright.stores.singleflight  # what loading it does is no part of the path  # noqa: F401

    rooms = crossed(lambda: tuned(np.ones(3)))
    once = "backends.cpu_info"  # the processor is described once in each process
    values = (
        once,
        "model.",
        "spaces.",
        "cases.case",
        "settings",
        "report.",
        "lazy_logging",
        "cpu_usage",
        "ports.",
        *KEEPING,
    )
    assert [room for room in rooms if not room.startswith(values)] == TUNING


def test_a_cached_launch_is_one_generated_call() -> None:
    tuned = tw.tune(tw.Space(tw.Knob("step", [1, 2])), session=tw.Session(pool="serial"))(triple)
    tuned(np.ones(3))
    assert crossed(lambda: tuned(np.ones(3))) == ["kernel.generated_call"]


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
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 50, (path, node.name)
                named = [a for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]
                # What click hands over is what a person typed, not a parameter list anyone writes.
                assert len(named) <= 6, (path, node.name)


def test_the_heart_can_be_read_in_an_afternoon() -> None:
    files = [file for part in HEART for file in ([ROOT / part] if part.endswith(".py") else (ROOT / part).glob("*.py"))]
    total = sum(file.read_text().count("\n") for file in files)
    assert total <= 4900, total


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


# Where anything that a config breaks is data about the config, and where a waiting caller is handed any error at all.
BLIND = {
    "memoization/singleflight.py", "triton/workload.py", "measure/evaluator.py",
}  # fmt: skip


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def names(node: ast.expr | None) -> set[str]:
    """What an except clause catches; a bare one everything."""
    if node is None:
        return {"BaseException"}
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {getattr(part, "attr", None) or getattr(part, "id", "") for part in parts}


def test_errors_are_swallowed_whole_in_three_files_alone() -> None:
    found = set()
    for path in SOURCES:
        for node in ast.walk(parsed(path.read_text())):
            if (
                isinstance(node, ast.ExceptHandler)
                and names(node.type) & {"Exception", "BaseException"}
                and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            ):
                found.add(place(path))
    assert found == BLIND


def test_nothing_names_a_path_of_this_machine() -> None:
    kept = [*PROJECT.glob("docs/**/*.md"), *PROJECT.glob("*.md"), *PROJECT.glob("benchmarks/*.py"),
            *PROJECT.glob("scripts/*[!_]"), *PROJECT.glob(".github/**/*.y*ml")]  # fmt: skip
    for path in [*SOURCES, *kept]:
        assert not re.search(r"/(work|root|home/\w+)/", path.read_text()), path


CODE_IN_DATA = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
BY_PICKLE = {"Queue", "SimpleQueue", "JoinableQueue", "Manager", "Pool"}


def pickles(text: str) -> list[str]:
    """Whatever in a module would have code travel as data, a `Connection` that pickles what it is given among it."""
    tree = parsed(text)
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])
    found = sorted(modules & CODE_IN_DATA)
    if "multiprocessing" in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                sends = node.func.attr == "send" or (node.func.attr == "recv" and not node.args)
                found += [node.func.attr] if sends or node.func.attr in BY_PICKLE else []
    return found


def test_nothing_pickles_but_what_a_process_tells_its_own_child() -> None:
    found = {place(path): pickles(path.read_text()) for path in SOURCES}
    assert {path: how for path, how in found.items() if how} == {"pools/by_value.py": ["cloudpickle", "pickle"]}


def test_what_pickles_is_found_out() -> None:
    assert pickles("from pickle import loads") == ["pickle"]
    assert pickles("import multiprocessing.connection as mc\npipe.send(job)\npipe.recv()") == ["send", "recv"]
    assert pickles("from multiprocessing import get_context\nget_context('spawn').Queue()") == ["Queue"]
    assert not pickles("from multiprocessing import get_context\npipe.send_bytes(b'')\npipe.recv_bytes()")
    assert not pickles("import socket\nsock.recv(4)\nchannel.send(value)")


def test_every_module_says_what_it_is() -> None:
    for path in SOURCES:
        said = ast.get_docstring(parsed(path.read_text()))
        assert said, path


PAGE = (PROJECT / "docs" / "architecture.md").read_text()


def test_the_floors_on_the_page_are_those_that_the_linter_checks() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    assert PAGE.split("```")[1].strip().splitlines() == contract["layers"]


def test_the_page_says_what_every_package_has() -> None:
    packages = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(packages - {"__init__", "__main__", "__pycache__"})


def test_the_page_names_only_what_is_there() -> None:
    """Every module, file and folder in code marks."""
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE):
        assert any((root / name).exists() for root in (ROOT, PROJECT)), name
    drawn = PAGE.split("**A tuning run**")[1].split("```")[1]
    for module in re.findall(r"\b((?:kernel|engine|measure|stores)\.\w+)", drawn):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    for method in re.findall(r"session\.(\w+)", drawn):
        assert hasattr(tw.Session, method), method
