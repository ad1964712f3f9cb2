"""Arrays of torch, JAX and other libraries as arguments and results of kernels."""

import ctypes
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import tunewright as tw
from tunewright.cases.arguments import Arguments
from tunewright.cases.foreign_arrays import from_host, host_array, to_host
from tunewright.cases.inputs import NARROW_FLOATS, Inputs, parse_dtype
from tunewright.errors import SignatureError
from tunewright.measure.case_check import CaseCheck
from tunewright.model.decision import Decision
from tunewright.model.foreign import device_of, is_foreign, library_of
from tunewright.model.signature import In, InOut, Out, Parameter, Signature
from tunewright.model.trial import Failure

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax") if "WITH_JAX" in os.environ else None  # tests/test_with_jax.py says why
with_jax = pytest.mark.skipif(jax is None, reason="runs in tests/test_with_jax.py")

DTYPES = ("float32", "float64", "int32", "bool", "bfloat16", "float8_e4m3fn", "float8_e5m2")
MAKERS = {"torch": lambda array: from_host(array, "torch", "cpu")}
if jax is not None:
    MAKERS["jax"] = lambda array: jax.device_put(array, jax.devices("cpu")[0])


@pytest.fixture(autouse=True)
def serial():
    tw.configure(pool="serial", trials=8)


def numbers(dtype="float32", shape=(6,)):
    return np.arange(np.prod(shape)).reshape(shape).astype(parse_dtype(dtype))


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_goes_to_the_host_and_back_without_a_copy(library, dtype) -> None:
    if (library, dtype) == ("jax", "float64"):
        pytest.skip("JAX has no doubles unless they are enabled")
    array = MAKERS[library](numbers(dtype))
    assert is_foreign(array)
    assert (library_of(array), device_of(array)) == (library, "cpu")
    host = host_array(array)
    assert host.dtype == parse_dtype(dtype)
    assert host_array(array).ctypes.data == host.ctypes.data
    np.testing.assert_array_equal(host.astype(float), numbers(dtype).astype(float))
    text = Signature.of([Parameter("x")], [array]).args[0]
    assert text == f"{dtype}[6]@{library}:cpu"


def test_numpy_arrays_and_plain_values_are_not_foreign() -> None:
    assert not any(map(is_foreign, [np.ones(3), np.float32(1), 3, "text", [1, 2], None]))
    assert to_host((np.ones(2), [3, "x"])) == (pytest.approx(np.ones(2)), [3, "x"])


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_recipes_make_narrow_floats_with_a_spread_of_values(dtype) -> None:
    recipe = Inputs.like([Parameter("x", In("N"))], [np.zeros(64, parse_dtype(dtype))], {"N": 64})
    (made,) = recipe.make()
    assert made.dtype == parse_dtype(dtype)
    assert np.isfinite(made.astype(float)).all()
    assert len(np.unique(made.astype(float))) > 8


@pytest.mark.parametrize("library", MAKERS)
def test_arguments_are_of_the_same_library_and_share_guarded_memory(library) -> None:
    parameters = [Parameter("x", In("N")), Parameter("n")]
    for seed in range(5):
        arguments = Arguments(parameters, [MAKERS[library](numbers()), 3], seed=seed)
        value = arguments.values[0]
        assert library_of(value) == library
        assert host_array(value).ctypes.data == arguments.arrays[0].ctypes.data
        for draw in (1, 2, 0):
            arguments.reset(draw)
            np.testing.assert_array_equal(host_array(value), arguments.pristine[0])
            assert arguments.damage() is None
        arguments.refresh(7)
        assert (host_array(value) != numbers()).any()
        np.testing.assert_array_equal(host_array(value), arguments.pristine[0])


def test_a_tensor_that_is_written_outside_or_not_at_all_is_noticed() -> None:
    parameters = [Parameter("x", In("N")), Parameter("y", Out("N"))]
    arguments = Arguments(parameters, [torch.ones(8), torch.empty(8)])
    x, y = arguments.values
    y.fill_(2)
    assert arguments.damage() is None
    assert arguments.results(None)["y"].tolist() == [2.0] * 8
    y[3] = float("nan")
    assert arguments.damage() is None  # a NaN like any other
    arguments.reset()
    y[:7] = 1
    assert "it left 1 of 8 elements of y unwritten" in arguments.damage()
    arguments.reset()
    y.fill_(1)
    x[0] = 5
    assert "it wrote to its input x" in arguments.damage()
    arguments.reset()
    y.fill_(1)
    ctypes.c_float.from_address(y.data_ptr() + y.nbytes).value = 0.0
    assert "it wrote past the end of y" in arguments.damage()


