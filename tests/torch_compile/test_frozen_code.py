"""Frozen graphs that are kept on disk: loaded as they were compiled, and never where something differs."""

import fcntl
import os
import re

import msgspec
import pytest
import torch
from torch import nn

from tunewright.errors import BackendError
from tunewright.session import Session
from tunewright.torch import compile, frozen_code
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.frozen_code import FrozenCode, FrozenHeader
from tunewright.torch.inductor import constants, graphs
from tunewright.torch.inductor.compiled_code import InstructionSet, LoadedCode
from tunewright.torch.inductor.constants import MklWeight, SharedWeight, TensorLayout

ROWS = 16
PRODUCT = """
import torch

def call(args):
    x, = args
    args.clear()
    return (torch.ops.mkl._mkl_linear.default(torch.relu(x), packed, weight, None, 16) + shift,)
"""
"""Code as PyTorch generates it for the graph below, without kernels in C++."""


def product(x, weight):
    return (nn.functional.linear(torch.relu(x), weight) + 0.5,)


def recall(parts):
    return not parts


class Kept:
    """A frozen graph with hand-written code, and its file."""

    def __init__(self, tmp_path, weight=None, *names):
        weight = torch.randn(96, 64) if weight is None else weight
        self.x, self.weight = torch.randn(ROWS, 64), nn.Parameter(weight, requires_grad=False)
        self.captured = CapturedGraph(torch.fx.symbolic_trace(product), [self.x, self.weight])
        self.code = FrozenCode(self.captured, self.captured.frozen(), {}, names)
        self.source = tmp_path / "code.py"
        self.source.write_text(PRODUCT)

    def save(self, parts=(), **changed):
        packed = torch.ops.mkl._mkl_reorder_linear_weight(self.weight, ROWS)
        made = {"packed": packed, "weight": self.weight, "shift": torch.full((96,), 0.5)}
        self.code.save([LoadedCode(self.source, made | changed)], dict(parts))

    def load(self, huge=False):
        return self.code.load(recall, huge=huge)

    @property
    def path(self):
        return self.code._path

    @property
    def header(self):
        return self.read()[0]

    def read(self):
        content = self.path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        return msgspec.msgpack.decode(content[8 : 8 + length], type=FrozenHeader), content[8 + length :]

    def write(self, header, stored):
        sealed = constants.hash_pieces([header.source.encode(), stored])
        encoded = msgspec.msgpack.encode(msgspec.structs.replace(header, digest=sealed))
        self.path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + stored)


@pytest.fixture
def no_instructions(monkeypatch):
    """PyTorch's own search for the instruction set takes a dozen processes."""
    plain = InstructionSet("INVALID_VEC_ISA", {})
    monkeypatch.setattr(InstructionSet, "picked", lambda _: plain)


@pytest.fixture
def kept(tmp_path, no_instructions):
    made = Kept(tmp_path)
    made.save()
    return made


@pytest.mark.parametrize("huge", [False, True])
def test_a_graph_is_loaded_with_the_weights_of_this_process_and_packs_them_again(kept, huge):
    described = kept.header.constants
    assert described["packed"] == MklWeight("weight", ROWS)
    assert described["weight"] == SharedWeight("frozen_1")
    assert isinstance(described["shift"], TensorLayout)
    assert kept.path.stat().st_size < kept.weight.nbytes
    for _ in range(20):  # what MKL packs holds addresses: its bytes at another place end the process
        loaded = kept.load(huge)
        (result,) = loaded(kept.x)
        torch.testing.assert_close(result, product(kept.x, kept.weight)[0])


@pytest.mark.parametrize("text", ["_mkl_linear(arg3_1, p, w, nullptr, 16L, &buf0_handle));", PRODUCT.split("\n")[6]])
def test_calls_of_mkl_are_found_in_python_and_in_cpp(text):
    (found,) = constants._MKL_CALL.findall(text)
    assert found in (("p", "w", "16"), ("packed", "weight", "16"))


def test_what_mkl_packs_in_a_call_that_is_not_found_is_not_kept(tmp_path, no_instructions):
    kept = Kept(tmp_path)
    kept.source.write_text(PRODUCT.replace("_mkl_linear.default", "_another.default"))
    kept.save()
    assert not kept.path.exists()


def test_a_weight_with_other_values_has_another_file(tmp_path, kept):
    changed = kept.weight.detach().clone()
    changed[95, 63] += 1
    assert Kept(tmp_path, changed).load() is None
    assert Kept(tmp_path, kept.weight.detach().clone()).load() is not None
    assert Kept(tmp_path, kept.weight.detach().clone(), "another config").load() is None


def test_a_decision_that_changed_is_compiled_anew_and_the_file_stays(kept):
    assert kept.code.load(lambda parts: False, huge=False) is None
    assert kept.load() is not None


