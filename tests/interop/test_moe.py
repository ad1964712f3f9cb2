"""MoE tables of vLLM and SGLang: their names, there and back byte for byte, nearest rows as they take them."""

import json

import pytest
from foreign import AMD, DOWN, H100, MI300, SIZES, SPACED, config, rows
from foreign import moe as text

from tunewright.errors import WireError
from tunewright.interop import moe
from tunewright.interop.moe import MoeTable, TableName, Tool
from tunewright.model.decision import Decision
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.spaces.config import Config

NAMES = [
    (TableName(128, 192, "NVIDIA_H100_80GB_HBM3"), H100, H100),
    (TableName(8, 7168, "AMD_MI300X", "fp8_w8a8"), *["E=8,N=7168,device_name=AMD_MI300X,dtype=fp8_w8a8.json"] * 2),
    (TableName(257, 256, "NVIDIA_H20-3e", "fp8_w8a8", (128, 128)), SPACED.replace(", 128]", ",128]"), SPACED),
    (TableName(257, 256, "NVIDIA_H20-3e", "fp8_w8a8", (128, 128), down=True), None, DOWN),
    (TableName(1, 2, "X", "i", per_channel=True), None, "E=1,N=2,device_name=X,dtype=i,per_channel_quant=True.json"),
    (
        TableName(1, 2, "X", "int8_w8a8", (64, 32), per_channel=True, down=True),
        None,
        "E=1,N=2,device_name=X,dtype=int8_w8a8,block_shape=[64, 32],per_channel_quant=True_down.json",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("title", "vllm", "sglang"), NAMES)
def test_each_tool_has_its_own_name_for_a_table_and_both_are_read_back(title, vllm, sglang) -> None:
    assert (title.name(Tool.VLLM), title.name(Tool.SGLANG)) == (vllm, sglang)
    for name in filter(None, (vllm, sglang)):
        assert moe.parse_name(name) == title


def test_device_names_are_made_part_of_a_file_name_as_each_tool_does_it() -> None:
    assert {moe.device_name("NVIDIA H100 80GB HBM3", tool) for tool in Tool} == {"NVIDIA_H100_80GB_HBM3"}
    assert moe.device_name("NVIDIA H200 NVL", Tool.VLLM) == "NVIDIA_H200"
    assert moe.device_name("NVIDIA H200 NVL", Tool.SGLANG) == "NVIDIA_H200_NVL"
    assert moe.device_name("NVIDIA GH200 480GB", Tool.VLLM) == "NVIDIA_GH200_480GB"
    assert moe.device_name("AMD Radeon 780M / Pro", Tool.VLLM) == "AMD_Radeon_780M_Pro"


def test_a_name_in_any_order_and_spelling_is_understood_so_that_the_right_one_can_be_said() -> None:
    title = moe.parse_name("N=192, e=0128,device_name=NVIDIA H100 80GB HBM3.json")
    assert title.name(Tool.VLLM) == H100


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "E=8,N=2.json",
        "E=8,device_name=X.json",
        "E=8,N=-1,device_name=X.json",
        "E=0,N=1,device_name=X.json",
        "E=8,N=2,N=3,device_name=X.json",
        "E=8,N=2,device_name=X,use_cuda=True.json",
        "E=8,N=2,device_name=X,block_shape=128.json",
        "E=8,N=2,device_name=X,block_shape=[128].json",
        "E=" + "9" * 300 + ",N=2,device_name=X.json",
        "E=٣,N=2,device_name=X.json",
        "",
    ],
)
def test_a_name_that_says_too_little_or_something_else_is_refused(name) -> None:
    with pytest.raises(WireError):
        moe.parse_name(name)


@pytest.mark.parametrize("tool", Tool)
def test_a_file_of_either_tool_comes_back_byte_for_byte(tool, tmp_path) -> None:
    inside = tmp_path / ("triton_3_4_0" if tool is Tool.SGLANG else "")
    inside.mkdir(exist_ok=True)
    said = rows(USE_TMA=False) if tool is Tool.SGLANG else {"triton_version": "3.4.0", **rows()}
    path = inside / (DOWN if tool is Tool.SGLANG else H100)
    path.write_text(text(said))
    table = moe.read(path)
    assert table.triton == "3.4.0"
    assert list(table.rows) == list(SIZES)
    (tmp_path / "again").mkdir()
    again = moe.write(table, tmp_path / "again", tool)
    assert again.relative_to(tmp_path / "again") == path.relative_to(tmp_path)
    assert again.read_bytes() == path.read_bytes()
    assert moe.read(again) == table


def test_what_only_amd_has_comes_back_byte_for_byte_too(tmp_path) -> None:
    path = tmp_path / MI300
    path.write_text(text(rows(**AMD)))
    (tmp_path / "again").mkdir()
    assert moe.write(moe.read(path), tmp_path / "again", Tool.VLLM).read_bytes() == path.read_bytes()