def test_what_a_launch_changes_in_a_tensor_is_restored() -> None:
    arguments = Arguments([Parameter("x", InOut("N"))], [torch.ones(4)])
    arguments.values[0].add_(1)
    restore = arguments.restorer()
    arguments.values[0].add_(1)
    restore()
    assert arguments.values[0].tolist() == [1.0] * 4


@with_jax
def test_arrays_of_jax_cannot_be_outputs() -> None:
    with pytest.raises(SignatureError, match="y is an array of JAX, which no kernel can write"):
        Arguments([Parameter("y", Out("N"))], [jax.numpy.ones(4)])


@with_jax
def test_inside_a_traced_program_nothing_is_tuned_and_what_is_stored_is_used() -> None:
    @tw.tune(tw.Space(tw.Knob("how", ["a", "b"])))
    def marked(x: tw.In("N"), *, how="a"):
        return x * (1 if how == "a" else 2)

    x = jax.numpy.ones(4)
    assert jax.jit(lambda x: marked(x) * 1)(x).tolist() == [1.0] * 4
    assert marked.session.counts["measurements"] == 0
    assert jax.jit(lambda x: marked(x, how="b"))(x).tolist() == [2.0] * 4
    marked.session.store.put(Decision(marked.problem([x]).key, tw.Config(how="b")))
    assert jax.jit(lambda x: marked(x) + 0)(x).tolist() == [2.0] * 4


def stores_of(kernel, *args):
    return {trial.config["how"]: trial for trial in kernel.session.store.trials(kernel.decide(*args).key)}


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_is_tuned_on_the_arrays_of_a_library_and_wrong_results_are_refused(library, dtype) -> None:
    kinds = []

    @tw.tune(tw.Space(tw.Knob("how", ["plain", "other", "wrong", "kept"])), name=f"scaled_{library}_{dtype}")
    def scaled(x: tw.In("N"), *, how="plain"):
        kinds.append(library_of(x))
        if how == "kept":  # what was right for the first contents is not for the next
            kinds_kept = scaled.__dict__.setdefault("kept", {})
            return kinds_kept.setdefault("result", x * 2)
        return x + x if how == "other" else x * (2 if how == "plain" else 2.2)

    x = MAKERS[library](np.linspace(1, 2, 64).astype(parse_dtype(dtype)))
    result = scaled(x)
    assert set(kinds) == {library}
    assert library_of(result) == library
    np.testing.assert_array_equal(host_array(result).astype(float), 2 * host_array(x).astype(float))
    trials = stores_of(scaled, x)
    assert trials["plain"].works
    assert trials["other"].works
    assert isinstance(trials["wrong"].outcome, Failure)
    assert isinstance(trials["kept"].outcome, Failure)
    assert scaled.decide(x).config["how"] in ("plain", "other")


def test_one_kernel_serves_numpy_and_other_libraries_with_a_decision_each() -> None:
    @tw.tune(tw.Space(tw.Knob("how", ["a", "b"])))
    def doubled(x: tw.In("N"), *, how="a"):
        return x * 2

    for x in (np.ones(8, np.float32), *(make(np.ones(8, np.float32)) for make in MAKERS.values())):
        assert type(doubled(x)) is type(x * 2)
        assert type(doubled(x)) is type(x * 2)
    texts = {str(key.signature) for key in doubled.session.store.keys("doubled")}
    assert texts == {f"N=8 (float32[N]{suffix})" for suffix in ("", *(f"@{library}:cpu" for library in MAKERS))}
    versions = [key.toolchain for key in doubled.session.store.keys("doubled")]
    assert {name for toolchain in versions for name in toolchain} >= set(MAKERS)


def test_results_in_tensors_are_compared_and_restored() -> None:
    @tw.tune(tw.Space(tw.Knob("how", ["a", "b", "short"])), reference=lambda x, y: y + 2 * x)
    def axpy(x: tw.In("N"), y: tw.InOut("N"), *, how="a"):
        if how == "short":
            y[:-1] += 2 * x[:-1]
        else:
            y.add_(x, alpha=2)

    x, y = torch.ones(16), torch.zeros(16)
    axpy(x, y)
    assert y.tolist() == [2.0] * 16
    assert not stores_of(axpy, x, y)["short"].works


