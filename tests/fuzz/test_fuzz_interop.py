"""Whatever is in a file of another tool, it is read or a WireError; what is read can be kept, and written again."""

import json
from contextlib import suppress
from pathlib import Path

import foreign
import pytest
from damage import SCRAPS, bent, effort, file_of, spoilt
from hypothesis import given
from hypothesis import strategies as st

from tunewright.backends import expressions
from tunewright.backends.replay import Recording
from tunewright.errors import SpaceError, WireError
from tunewright.interop import findings, hub, kernel_tuner, moe, t4, triton_cache, tunableop, value_lists
from tunewright.interop.audit import audit_tables
from tunewright.interop.findings import AuditRequest
from tunewright.stores import serialization

CACHE = {
    "device_name": "A100",
    "kernel_name": "scale",
    "problem_size": [4096, 2],
    "tune_params_keys": ["x", "y"],
    "tune_params": {"x": [1, 2], "y": ["a", 0.5]},
    "objective": ["time"],
    "cache": {
        "1,a": {"x": 1, "y": "a", "time": 1.5, "times": [1.5, 1.6], "compile_time": 3.0, "benchmark_time": 2},
        "2,a": {"x": 2, "y": "a", "time": "InvalidConfig"},
        "2,0.5": {"x": 2, "y": 0.5, "time": "RuntimeFailedConfig", "__error__": "RuntimeFailedConfig"},
    },
}
TIME = {"name": "time", "value": 1.5, "unit": "ms"}
RESULTS = {
    "metadata": {"timeunit": "ms"},
    "schema_version": "1.0.0",
    "results": [
        {"configuration": {"x": 1, "y": "a"}, "times": {"compilation": 1, "benchmark": 2, "runtimes": [1, 2]},
         "invalidity": "correct", "correctness": 1, "measurements": [TIME]},
        {"configuration": {"x": 2, "y": "b"}, "times": {}, "invalidity": "compile", "measurements": []},
    ],
}  # fmt: skip
INPUT = {
    "General": {"BenchmarkName": "scale"},
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "x", "Values": "[1, 2] + list(range(4, 9))"},
            {"Name": "y", "Values": "[2**i for i in range(5)]"},
            {"Name": "z", "Values": ["a", "b"]},
        ],
        "Conditions": [{"Expression": "x * y <= 64"}],
    },
    "KernelSpecification": {"KernelName": "scale", "ProblemSize": [4096, 2]},
}


def kept_table(table, path) -> None:
    """What importing does with a table."""
    for trial in table.trials:
        assert serialization.load_trial(serialization.dump_trial(trial)) == trial
    with suppress(SpaceError):
        Recording.from_table(table.kernel, table.device, table.knobs, table.constraints, table.trials)
    for form in (kernel_tuner, t4) if table.trials else (kernel_tuner,):  # a T4 file without results is refused
        form.write(table, path)
        assert [trial.config for trial in form.read(path).trials] == [trial.config for trial in table.trials]


def kept_moe(table, path) -> None:
    serialization.encode(list(table.foreign_rows()))
    for tool in moe.Tool:
        with suppress(WireError):
            there = moe.write(table, path.parent, tool)
            assert path.parent in there.parents
            assert moe.read(there).rows == table.rows


def kept_results(results, path) -> None:
    serialization.encode(list(results.foreign_rows()))
    with suppress(WireError):
        tunableop.write(results, path)
        assert [row.kernel for row in tunableop.read(path).rows] == [row.kernel for row in results.rows]


def kept_cache(cache, path) -> None:
    triton_cache.write(cache, path)
    assert triton_cache.read(path) == cache
    assert cache.best in cache.tried
    with suppress(WireError):
        kept_table(triton_cache.as_table(cache, "a device"), path)


def kept_input(space, path) -> None:
    serialization.encode([knob.values for knob in space.knobs])
    with suppress(SpaceError):
        Recording.from_table(space.kernel, "a device", space.knobs, space.constraints, ())


def kept_shapes(shapes, path) -> None:
    serialization.encode(shapes)


