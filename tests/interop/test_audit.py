"""The auditor: every planted fault is found, in the file and row where it is, and nothing in sound tables."""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from foreign import (
    AMD,
    BLOCKS,
    DOWN,
    H100,
    MI300,
    PRODUCTS,
    SIZES,
    SPACED,
    TRITON,
    VALIDATORS,
    autotune,
    config,
    csv,
    folder,
    healthy,
    moe,
    put,
    rows,
    timed,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright.cli.tables import audit
from tunewright.errors import WireError
from tunewright.interop import findings, triton_cache, tunableop
from tunewright.interop import moe as moe_tables
from tunewright.interop.audit import audit_tables
from tunewright.interop.findings import AuditRequest, Fault, RequestedShape, Severity
from tunewright.stores import serialization


@dataclass
class Planted:
    """One fault: the file it is in, what the file says, and what is to be found, in which row."""

    name: str
    text: object
    fault: Fault
    row: str = ""
    severity: Severity = Severity.ERROR
    beside: dict = field(default_factory=dict)


def at(number, name="NVIDIA_A100-SXM4-80GB", more=""):
    """A name for a table of its own, sound but for what is said otherwise."""
    return f"E={number},N=64,device_name={name}{more}.json"


def changed(size, **more):
    """Rows of which one is set otherwise; what is None is left out."""
    settings = {name: value for name, value in (config(size) | more).items() if value is not None}
    return moe(rows() | {str(size): settings})


def cached(what, *entries, kernel="matmul_kernel", **more):
    return f"cache/{folder(what)}/{kernel}.autotune.json", autotune(*entries, key=(what,), **more)


WARNING = Severity.WARNING
STEEP = moe(rows() | {"64": config(64, BLOCK_SIZE_M=128, BLOCK_SIZE_N=256)})

NAMES = [
    Planted("N=64,E=300,device_name=NVIDIA_A100-SXM4-80GB.json", moe(), Fault.UNREACHABLE),
    Planted("E=301,N=64,device_name=NVIDIA A100-SXM4-80GB.json", moe(), Fault.UNREACHABLE),
    Planted("E=302,N=64,device_name=nvidia_A100-SXM4-80GB.json", moe(), Fault.UNREACHABLE),
    Planted("E=303,N=64,dtype=fp8_w8a8,device_name=NVIDIA_L4.json", moe(), Fault.UNREACHABLE),
    Planted("E=0304,N=64,device_name=NVIDIA_L4.json", moe(), Fault.UNREACHABLE),
    Planted("E=305,N=64.json", moe(), Fault.UNREACHABLE),
    Planted("mixtral-tuned.json", moe(), Fault.UNREACHABLE),
    Planted(at(306, "NVIDIA_H200_NVL"), moe(), Fault.UNREACHABLE),
    Planted(at(307, more=",dtype=bfloat16"), moe(), Fault.UNREACHABLE),
    Planted(at(308, more=",dtype=fp9"), moe(), Fault.UNREACHABLE, severity=WARNING),
    Planted(at(309, more=",dtype=fp8_w8a8,block_shape=[128, 128]"), moe(), Fault.UNREACHABLE),
    Planted(TRITON + at(310, more=",dtype=fp8_w8a8,block_shape=[128,128]"), moe(), Fault.UNREACHABLE),
    Planted(at(311, more="_down"), moe(), Fault.UNREACHABLE),
    Planted(at(312, more=",per_channel_quant=False"), moe(), Fault.UNREACHABLE),
    Planted(at(313, "AMD_Radeon_Graphics"), moe(), Fault.ALIAS, severity=WARNING),
    Planted(at(314, "NVIDIA_A100_SXM4_80GB"), moe(), Fault.ALIAS, severity=WARNING),
    Planted(f"other/{at(315)}", moe(rows(num_stages=2)), Fault.COLLISION, beside={f"moe/{at(315)}": moe()}),
]
ROWS = [
    Planted(at(400), moe({**rows(), "1.5": config(1)}), Fault.DAMAGED, "M=1.5"),
    Planted(at(401), moe({"0": config(1), **rows()}), Fault.UNREACHABLE, "M=0"),
    Planted(at(402), moe({**rows(), "-8": config(8)}), Fault.UNREACHABLE, "M=-8"),
    Planted(at(403), moe({**rows(), "08": config(8)}), Fault.COLLISION, "M=08"),
    Planted(at(404), moe()[:-3] + ',"8": ' + json.dumps(config(8)) + "}\n", Fault.COLLISION, "8"),
    Planted(at(405), moe(rows() | {"8": [16, 64]}), Fault.DAMAGED, "M=8"),
    Planted(at(406), moe(rows((1, 2, 4, 64, 128))), Fault.GAP, "M=64", WARNING),
    Planted(at(407), moe(rows((16, 32, 64))), Fault.GAP, "M=16", WARNING),
    Planted(at(408), STEEP, Fault.CLIFF, "M=64", WARNING),
    Planted(at(409), changed(128, BLOCK_SIZE_M=48), Fault.VALUE, "M=128"),
    Planted(at(410), changed(2, BLOCK_SIZE_N=0), Fault.VALUE, "M=2"),
    Planted(at(411), changed(4, BLOCK_SIZE_K="64"), Fault.VALUE, "M=4"),
    Planted(at(412), changed(4096, num_warps=64), Fault.VALUE, "M=4096"),
    Planted(at(413), changed(1, num_warps=3), Fault.VALUE, "M=1"),
    Planted(at(414), changed(8, num_stages=99), Fault.VALUE, "M=8"),
    Planted(at(415), changed(16, GROUP_SIZE_M=-1), Fault.VALUE, "M=16"),
    Planted(at(416), changed(24, GROUP_SIZE_M=None), Fault.VALUE, "M=24"),
    Planted(at(417), changed(32, num_stages=None), Fault.VALUE, "M=32", WARNING),
    Planted(at(418), changed(48, BLOCK_SIZE_Q=16), Fault.VALUE, "M=48", WARNING),
    Planted(at(419), changed(64, kpack=2), Fault.VALUE, "M=64"),
    Planted(at(420, "AMD_Instinct_MI300X"), changed(96, **AMD | {"kpack": 3}), Fault.VALUE, "M=96"),
    Planted(at(421), changed(4096, BLOCK_SIZE_M=2048, BLOCK_SIZE_N=1024), Fault.VALUE, "M=4096"),
    Planted(at(422), moe({}), Fault.DAMAGED),
    Planted(at(423), moe()[:-200], Fault.DAMAGED),
    Planted(at(424), b"\x80\x81not text", Fault.DAMAGED),
    Planted(at(425), b"", Fault.DAMAGED),
    Planted(TRITON + at(426), moe({"triton_version": "3.4.0", **rows()}), Fault.VALUE, "triton_version"),
    Planted(TRITON + at(427, more="_down"), moe(rows(USE_TMA=1)), Fault.VALUE, "M=1 and 17 more"),
    Planted("triton_3_2_0/" + at(428), moe(), Fault.VERSION, severity=WARNING),
    Planted(at(429), moe({"triton_version": "3.1.0", **rows()}), Fault.VERSION, severity=WARNING),
    Planted(at(430), moe(rows((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))), Fault.FAR, "M=1024", WARNING),
]
OP, PARAMS, *_ = PRODUCTS[0].split(",")
RESULTS = [
    Planted("csv/pt0.csv", csv(PT_VERSION="2.8.0"), Fault.VERSION),
    Planted("csv/arch0.csv", csv(GCN_ARCH_NAME="gfx90a"), Fault.VERSION),
    Planted("csv/none0.csv", csv(PT_VERSION=None), Fault.VERSION),
    Planted("csv/hip0.csv", csv(HIP_VERSION=None), Fault.VERSION),
    Planted("csv/empty0.csv", csv() + "Validator,NEW_VERSION,\n", Fault.DAMAGED, "line 11"),
    Planted("csv/twice0.csv", "Validator,HIP_VERSION,701\n" + csv(), Fault.COLLISION, "line 3"),
    Planted("csv/same0.csv", csv(*PRODUCTS, f"{OP},{PARAMS},Default,0.5"), Fault.COLLISION, "line 11"),
    Planted("csv/cut0.csv", csv()[:-2], Fault.DAMAGED, "line 10"),
    Planted("csv/dos0.csv", csv().replace("\n", "\r\n"), Fault.DAMAGED, "line 1 and 9 more"),
    Planted("csv/blank0.csv", csv("", *PRODUCTS), Fault.DAMAGED, "line 6"),
    Planted("csv/op0.csv", csv(PRODUCTS[0].replace("Gemm", "gemm", 1)), Fault.UNREACHABLE, "line 6"),
    Planted("csv/layout0.csv", csv(PRODUCTS[0].replace("_TN", "_NN")), Fault.UNREACHABLE, "line 6"),
    Planted("csv/space0.csv", csv(PRODUCTS[0].replace(",tn", ", tn")), Fault.UNREACHABLE, "line 6"),
    Planted("csv/ld0.csv", csv(*PRODUCTS, "GemmTunableOp_float_NT,nt_6_4_6,Default,1"), Fault.UNREACHABLE, "", WARNING),
    Planted("csv/kernel0.csv", csv(f"{OP},{PARAMS},Gemm_Roc,1.0"), Fault.VALUE, "line 6", WARNING),
    Planted("csv/time0.csv", csv(f"{OP},{PARAMS},Default,fast"), Fault.DAMAGED, "line 6"),
    Planted("csv/rows0.csv", csv().partition("Gemm")[0], Fault.DAMAGED, "", WARNING),
    Planted("csv/tunableop_results.csv", csv(), Fault.UNREACHABLE, "", WARNING),
]  # fmt: skip
STALE = sorted(f"stale/{folder(what)}/matmul_kernel.autotune.json" for what in "yz")
CACHES = [
    Planted("mine/matmul_kernel.autotune.json", autotune(key=("mine",)), Fault.UNREACHABLE, "", WARNING),
    Planted(*cached("name", kernel="matmul-kernel"), Fault.UNREACHABLE),
    Planted(*cached("nan", timed(64, [float("nan")])), Fault.DAMAGED),
    Planted(*cached("inf", timed(64, float("inf"))), Fault.VALUE),
    Planted(*cached("same", timed(64, 0.1), timed(64, 0.2)), Fault.COLLISION, "config 1"),
    Planted(*cached("warps", timed(64, 0.1), timed(32, 0.2, num_warps=5)), Fault.VALUE, "config 1"),
    Planted(*cached("block", timed(-64, 0.1)), Fault.VALUE, "config 0"),
    Planted(*cached("zero", timed(64, [0.0])), Fault.VALUE, "config 0"),
    Planted(*cached("order", timed(64, [2.0, 3.0, 1.0])), Fault.VALUE, "config 0", WARNING),
    Planted(*cached("old", timed(64, 0.1, num_consumer_groups=2)), Fault.VALUE, "config 0", WARNING),
    Planted(*cached("hook", timed(64, 0.1, pre_hook="print")), Fault.VALUE, "config 0"),
    Planted(f"cache/{folder('cut')}/k.autotune.json", autotune()[:-9], Fault.DAMAGED),
    Planted(STALE[1], autotune(timed(64, 0.1), timed(128, 0.2), key=("stale",)), Fault.COLLISION, severity=WARNING,
            beside={STALE[0]: autotune(timed(64, 0.2), timed(128, 0.1), key=("stale",))}),
]  # fmt: skip
PLANTED = [*NAMES, *ROWS, *RESULTS, *CACHES]
ASKED = AuditRequest(
    tuple(findings.parse_shapes("M=" + ",".join(map(str, SIZES)))), "", {"triton": "3.4.0", **VALIDATORS}
)


def test_every_planted_fault_is_found_and_nothing_in_sound_tables(tmp_path) -> None:
    beside = {name: text for planted in PLANTED for name, text in planted.beside.items()}
    usual = {at(500 + number): moe() for number in range(5)}  # so that this spelling of the device is the usual one
    sound = healthy() | beside | usual
    put(tmp_path, sound | {planted.name: planted.text for planted in PLANTED})
    report = audit_tables(tmp_path, ASKED)
    assert report.tables == len(sound) + len(PLANTED)
    assert len(PLANTED) >= 25
    assert len(healthy()) >= 10
    found = {}
    for finding in report.findings:
        found.setdefault(finding.file, []).append(finding)
    assert not found.keys() & sound.keys()
    missed = [
        planted.name
        for planted in PLANTED
        if not any(
            (one.fault, one.severity) == (planted.fault, planted.severity) and one.row == planted.row
            for one in found.get(planted.name, [])
        )
    ]
    assert missed == []
    assert found.keys() == {planted.name for planted in PLANTED}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_fault_alone_among_sound_tables_is_said_once_with_what_to_do(planted, tmp_path) -> None:
    put(tmp_path, healthy() | planted.beside | {at(500): moe(), planted.name: planted.text})
    asked = ASKED if planted.fault is not Fault.GAP else AuditRequest()  # what lies in a gap is far from a row, too
    (one,) = audit_tables(tmp_path, asked).findings
    assert (one.file, one.row, one.fault, one.severity) == (planted.name, planted.row, planted.fault, planted.severity)
    assert one.wrong
    assert one.remedy


def test_sound_tables_are_sound_for_the_device_and_shapes_they_are_for(tmp_path) -> None:
    put(tmp_path, healthy())
    shapes = tuple(findings.parse_shapes("E=128,N=192,M=1,3,100,5000"))
    assert audit_tables(tmp_path, AuditRequest(shapes, "NVIDIA H100 80GB HBM3", {"triton": "3.4.0"})).findings == ()


def test_a_device_that_is_spelt_otherwise_there_or_has_no_table_is_named(tmp_path) -> None:
    put(tmp_path, {H100: moe(), MI300: moe(rows(**AMD))})
    (one, two) = audit_tables(tmp_path, AuditRequest(device="NVIDIA H100-80GB HBM3")).findings
    assert (one.file, one.fault, two.file, two.fault) == (".", Fault.UNTUNED, H100, Fault.UNREACHABLE)
    assert "asks for NVIDIA_H100-80GB_HBM3, not for NVIDIA_H100_80GB_HBM3" in two.wrong
    (none,) = audit_tables(tmp_path, AuditRequest(device="NVIDIA L4")).findings
    assert none.wrong.startswith("no MoE table is for NVIDIA L4")


def test_a_name_that_is_wrong_anyhow_is_no_alias_for_the_right_one(tmp_path) -> None:
    put(tmp_path, {at(1): moe(), at(2, "nvidia_A100-SXM4-80GB"): moe(), at(3, "nvidia_A100-SXM4-80GB"): moe()})
    found = [(one.file, one.fault) for one in audit_tables(tmp_path).findings]
    assert found == [(at(number, "nvidia_A100-SXM4-80GB"), Fault.UNREACHABLE) for number in (2, 3)]


def test_sizes_and_products_that_are_asked_for_and_not_there_are_named(tmp_path) -> None:
    put(tmp_path, {H100: moe(rows((1, 4, 16))), "tunableop_results0.csv": csv()})
    shapes = [*findings.parse_shapes("E=128,N=192,M=4,33,500"), *findings.parse_shapes("E=8,N=64,M=1")]
    shapes += [RequestedShape(call=(OP, PARAMS)), RequestedShape(call=(OP, "tn_1_1_1"))]
    said = audit_tables(tmp_path, AuditRequest(tuple(shapes))).findings
    assert [(one.file, one.row, one.fault, one.severity) for one in said] == [
        (".", "", Fault.UNTUNED, Severity.ERROR),
        (".", "", Fault.UNTUNED, WARNING),
        (H100, "M=16", Fault.FAR, WARNING),
    ]
    assert "33, 500 tokens" in said[2].wrong


def test_a_folder_without_tables_is_an_error_and_other_files_are_passed_over(tmp_path) -> None:
    others = {"package.json": "{}", "broken.json": "{", "people.csv": "a,b,c,d\n"}
    others["tunableop_untuned0.csv"] = f"{OP},{PARAMS}\n"
    others["N=512,K=7168,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json"] = moe()
    put(tmp_path, others)
    os.mkfifo(tmp_path / "pipe.json")
    report = audit_tables(tmp_path)
    assert [(one.file, one.severity) for one in report.findings] == [(".", Severity.ERROR)]
    assert (report.tables, len(report.passed_over)) == (0, 5)
    with pytest.raises(WireError, match="neither a folder nor a file"):
        audit_tables(tmp_path / "pipe.json")


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("a.txt", "# sizes\n64\nM=1,2\n\nE=8,N=2,M=3\n", [{"M": 64}, {"M": 1}, {"M": 2}, {"E": 8, "N": 2, "M": 3}]),
        ("b.json", '[1, {"M": 2}]', [{"M": 1}, {"M": 2}]),
        ("wants.json", '[{"key": {"signature": {"dims": {"M": 3, "K": 4}}}, "calls": 7}]', [{"M": 3, "K": 4}]),
        ("c.csv", f"{OP},{PARAMS},more, of it\n", [(OP, PARAMS)]),
    ],
)  # fmt: skip
def test_shapes_are_read_from_lists_and_traces(name, text, meant, tmp_path) -> None:
    (tmp_path / name).write_text(text)
    assert [shape.call or shape.dims for shape in findings.read_shapes(tmp_path / name)] == meant