@pytest.mark.parametrize("place", [0, 9, 60, -1])
def test_a_damaged_file_is_removed(kept, place):
    content = bytearray(kept.path.read_bytes())
    content[place] ^= 0xFF
    kept.path.write_bytes(content)
    assert kept.load() is None
    assert not kept.path.exists()


@pytest.mark.parametrize("cut", [0, 5, 100])
def test_a_file_that_was_cut_off_is_removed(kept, cut):
    kept.path.write_bytes(kept.path.read_bytes()[:cut])
    assert kept.load() is None
    assert not kept.path.exists()


def test_a_file_with_wrong_results_is_removed_though_its_digest_is_right(kept):
    header, stored = kept.read()
    kept.write(msgspec.structs.replace(header, source=header.source.replace("relu", "tanh")), stored)
    assert kept.load() is None
    assert not kept.path.exists()


def test_a_file_for_an_instruction_set_that_is_not_known_is_removed(kept):
    header, stored = kept.read()
    isa = msgspec.structs.replace(header.isa, name="avx4096")
    kept.write(msgspec.structs.replace(header, isa=isa), stored)
    assert kept.load() is None
    assert not kept.path.exists()


def test_a_file_that_others_can_write_is_not_loaded(kept):
    kept.path.chmod(0o666)
    assert kept.load() is None


def test_a_process_that_ended_while_it_loaded_a_file_is_found_out(kept):
    mark = kept.path.with_suffix(".loading")
    mark.touch()
    assert kept.load() is None
    assert not kept.path.exists()
    assert not mark.exists()


def test_a_process_that_still_loads_a_file_does_not_keep_others_from_it(kept):
    mark = kept.path.with_suffix(".loading")
    with mark.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert kept.load() is not None
        assert mark.exists()


def test_a_process_that_is_killed_by_the_code_leaves_its_mark(kept):
    header, stored = kept.read()
    kept.write(
        msgspec.structs.replace(header, source=header.source.replace("import torch", "import os, torch\nos._exit(9)")),
        stored,
    )
    child = os.fork()
    if not child:
        kept.load()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert kept.load() is None
    assert not kept.path.exists()


def test_files_that_were_not_used_for_longest_make_room(tmp_path, monkeypatch, no_instructions):
    oldest, older, newest = (Kept(tmp_path, None, name) for name in ("oldest", "older", "newest"))
    for age, kept in enumerate((older, oldest)):
        kept.save()
        os.utime(kept.path, (9 - age, 9 - age))
    monkeypatch.setattr(frozen_code, "MAX_BYTES", 2 * older.path.stat().st_size + 100)
    newest.save()
    assert [kept.path.exists() for kept in (oldest, older, newest)] == [False, True, True]


def test_what_a_killed_process_was_writing_makes_room_too(tmp_path, monkeypatch, no_instructions):
    kept = Kept(tmp_path)
    kept.save()
    torn = kept.path.with_name(f".{kept.path.name}.4711.1.part")
    torn.write_bytes(bytes(2 * kept.path.stat().st_size))
    os.utime(torn, (1, 1))
    monkeypatch.setattr(frozen_code, "MAX_BYTES", 2 * kept.path.stat().st_size + 100)
    kept.save()
    assert (torn.exists(), kept.path.exists()) == (False, True)


def test_a_file_that_would_take_all_the_room_is_not_written(tmp_path, monkeypatch, no_instructions):
    monkeypatch.setattr(frozen_code, "MAX_BYTES", 500)
    kept = Kept(tmp_path)
    kept.save()
    assert not kept.path.exists()


@pytest.mark.parametrize("value", [3, torch.eye(3).to_sparse()])
def test_a_constant_that_cannot_be_written_is_not_kept(tmp_path, value, no_instructions):
    kept = Kept(tmp_path)
    kept.save(shift=value)
    assert not kept.path.exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_onednn_has_packed_is_the_same_at_another_address(dtype):
    image, weight = torch.randn(2, 8, 12, 12, dtype=dtype), torch.randn(16, 8, 3, 3, dtype=dtype)
    arguments = [1, 1], [1, 1], [1, 1], 1
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), *arguments, image.shape)
    described, pieces = constants.describe_constants("", {"packed": packed}, {})
    stored = b"".join(pieces)
    for shift in (0, 64, 4096):
        room = torch.empty(shift + len(stored), dtype=torch.uint8)[shift:]
        constants.bytes_of(room, len(stored))[:] = stored
        made = constants.make_constants(described, {}, room)["packed"]
        run = torch.ops.mkldnn._convolution_pointwise
        same, right = (run(image, w, None, *arguments, "none", [], "") for w in (made, packed))
        assert torch.equal(same, right)