ROWS = {"triton_version": "3.4.0", **foreign.rows((1, 2, 64))}
FORMS = {
    "moe": (f"triton_3_4_0/{foreign.SPACED}", moe.read, kept_moe, spoilt(ROWS)),
    "tunableop": ("results0.csv", tunableop.read, kept_results, bent(foreign.csv().encode())),
    "triton": ("k.autotune.json", triton_cache.read, kept_cache, spoilt(json.loads(foreign.autotune()))),
    "kernel tuner": ("k.json", kernel_tuner.read, kept_table, spoilt(CACHE)),
    "t4": ("k_T4.json", t4.read, kept_table, spoilt(RESULTS)),
    "t1": ("k_T1.json", t4.read_input, kept_input, spoilt(INPUT)),
    "hub": (
        "k.json",
        lambda path: hub.read_tables([path])[0],
        kept_table,
        spoilt(CACHE) | spoilt(RESULTS) | spoilt(INPUT),
    ),
    "shapes": ("s.json", findings.read_shapes, kept_shapes, spoilt([1, {"M": 2}, {"key": {}}])),
    "trace": ("s.txt", findings.read_shapes, kept_shapes, bent(b"# all\n64\nM=1,2\nE=8,N=2,M=3\n")),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@effort(2)
@given(data=st.data())
def test_any_file_is_read_or_refused(form, data) -> None:
    name, read, keep, contents = FORMS[form]
    with file_of(data.draw(contents), name) as path:
        try:
            found = read(path)
        except WireError:
            return
        keep(found, path)


ASKED = AuditRequest(
    tuple(findings.parse_shapes("M=1,4,9000")), "NVIDIA H20-3e", {"triton": "3.4.0", **foreign.VALIDATORS}
)


@pytest.mark.parametrize("form", ["moe", "tunableop", "triton", "kernel tuner", "t4"])
@effort()
@given(data=st.data())
def test_the_auditor_goes_on_whatever_is_in_a_file(form, data) -> None:
    name, _, _, contents = FORMS[form]
    with file_of(data.draw(contents), name) as path:
        report = audit_tables(path.parent.parent if "/" in name else path.parent, ASKED)
        serialization.encode(report)
        assert all((one.wrong + one.file + one.row).isprintable() for one in report.findings)


PIECES = [
    "[", "]", "(", ")", "1", "2**62", "0x" + "f" * 40, "9" * 30, "-", "+", "*", "//", "%", "/", ",", "i", "'a'",
    "1e308", " for i in ", "range(", "list(", "range(100000)", "True", "None", "lambda: 1", "__import__", "x", " if ",
    " else ", " and ", " or ", "not ", "==", "<", " in ", "b'a'", "...", "1j",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=40)


@effort(4)
@given(TEXTS | bent(b"[1, 2] + list(range(32, 129, 32))").map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_is_a_list_of_values_or_refused(text) -> None:
    with suppress(WireError):
        found = value_lists.parse_values(text, "here")
        assert isinstance(found, list)
        assert 0 < len(found) <= 100_000


@effort(4)
@given(TEXTS | bent(b"x * i <= 64 and (x == 2 or not i in (1, 2))").map(lambda raw: raw.decode("utf-8", "replace")))
def test_any_text_is_a_rule_of_arithmetic_or_refused(text) -> None:
    with suppress(SpaceError):
        rule = expressions.parse_rule(text, text_knobs={"x"})
        rule.broken_by(dict.fromkeys(rule.reads, 3))


@effort(4)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["E=8", "N=2", "device_name=", "X", ",", "[", "1, 2]", "..", "/", "\0"])).map("".join)
)
def test_any_name_makes_a_title_or_is_refused(name) -> None:
    with suppress(WireError):
        title = moe.parse_name(name)
        for tool in moe.Tool:
            assert (title.name(tool) or ".json").endswith(".json")


BOMBS = {
    "a step for each of a hundred thousand": "[" + "+".join(["i"] * 900) + " for i in range(100000)]",
    "a tree for each": "[" + "(" * 40 + "i" + "+i)" * 40 + "+(1+1)" * 300 + " for i in range(100000)]",
    "doubled and doubled": "list(range(100000))" + "+list(range(100000))" * 500,
    "minus minus": "-" * 90_000 + "1",
    "brackets": "[" * 90_000,
    "digits": "[0x" + "f" * 90_000 + "]",
    "a range of everything": "list(range(10**18))",
    "a power": "[2**62**62]",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_short_text_that_stands_for_endless_work_is_refused(name) -> None:
    with pytest.raises(WireError):
        t4.parse_input(
            INPUT | {"ConfigurationSpace": {"TuningParameters": [{"Name": "x", "Values": BOMBS[name]}]}}, "here"
        )


@pytest.mark.parametrize(
    "text",
    ["('a' if x else 'b') * 9999999999", "('a' or x) * 9999999999", "b'a' * 9999999999 == x", "x * 9999999999 == 'a'",
     "('%9999999999d' if x else 1) % 3", "((1, 2) if x else 3) * 9999999999 == x"],
)  # fmt: skip
def test_a_rule_that_repeats_a_text_is_refused(text) -> None:
    with pytest.raises(SpaceError, match="numbers alone"):
        expressions.parse_rule(text, text_knobs={"x"})


@pytest.mark.parametrize("scrap", SCRAPS[-8:])
def test_a_file_that_is_no_file_is_refused(scrap, tmp_path: Path) -> None:
    for read in (moe.read, tunableop.read, triton_cache.read, kernel_tuner.read, t4.read, t4.read_input):
        with pytest.raises(WireError):
            read(tmp_path / scrap.decode("latin-1"))
        with pytest.raises(WireError):
            read(tmp_path)