@pytest.mark.parametrize("text", ["M", "M=x", "M=-1", "=3", "M=" + ",".join("1" * 400), "[1.5]", '["x"]', "[{}]", "{}"])
def test_what_is_no_list_of_shapes_is_refused(text, tmp_path) -> None:
    many = text if len(text) < 100 else f"{text},K={text[2:]},N={text[2:]}"
    path = tmp_path / ("x.json" if text[0] in "[{" else "x.txt")
    path.write_text(many)
    with pytest.raises(WireError):
        findings.read_shapes(path)


def run(*arguments):
    done = CliRunner().invoke(audit, list(map(str, arguments)))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_the_command_prints_a_table_and_fails_on_errors_alone(tmp_path) -> None:
    put(tmp_path, {H100: moe()})
    done = run(tmp_path, "--shapes", "M=1,2,4")
    assert (done.exit_code, done.output) == (0, "1 table: 0 errors, 0 warnings\n")
    done = run(tmp_path, "--shapes", "M=9000", "--versions", "triton=3.4.0")
    assert done.exit_code == 0
    assert done.output.splitlines()[1].split()[:2] == ["warning", "far"]
    put(tmp_path, {BLOCKS: changed(8, num_warps=3)})
    done = run(tmp_path)
    assert done.exit_code == 1
    assert "num_warps is 3, not 1, 2, 4, 8, 16 or 32" in done.output
    assert done.output.splitlines()[-1] == "2 tables: 1 error, 0 warnings"


