"""Models compiled in the way that wins, with the real compiler: slow."""

import copy
import re

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from tunewright.backends.host import cpu
from tunewright.cli.explain import explain
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config
from tunewright.torch import compile, decisions
from tunewright.torch.diagnostics.numerics import relative_error
from tunewright.torch.inductor.kernel_names import decision_of

pytestmark = pytest.mark.slow

CHOSEN = {"graph *": {"freezing": True, "products": "chosen"}}


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()


def code_of(call):
    """The C++ that was written while something was called first."""
    from torch._inductor.utils import run_and_get_code

    _, codes = run_and_get_code(call)
    return "\n".join(codes)


def test_a_graph_is_raced_once_and_what_won_is_used_without_measuring(tmp_path):
    x, place = torch.randn(16, 64), str(tmp_path / "store.sqlite")
    first = Session(store=place, mode="tune", cache=str(tmp_path))
    with torch.no_grad():
        tuned = compile(small(), session=first, budget="3")
        result = tuned(x)
    (decided,) = decisions(tuned).values()
    assert first.counts["measurements"] == 3
    assert decided.evidence.over_default is not None
    torch.compiler.reset()
    second = Session(store=place, mode="strict", cache=str(tmp_path))
    with torch.no_grad():
        torch.testing.assert_close(compile(small(), session=second)(x), result)
    assert (second.counts["measurements"], second.counts["exact"]) == (0, 1)


def test_products_are_raced_remembered_and_each_kernel_leads_to_its_decision(tmp_path):
    x, place = torch.randn(16, 64), str(tmp_path / "store.sqlite")
    session = Session(store=place, mode="tune", cache=str(tmp_path))
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU()).eval()
    with torch.no_grad():
        tuned = compile(model, session=session, overrides=CHOSEN, each="2")
        torch.testing.assert_close(tuned(x), model(x))
    raced = decisions(tuned)["matmul 0"]
    assert session.counts["measurements"] == 2
    templated = {VARIANT: "drawn", "micro": "FP32Vec", "register": "8x32x1", "cache": "auto", "slices": 1}
    session.store.put(raced.replace(config=Config({**templated, "prefetch": False})))
    torch.compiler.reset()
    with torch.no_grad():
        again = compile(model, session=session, overrides=CHOSEN)
        code = code_of(lambda: again(x))
        torch.testing.assert_close(again(x), model(x))
    assert session.counts["measurements"] == 2
    assert "// FP32Vec 8x32x1" in code
    names = set(re.findall(r"cpp_fused_\w+", code))
    (name,) = [name for name in names if decision_of(name) == raced.key.digest[:10]]
    told = CliRunner().invoke(explain, ["--kernel", name, "--store", place])
    assert told.exit_code == 0, told.output
    assert "torch.matmul" in told.output


def test_a_weight_that_is_written_to_after_freezing_counts():
    model, x = small(), torch.randn(16, 64)
    compiled = compile(model, session=Session(mode="off"), overrides={"graph *": {"freezing": True}})
    with torch.no_grad():
        compiled(x)
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))


def test_dynamic_sizes_are_compiled_once_for_all(tmp_path):
    model = small()
    session = Session(store=str(tmp_path / "store.sqlite"), mode="tune", cache=str(tmp_path))
    compiled = compile(model, session=session, dynamic=True, overrides={"graph *": {"freezing": True}})
    with torch.no_grad():
        for rows in (16, 24, 9):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(compiled(x), model(x))
    assert list(decisions(compiled)) == ["graph Sequential 1"]


def test_padded_products_compute_the_same():
    model, x = nn.Sequential(nn.Linear(33, 65), nn.ReLU(), nn.Linear(65, 17)).eval(), torch.randn(5, 33)
    told = {"graph *": {"freezing": True, "padding": True}, "padding *": {"columns": 16, "depth": 1}}
    compiled = compile(model, session=Session(mode="off"), overrides=told)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert [name for name in decisions(compiled) if name.startswith("padding")] == [
        "padding 5x65x33",
        "padding 5x17x65",
    ]


class Scaled(nn.Linear):
    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight.t(), alpha=3)


@pytest.mark.skipif("avx512vl" not in cpu().features, reason="our microkernel is for AVX-512")
@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-6), (torch.bfloat16, 6e-3)])
@pytest.mark.parametrize("kind", [nn.Linear, Scaled])
def test_our_microkernel_computes_sizes_that_fill_no_block(kind, dtype, off):
    model, x = kind(300, 96).eval().to(dtype), torch.randn(13, 300).to(dtype)
    told = {**CHOSEN, "matmul *": {"variant": "drawn", "micro": "Own512", "register": "8x48x1"}}
    compiled = compile(model, session=Session(mode="off"), overrides=told)
    with torch.no_grad():
        code = code_of(lambda: compiled(x))
        right = copy.deepcopy(model).double()(x.double())
        assert relative_error([compiled(x)], [right]) < off
    assert "// Own512 8x48x1" in code
