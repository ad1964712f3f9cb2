import json

import pytest
from click.testing import CliRunner

from tunewright.cli.main import command
from tunewright.errors import ScheduleError

pytest.importorskip("torch_mlir")

KERNEL = """
import tunewright as tw
from tunewright.mlir import Mlir, payloads
from tunewright.mlir.gemm_plans import gemm_plan

payload = payloads.matmul(24, 64, 16, after="relu")
plan = gemm_plan(payload)
schedule = plan.schedule(plan.space[0])

@tw.tune(plan.space, backend=Mlir(payload, plan), reference=payload.reference)
def product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(KERNEL)
    return path


def run(*words):
    return CliRunner().invoke(command, ["mlir", "steps", *map(str, words)])


def test_each_step_is_shown_as_what_it_changed(file) -> None:
    done = run(f"{file}:product", "--config", "variant=packed rows,mr=8,nr=32,kr=8,pk=8")
    assert done.exit_code == 0, done.output
    assert "step 2 (pack)  +" in done.output
    assert "+    %pack = linalg.pack" in done.output
    assert done.output.index("(bufferize)") < done.output.index("(lower)")


def test_a_script_and_a_payload_in_files_are_shown_too_and_as_json(file, tmp_path) -> None:
    from tunewright.mlir import payloads
    from tunewright.mlir.schedule import Schedule

    schedule = Schedule()
    schedule.tile(schedule.match("linalg.matmul")[0], [4, 4])
    (tmp_path / "tile.mlir").write_text(str(schedule))
    (tmp_path / "payload.mlir").write_text(payloads.matmul(8, 8, 8).text)
    stages = json.loads(run(tmp_path / "tile.mlir", tmp_path / "payload.mlir", "--json").output)
    assert [stage["name"] for stage in stages][-1] == "step 3 (tile_using_for)"
    assert "scf.for" in stages[-1]["code"]
    assert "scf.for" not in stages[-2]["code"]
    both = json.loads(run(f"{file}:schedule", f"{file}:payload", "--json").output)
    assert both[0]["name"] == "payload"


def test_the_page_has_steps_and_code_and_needs_nothing_else(file, tmp_path) -> None:
    page = tmp_path / "steps.html"
    done = run(f"{file}:product", "--html", page)
    assert "steps written" in done.output
    text = page.read_text()
    assert text.count("<section>") == text.count('<a href="#">') > 10
    assert "http" not in text
    assert "tensor&lt;24x64xf32&gt;" in text


def test_the_steps_before_one_that_fails_are_shown(tmp_path) -> None:
    from tunewright.mlir import payloads
    from tunewright.mlir.schedule import Schedule

    schedule = Schedule()
    (product,) = schedule.match("linalg.matmul")
    schedule.tile(product, [0, 0, 4], "forall")
    (tmp_path / "tile.mlir").write_text(str(schedule))
    (tmp_path / "payload.mlir").write_text(payloads.matmul(8, 8, 8).text)
    done = run(tmp_path / "tile.mlir", tmp_path / "payload.mlir")
    assert isinstance(done.exception, ScheduleError)
    assert "step 3 (tile_using_forall): parallel iterations write to the same place" in str(done.exception)
    assert "step 2 (split_handle)" in done.output


def test_wrong_use_is_said(file) -> None:
    assert "no file nowhere" in run("nowhere", "nothing").output
    assert "name a payload" in run(f"{file}:schedule").output
    assert "is a Payload, not a schedule" in run(f"{file}:payload").output
    assert "is a Schedule, not a payload" in run(f"{file}:schedule", f"{file}:schedule").output


MODEL = """
func.func @scaled(%x: tensor<16x32xf32>, %y: tensor<32x32xf32>) -> tensor<16x32xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<16x32xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<16x32xf32>) -> tensor<16x32xf32>
  %product = linalg.matmul ins(%x, %y : tensor<16x32xf32>, tensor<32x32xf32>) outs(%fill : tensor<16x32xf32>)
    -> tensor<16x32xf32>
  %sum = linalg.add ins(%product, %x : tensor<16x32xf32>, tensor<16x32xf32>) outs(%empty : tensor<16x32xf32>)
    -> tensor<16x32xf32>
  return %sum : tensor<16x32xf32>
}
"""


@pytest.mark.slow
def test_a_file_with_mlir_is_tuned_and_its_schedule_is_written_read_back_and_explained(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(tmp_path / "cache"))
    model, schedule, python = (tmp_path / name for name in ("model.mlir", "schedule.mlir", "kernel.py"))
    model.write_text(MODEL)
    words = ["mlir", "tune", str(model), "--budget", "6", "--schedule", str(schedule), "--python", str(python)]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert "def scaled(" in python.read_text()
    said = CliRunner().invoke(command, ["mlir", "explain", str(schedule)])
    assert "put tensors into buffers" in said.output
    steps = run(schedule, model, "--json")
    assert steps.exit_code == 0, steps.output
    assert "memref" in json.loads(steps.output)[-1]["code"]


def test_what_is_no_file_with_mlir_is_refused_with_what_to_do(tmp_path) -> None:
    missing = CliRunner().invoke(command, ["mlir", "tune", str(tmp_path / "none.mlir")])
    assert "give a file with MLIR, or FILE.py:NAME" in missing.output
    for option in (["--last-digits"], ["--threads", "2"]):
        options = CliRunner().invoke(command, ["mlir", "tune", "kernels.py:f", *option])
        assert "are for one FILE.mlir" in options.output


def test_a_script_in_a_file_is_explained(tmp_path) -> None:
    from tunewright.mlir.schedule import Schedule

    schedule = Schedule()
    schedule.tile(schedule.match("linalg.matmul")[0], [4, 8])
    (tmp_path / "tile.mlir").write_text(str(schedule))
    said = CliRunner().invoke(command, ["mlir", "explain", str(tmp_path / "tile.mlir"), "--json"])
    assert json.loads(said.output) == [
        "  1. find linalg.matmul",
        "  2. take the operations found one by one, in program order",
        "  3. tile by [4, 8], with a loop for each size above 0",
    ]