def test_a_reference_gets_arrays_of_the_same_library_in_double_precision() -> None:
    got = []

    def reference(x):
        got.append(x.dtype)
        return torch.exp(x)

    @tw.tune(tw.Space(tw.Knob("how", ["a", "b"])), reference=reference)
    def exponential(x: tw.In("N"), *, how="a"):
        return torch.exp(x)

    exponential(torch.ones(8))
    assert set(got) == {torch.float64}


def test_layouts_of_tensors_are_kept_and_told_apart() -> None:
    seen = set()

    @tw.tune(tw.Space(tw.Knob("how", ["a", "b"])))
    def total(x: tw.In("M", "N"), *, how="a"):
        seen.add(x.is_contiguous())
        return x.sum(1)

    total(torch.ones(4, 6).t())
    assert seen == {False}
    total(torch.ones(6, 4))
    assert seen == {False, True}
    assert len(list(total.session.store.keys("total"))) == 2


def test_a_tensor_that_needs_gradients_is_tuned_on_plain_copies_and_launched_as_it_is() -> None:
    @tw.tune(tw.Space(tw.Knob("how", ["a", "b"])))
    def doubled(x: tw.In("N"), *, how="a"):
        return x * 2

    assert doubled(torch.ones(4, requires_grad=True)).requires_grad


def test_a_kernel_that_returns_its_argument_is_not_accused_of_reusing_memory() -> None:
    class Silent:
        seconds = 0.0

        def compare(self, content, results):
            return None

    from tunewright.cases.validation import PreparedCase

    parameters = [Parameter("x", In("N"))]
    case = PreparedCase(parameters, Arguments(parameters, [torch.ones(8)]))
    assert CaseCheck(0, [lambda x: x], {0: case}, Silent()).examine(3, 2) is None
    memory = torch.zeros(8)
    reused = CaseCheck(0, [memory.copy_], {0: case}, Silent()).examine(3, 2)
    assert "returns the same memory again" in reused


def test_lists_and_other_objects_are_refused_with_the_name_of_the_argument() -> None:
    @tw.tune(tw.Space(tw.Knob("how", ["a", "b"])))
    def doubled(x: tw.In("N"), *, how="a"):
        return x * 2

    with pytest.raises(SignatureError, match="x is a list"):
        doubled([1, 2, 3])


def test_other_backends_still_refuse_tensors(tmp_path) -> None:
    (tmp_path / "k.c").write_text("void k(float *x) { x[0] = N; }")

    @tw.tune(tw.Space(tw.Knob("how", [1, 2])), backend=tw.C(str(tmp_path / "k.c")))
    def k(x: tw.InOut("N")): ...

    with pytest.raises(SignatureError, match="not what the kernel declares"):
        k(torch.ones(4))


class OnDevice:
    """What CuPy's arrays show of themselves: attributes of numpy's, other flags, and a device."""

    def __init__(self, device):
        self.shape, self.strides, self.dtype, self.itemsize = (4,), (4,), np.dtype("float32"), 4
        self.flags = type("Flags", (), {"c_contiguous": True})()
        self.device = device

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self):
        raise NotImplementedError


def test_an_array_on_a_device_is_not_taken_for_one_of_numpy() -> None:
    """Not run on a device: only that calls are told apart, and what the signature says."""
    from tunewright.kernel.generated_call import generate_call
    from tunewright.model.signature import CallSignature

    parameters = [Parameter("x", In("N"))]
    call = generate_call(parameters, CallSignature.of(parameters, foreign=True), {}, lambda key, args: lambda *_: key)
    keys = [call(None, array) for array in (np.ones(4, np.float32), OnDevice(0), OnDevice(1), OnDevice(1))]
    assert len(set(keys)) == 3
    assert Signature.of(parameters, [OnDevice(1)]).args[0].endswith(":cuda:1")


def test_no_library_is_imported_for_arrays_of_numpy() -> None:
    code = (
        "import sys, numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('how', [1, 2])), session=tw.Session(pool='serial'))\n"
        "def double(x: tw.In('N'), *, how=1): return x * 2\n"
        "double(np.ones(4))\n"
        "print([name for name in ('torch', 'jax', 'cupy', 'numba', 'ml_dtypes') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "[]"


def test_arguments_in_shared_memory_outlive_their_copies() -> None:
    arguments = Arguments([Parameter("x", In("N"))], [torch.ones(1024)])
    tensor = arguments.values[0]
    del arguments
    gc.collect()
    assert tensor.sum() == 1024