def test_the_command_says_the_same_in_json(tmp_path) -> None:
    put(tmp_path, healthy() | {"notes.json": "{}", "E=1\x1b[31m,N=1,device_name=X.json": moe()})
    done = run(tmp_path, "--json", "--versions", "PT_VERSION=2.10.0", "--versions", "triton=3.4.0")
    said = json.loads(done.output)
    assert done.exit_code == 1
    assert (said["tables"], said["errors"], said["warnings"]) == (len(healthy()) + 1, 3, 0)
    assert said["passed_over"] == ["notes.json"]
    assert {one["fault"] for one in said["findings"]} == {"version", "unreachable"}
    assert "\x1b" not in "".join(one["file"] for one in said["findings"])
    one = next(one for one in said["findings"] if one["fault"] == "version")
    assert set(one) == {"file", "row", "severity", "fault", "wrong", "remedy"}
    assert "PT_VERSION: expected 2.10.0, the file says 2.9.1" in one["wrong"]


@pytest.mark.parametrize("arguments", [["--shapes", "nowhere.txt"], ["--shapes", "M=x"], ["--versions", "triton"]])
def test_what_cannot_be_understood_is_wrong_use(arguments, tmp_path) -> None:
    assert run(tmp_path, *arguments).exit_code == 2


READERS = {H100: moe_tables.read, "results0.csv": tunableop.read, "k.autotune.json": triton_cache.read}
WHOLE = {H100: moe().encode(), "results0.csv": csv().encode(), "k.autotune.json": autotune().encode()}


