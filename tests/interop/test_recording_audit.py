"""The auditor on caches of Kernel Tuner and on T4 results; and such files there and back, from the tools' side."""

import gzip
import json

import pytest
from foreign import put

from tunewright.interop import kernel_tuner, t4
from tunewright.interop.audit import audit_tables
from tunewright.interop.findings import AuditRequest, Fault, Severity

ERROR, WARNING = Severity
ENTRY = {"x": 16, "y": 0.5, "time": 1.25, "times": [1.0, 1.5], "compile_time": 301.5, "verification_time": 0}
ENTRY |= {"benchmark_time": 4.25, "strategy_time": 0, "framework_time": 1.5, "timestamp": "2025-01-01 00:00:00"}
FAILED = ENTRY | {"x": 32, "time": "RuntimeFailedConfig", "times": None, "__error__": "RuntimeFailedConfig"}


def cache(device="NVIDIA A100-PCIE-40GB", **entries):
    """A cache as Kernel Tuner 1.5 writes it."""
    return {
        "schema_version": "1.0.0",
        "device_name": device,
        "kernel_name": "convolution_kernel",
        "problem_size": [4096, 4096],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [16, 32, 64], "y": [0.5, 1.0]},
        "objective": "time",
        "cache": {"16,0.5": ENTRY, "32,0.5": FAILED} | entries,
    }


def result(x, time, **more):
    """One of T4's results, as the hub's files have them."""
    return {
        "timestamp": "2025-01-01T00:00:00+00:00",
        "configuration": {"x": x, "opt": "a"},
        "times": {"compilation": 0.25, "benchmark": 0.0042, "framework": 0.001, "search_algorithm": 0, "validation": 0,
                  "runtimes": [0.001, 0.0015]},
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "GFLOP/s", "value": 9.5, "unit": ""}, {"name": "time", "value": time, "unit": "s"}],
        "objectives": ["time"],
    } | more  # fmt: skip


def results(*more, **head):
    listed = [result(16, 0.00125), result(32, 0.002), result(64, 0, invalidity="compile", measurements=[])]
    return {"schema_version": "1.0.0", "metadata": {"timeunit": "seconds"}, "results": [*listed, *more], **head}


def found(tmp_path, asked=None, **files):
    texts = {name: said if isinstance(said, str | bytes) else json.dumps(said) for name, said in files.items()}
    put(tmp_path, {name.replace("__", "."): text for name, text in texts.items()})
    return [(one.file, one.row, one.fault, one.severity) for one in audit_tables(tmp_path, asked).findings]


def test_sound_recordings_are_sound_also_if_compressed_and_other_files_are_passed_over(tmp_path) -> None:
    packed = gzip.compress(json.dumps(results()).encode())
    said = found(tmp_path, a__json=cache(), A100_T4__json=results(), W6600_T4__json__gz=packed, note__json={"x": 1})
    assert said == []
    report = audit_tables(tmp_path, AuditRequest(device="NVIDIA A100-PCIE-40GB"))
    assert (report.tables, report.passed_over, report.findings) == (3, ("note.json",), ())