def test_the_nearest_row_is_the_one_that_both_tools_take(tmp_path) -> None:
    (tmp_path / H100).write_text(text({str(size): config(size) for size in (64, 16, 1, 4096)}))
    table = moe.read(tmp_path / H100)
    looked_up = {int(key): value for key, value in json.loads((tmp_path / H100).read_text()).items()}
    for tokens in [1, 8, 9, 15, 39, 40, 41, 2079, 2080, 2081, 10**6]:
        theirs = min(looked_up.keys(), key=lambda x: abs(x - tokens))
        assert table.nearest(tokens) == (theirs, Config(looked_up[theirs]))
    assert table.nearest(40)[0] == 64  # as far from 16, which comes later in the file


def test_rows_are_offered_as_configs_of_sizes_on_a_device(tmp_path) -> None:
    (tmp_path / H100).write_text(text())
    first, *_ = rows = list(moe.read(tmp_path / H100).foreign_rows())
    assert len(rows) == len(SIZES)
    assert (first.dims, first.device) == ({"E": 128, "N": 192, "M": 1}, "NVIDIA_H100_80GB_HBM3")
    assert first.config == Config(config(1))


def decided(tokens, settings, **dims):
    signature = Signature(("float16[M,K]",), {"M": tokens, **dims})
    return Decision(Key("moe", "digest", signature, Device("cuda", "H100", "sm_90")), Config(settings))


def test_decisions_become_a_table_that_vllm_would_find(tmp_path) -> None:
    title = TableName(128, 192, "NVIDIA H100 80GB HBM3")
    path = moe.write(
        moe.table_from_decisions(title, [decided(64, config(64)), decided(1, config(1), N=192)]), tmp_path, Tool.VLLM
    )
    assert path.name == H100
    assert json.loads(path.read_text()) == {"1": config(1), "64": config(64)}


@pytest.mark.parametrize(
    ("decisions", "says"),
    [
        ([decided(1, config(1)), decided(1, config(4096))], "two decisions for M=1 differ"),
        ([decided(1, config(1), N=64)], "is not for E=128, N=192"),
        ([Decision(Key("k", "d", Signature(("int=1",)), Device("cpu", "x", "y")), Config(a=1))], "no dimension M"),
    ],
)
def test_decisions_that_do_not_make_one_table_are_refused(decisions, says) -> None:
    with pytest.raises(WireError, match=says):
        moe.table_from_decisions(TableName(128, 192, "X"), decisions)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "should be an object"),
        ({"8": 7}, "M=8 should be an object"),
        ({"eight": config(8)}, "is not a number of tokens"),
        ({"9" * 5000: config(8)}, "is not a number of tokens"),
        ({"0": config(8)}, "which is never looked up"),
        ({"8": config(8), "08": config(8)}, "two rows for M=8"),
        ({"8": {"BLOCK_SIZE_M": [16]}}, "should be a number"),
        ({"8": {"a b": 1}}, "should be a name"),
        ({"8": {f"k{i}": 1 for i in range(300)}}, "at most 256"),
        ("{", "is not JSON"),
        ('{"8": {}, "8": {}}', "has '8' twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_table_is_refused_with_what_is_wrong(content, says, tmp_path) -> None:
    (tmp_path / H100).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(WireError, match=says):
        moe.read(tmp_path / H100)


def test_a_table_that_a_tool_has_no_name_for_or_a_name_with_a_path_is_not_written(tmp_path) -> None:
    with pytest.raises(WireError, match="write it for SGLang"):
        moe.write(MoeTable(TableName(1, 1, "X", down=True), {}), tmp_path, Tool.VLLM)
    with pytest.raises(WireError, match="cannot be part of a file name"):
        moe.write(MoeTable(TableName(1, 1, "../../X"), {}), tmp_path, Tool.SGLANG)
    for version in ("/../../3.4.0", "3\0"):
        with pytest.raises(WireError, match="cannot be part of a file name"):
            moe.write(MoeTable(TableName(1, 1, "X"), {}, version), tmp_path, Tool.SGLANG)
    with pytest.raises(WireError, match="cannot write"):
        moe.write(MoeTable(TableName(1, 1, "X" * 500), {}), tmp_path, Tool.VLLM)
    with pytest.raises(WireError, match="cannot make the folder"):
        moe.write(MoeTable(TableName(1, 1, "X"), {}, "3" * 500), tmp_path, Tool.SGLANG)
    with pytest.raises(WireError, match="by the version of Triton; export decisions of one version"):
        moe.write(MoeTable(TableName(1, 1, "X"), {}), tmp_path, Tool.SGLANG)
    assert not list(tmp_path.iterdir())
    with pytest.raises(WireError, match="has no rows"):
        MoeTable(TableName(1, 1, "X"), {}).nearest(8)