def mutated(whole):
    """A sound file with some of its bytes gone, doubled, or others in their place."""
    places = st.integers(0, len(whole))
    other = st.binary(max_size=8) | st.sampled_from([b'"', b"[", b"1e999", b"-1", b",", b"\r", b"NaN"])
    edit = st.tuples(places, st.integers(0, 12), other)

    def apply(edits):
        text = whole
        for place, length, instead in edits:
            text = text[:place] + instead + text[place + length :]
        return text

    return st.lists(edit, min_size=1, max_size=4).map(apply)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_in_a_file_it_is_read_or_refused_and_the_auditor_goes_on(name, data) -> None:
    content = data.draw(mutated(WHOLE[name]) | st.binary(max_size=200))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_bytes(content)
        with suppress(WireError):
            READERS[name](path)
        report = audit_tables(Path(place), ASKED)
        serialization.encode(report)
        assert all(one.wrong.isprintable() and one.file.isprintable() for one in report.findings)


WORDS = st.sampled_from(["BLOCK_SIZE_M", "BLOCK_SIZE_N", "num_warps", "8", "16", "key", "kwargs", "configs_timings"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", [H100, TRITON + DOWN, TRITON + SPACED, "k.autotune.json", "shapes.json"])
@settings(max_examples=100, deadline=None)
@given(content=VALUES)
@pytest.mark.slow
def test_json_of_any_shape_is_read_or_refused_and_the_auditor_goes_on(name, content) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
        with suppress(WireError):
            (READERS | {"shapes.json": findings.read_shapes}).get(name, moe_tables.read)(path)
        serialization.encode(audit_tables(Path(place), ASKED))


PIECES = ["E=8", "N=2", "device_name=", "X", ",", "[", "]", "=", "block_shape=[1, 2]", "_down", ".json"]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
@pytest.mark.slow
def test_any_name_is_understood_or_refused(name) -> None:
    try:
        title = moe_tables.parse_name(name)
    except WireError:
        return
    for tool in moe_tables.Tool:
        if (canonical := title.name(tool)) is not None:
            assert moe_tables.parse_name(canonical).name(tool) == canonical
