"""Triton's own output is executed: `triton check` says right, and names what a changed kernel does wrong."""

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("triton")
pytest.importorskip("torch")

SOFTMAX = """
import torch, triton, triton.language as tl

@triton.jit
def softmax(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    r = tl.program_id(0)
    v = tl.load(x + r * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + r * n + i, e / tl.sum(e, 0), mask=i < n)

def inputs(n=300):
    return {"x": torch.randn(5, n), "o": torch.empty(5, n), "n": n, "grid": (5,)}

def reference(x):
    return x.softmax(1)
"""


def check(folder, text, *words, monkeypatch):
    from tunewright.cli.main import command

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    path = folder / f"{folder.name}.py"
    path.write_text(text)
    arguments = ["triton", "check", f"{path}:softmax", "--config", "BLOCK=512,num_warps=4", "--json", *words]
    said = CliRunner().invoke(command, arguments)
    return said.exit_code, json.loads(said.stdout)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_healthy_kernel_is_right_in_all_orders(target, tmp_path, monkeypatch) -> None:
    code, said = check(tmp_path, SOFTMAX, "--target", target, monkeypatch=monkeypatch)
    assert (code, said["passes"], said["faults"], said["wrong"]) == (0, True, [], None)
    assert said["rung"] == "emulated"
    assert len(said["orders"]) == 3
    assert said["counters"]["load_bytes"] == 5 * 300 * 4


def test_a_wrong_mask_is_out_of_bounds_at_its_line(tmp_path, monkeypatch) -> None:
    code, said = check(
        tmp_path,
        SOFTMAX.replace("v = tl.load(x + r * n + i, mask=i < n", "v = tl.load(x + r * n + i, mask=i <= n"),
        monkeypatch=monkeypatch,
    )
    assert code == 1
    assert [fault["kind"] for fault in said["faults"]] == ["out of bounds"]
    assert said["faults"][0]["line"] == 8


def test_a_wrong_result_is_told(tmp_path, monkeypatch) -> None:
    code, said = check(tmp_path, SOFTMAX.replace("e / tl.sum(e, 0)", "e / tl.max(e, 0)"), monkeypatch=monkeypatch)
    assert code == 1
    assert "the reference gives" in said["wrong"]


def test_some_blocks_of_the_grid_are_compared_where_they_stored(tmp_path, monkeypatch) -> None:
    code, said = check(tmp_path, SOFTMAX, "--blocks", "2", monkeypatch=monkeypatch)
    assert (code, said["blocks"], said["whole"]) == (0, 2, False)


@pytest.mark.slow
def test_a_prebuild_drops_configs_whose_compiled_code_is_wrong(tmp_path, monkeypatch) -> None:
    from tunewright.cli.main import command

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "dropped.py"
    tuned = "@triton.autotune([triton.Config({'BLOCK': b}) for b in (256, 512)], key=['n'])\n@triton.jit"
    path.write_text(SOFTMAX.replace("@triton.jit", tuned))
    arguments = ["triton", "prebuild", f"{path}:softmax", "--targets", "sm_80", "--signature", "*fp32,*fp32,i32"]
    ran = CliRunner().invoke(command, [*arguments, "--check", "--json"])
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    by_block = {row["config"]["BLOCK"]: row for row in said["rows"]}
    assert by_block[512]["keep"]
    assert not by_block[256]["keep"], "rows of 300 do not fit a block of 256"
    assert by_block[256]["by"] == "emulator"
    assert "wrong" in by_block[256]["reasons"][0]
    unchecked = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    assert all(row["keep"] for row in unchecked["rows"]), "without --check nothing is executed"