OWN, AGAIN = ENTRY | {"x": 64}, json.dumps(ENTRY | {"time": 9.5})
CACHES = {
    "kept under another config's name": (cache(**{"64,1.0": OWN}), "64,1.0", Fault.UNREACHABLE, ERROR),
    "a value that is never tried": (cache(**{"48,0.5": ENTRY | {"x": 48}}), "48,0.5", Fault.UNREACHABLE, ERROR),
    "no time": (cache(**{"64,0.5": OWN | {"time": 0}}), "64,0.5", Fault.VALUE, ERROR),
    "less than none": (cache(**{"64,0.5": OWN | {"time": -2.5}}), "64,0.5", Fault.VALUE, ERROR),
    "an entry twice": (json.dumps(cache())[:-2] + f', "16,0.5": {AGAIN}}}}}', "16,0.5", Fault.COLLISION, ERROR),
    "a schema of tomorrow": (cache() | {"schema_version": "20.9.8"}, "", Fault.VERSION, WARNING),
    "no setting": (cache(**{"64,0.5": {"x": 64, "time": 1.0}}), "", Fault.DAMAGED, ERROR),
    "no entry": (cache(**{"64,0.5": [1]}), "", Fault.DAMAGED, ERROR),
    "no kernel": ({k: v for k, v in cache().items() if k != "kernel_name"}, "", Fault.DAMAGED, ERROR),
    "a run that still goes on": (json.dumps(cache())[:-2] + ",", "", Fault.DAMAGED, WARNING),
    "cut off in its head": (json.dumps(cache())[:170], "", Fault.DAMAGED, ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_a_fault_in_a_cache_is_said_once_and_where(name, tmp_path) -> None:
    content, row, fault, severity = CACHES[name]
    assert found(tmp_path, mine__json=content, other__json=cache()) == [("mine.json", row, fault, severity)]


RESULTS = {
    "another time": (results(result(32, 0.5)), "result 3", Fault.COLLISION, ERROR),
    "right and wrong": (results(result(8, 0.5, correctness=0)), "result 3", Fault.VALUE, ERROR),
    "no time": (results(result(8, 0.0)), "result 3", Fault.VALUE, ERROR),
    "a schema of tomorrow": (results(schema_version="2.0.0"), "", Fault.VERSION, WARNING),
    "no such verdict": (results(result(8, 1.0, invalidity="who knows")), "", Fault.DAMAGED, ERROR),
    "no such unit": (results(metadata={"timeunit": "fortnights"}), "", Fault.DAMAGED, ERROR),
    "no results": (results(results=[]), "", Fault.DAMAGED, ERROR),
    "cut off": (json.dumps(results())[:-40], "", Fault.DAMAGED, ERROR),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_fault_in_t4_results_is_said_once_and_where(name, tmp_path) -> None:
    content, row, fault, severity = RESULTS[name]
    said = found(tmp_path, A100_T4__json=content, W6600_T4__json=results())
    if name == "no such unit":  # a unit beside each measurement holds, so only what was spent has none
        assert said[0][2:] == (fault, severity)
    else:
        assert said == [("A100_T4.json", row, fault, severity)]


def test_a_result_that_is_met_again_with_the_same_time_is_none(tmp_path) -> None:
    assert found(tmp_path, A100_T4__json=results(result(32, 0.002))) == []


def test_a_device_that_is_spelt_in_two_ways_is_named(tmp_path) -> None:
    files = {"a__json": cache(), "b__json": cache(), "c__json": cache("A100 PCIe 40GB")}
    assert found(tmp_path, **files) == [("c.json", "", Fault.ALIAS, WARNING)]
    here = AuditRequest(device="A100 PCIe 40GB")
    assert found(tmp_path, here, **files) == [
        ("a.json", "", Fault.UNREACHABLE, ERROR),
        ("b.json", "", Fault.UNREACHABLE, ERROR),
    ]


def test_a_cache_as_kernel_tuner_writes_it_comes_back_value_for_value(tmp_path) -> None:
    whole = cache()
    (tmp_path / "theirs.json").write_text(json.dumps(whole, indent=1))
    table = kernel_tuner.read(tmp_path / "theirs.json")
    kernel_tuner.write(table, tmp_path / "ours.json")
    again = json.loads((tmp_path / "ours.json").read_text())
    for name in ("device_name", "kernel_name", "problem_size", "tune_params_keys", "tune_params"):
        assert again[name] == whole[name]
    assert again["cache"].keys() == whole["cache"].keys()
    kept = ("x", "y", "time", "compile_time", "verification_time", "benchmark_time", "framework_time")
    for key, entry in whole["cache"].items():
        assert {name: again["cache"][key][name] for name in kept} == pytest.approx({name: entry[name] for name in kept})
    assert again["cache"]["32,0.5"]["__error__"] == "RuntimeFailedConfig"
    assert len(again["cache"]["16,0.5"]["times"]) == 2
    assert kernel_tuner.read(tmp_path / "ours.json").trials == table.trials


def test_t4_results_as_the_hub_has_them_come_back_value_for_value(tmp_path) -> None:
    whole = results()
    (tmp_path / "convolution").mkdir()
    theirs = tmp_path / "convolution" / "A100_T4.json.gz"
    theirs.write_bytes(gzip.compress(json.dumps(whole).encode()))
    table = t4.read(theirs)
    assert (table.kernel, table.device) == ("convolution", "A100")
    (tmp_path / "again" / "convolution").mkdir(parents=True)
    ours = tmp_path / "again" / "convolution" / "A100_T4.json"
    t4.write(table, ours)
    assert t4.read(ours).trials == table.trials
    again = json.loads(ours.read_text())
    assert again["metadata"]["timeunit"] == "milliseconds"
    for mine, their in zip(again["results"], whole["results"], strict=True):
        for name in ("configuration", "invalidity", "correctness"):
            assert mine[name] == their[name]
        for name in ("compilation", "benchmark", "framework", "validation"):
            assert mine["times"][name] == pytest.approx(1e3 * their["times"][name])
    assert [one["measurements"][0]["value"] for one in again["results"][:2]] == pytest.approx([1.25, 2.0])