def test_strides_and_empty_tensors_come_back(tmp_path):
    values = {
        "a": torch.arange(12.0).view(3, 4).t(),
        "b": torch.empty(0, 3),
        "c": torch.tensor(7),
        "d": torch.ones(1, 5),
    }
    described, pieces = constants.describe_constants("", values, {})
    stored = b"".join(pieces)
    block = torch.frombuffer(bytearray(stored), dtype=torch.uint8)
    made = constants.make_constants(described, {}, block)
    for name, value in values.items():
        assert torch.equal(made[name], value)
        assert made[name].stride() == value.stride()


def scaled_by_own_function(x, weight):
    return (own_function(x) * weight,)


@torch.fx.wrap
def own_function(x):
    return x + 1


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("links", torch.eye(64).to_sparse())

    def forward(self, x):
        return (torch.sparse.mm(self.links, x),)


@pytest.mark.parametrize(
    ("graph", "inputs", "reason"),
    [
        (scaled_by_own_function, [torch.ones(3), nn.Parameter(torch.ones(3), requires_grad=False)], "own_function"),
        (Sparse(), [torch.ones(64, 3)], "Sparse|strided|file|layout"),
        (product, [(same := torch.ones(16, 64)), same], "share memory"),
    ],
)
def test_a_graph_that_has_no_file_says_why_and_is_compiled_all_the_same(graph, inputs, reason):
    captured = CapturedGraph(torch.fx.symbolic_trace(graph), inputs)
    code = FrozenCode(captured, captured.frozen(), {}, [])
    assert re.search(reason, code.why_not)
    assert code.load(recall, huge=False) is None
    code.save([], {})


def test_a_constant_of_an_unknown_kind_is_named():
    with pytest.raises(BackendError, match="shift"):
        constants.describe_constants("", {"shift": 3}, {})


def small():
    torch.manual_seed(0)
    layers = nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32, bias=False), nn.LayerNorm(32)
    return nn.Sequential(*layers).eval()


def convolutions():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3)).eval()


def call_anew(model, x, **options):
    """Calls a model that is compiled as in a new process."""
    torch.compiler.reset()
    frozen = {"graph *": {"freezing": True, **options}}
    compiled = compile(model, session=Session(mode="off"), overrides=frozen)
    with torch.no_grad():
        return compiled, compiled(x)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"wrapper": "cpp"}, {"lanes": 256}, {"pages": "huge"}], ids=str)
@pytest.mark.parametrize("make", [small, convolutions])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_is_compiled_once_for_all_processes(make, options, dtype, monkeypatch):
    model = make().to(dtype)
    x = (torch.randn(16, 64) if make is small else torch.randn(2, 3, 12, 12)).to(dtype)
    _, first = call_anew(model, x, **options)
    with monkeypatch.context() as patched:
        patched.setattr(graphs, "compile_graph", lambda *_: pytest.fail("it was compiled again"))
        compiled, second = call_anew(make().to(dtype), x, **options)
        assert torch.equal(first, second)
        with torch.no_grad():
            assert torch.equal(compiled(x), first)
    with torch.no_grad():
        compiled_again, _ = call_anew(model, x, **options)
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled_again(x), model(x), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    "call",
    [
        "buf2 = torch.ops.mkl._mkl_linear.default(reinterpret_tensor(buf1, (4, 2)), packed, weight, None, 4)",
        "aoti_torch_cpu__mkl_linear(buf1, packed, weight, 0, 4L, &buf2_handle)",
    ],
    ids=["Python", "C++"],
)
def test_weights_that_mkl_has_packed_are_not_read(call) -> None:
    made = {"packed": torch.ones(2), "weight": torch.ones(3), "table": torch.ones(4), "count": 3}
    assert [len(tensor) for tensor in constants.tensors_read(call, made)] == [2, 4]
    assert [len(tensor) for tensor in constants.tensors_read("", made)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("call", "declared", "read"),
    [
        (
            "buf2 = torch.ops.mkl._mkl_linear.default(buf1, packed, weight, None, 4)",
            "weight = None  # device(type='cpu')\n    global weight\n    weight = rand_strided((3, ), (1, ))",
            "cpp_fused_sum_0(weight, buf3)",
        ),
        (
            "aoti_torch_cpu__mkl_linear(buf1, packed, weight, 0, 4L, &buf2_handle)",
            "// weight device\n [[maybe_unused]] auto weight = std::move(inputs[1]);\n"
            "constants_tensor = [packed, weight]",
            "cpp_fused_sum_0((const float*)(weight.data_ptr()), buf3);",
        ),
    ],
    ids=["Python", "C++"],
)
def test_weights_that_mkl_has_packed_are_read_where_other_code_reads_them(call, declared, read) -> None:
    made = {"packed": torch.ones(2), "weight": torch.ones(3)}
    assert [len(tensor) for tensor in constants.tensors_read(f"{declared}\n{call}\n", made)] == [2]
    assert [len(tensor) for tensor in constants.tensors_read(f"{declared}\n{call}\n{read}\n", made)] == [2, 3]
