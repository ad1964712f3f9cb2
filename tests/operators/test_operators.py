"""Operators: every implementation computes the same, and a call goes to the one that won."""

import importlib.metadata
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import NoDecision, PluginError, ScheduleError, SignatureError
from tunewright.measure.clock import HostTimer
from tunewright.model.signature import In, Out, Signature
from tunewright.operators import Implementation, Operator, Support, Template, dispatch, registry
from tunewright.operators.operator import FLOATS
from tunewright.operators.standard import GEMM, REDUCE, STANDARD
from tunewright.operators.tuned_operator import ImplementationBackend, prepare_implementations
from tunewright.session import Session
from tunewright.spaces.space import Knob, Rule, Space

PROVIDERS = ("c", "mlir", "numpy", "opencl", "torch")


def normal(*shape, dtype="float32"):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


SMALL = {
    "gemm": (normal(9, 17), normal(17, 33)),
    "batched_gemm": (normal(3, 8, 5), normal(3, 5, 7)),
    "conv2d": (normal(1, 1, 20, 40), normal(1, 1, 7, 7)),
    "softmax": (normal(16, 128),),
    "layer_norm": (normal(5, 32), normal(32), normal(32)),
    "attention": (normal(2, 32, 32), normal(2, 32, 32), normal(2, 32, 32)),
    "transpose": (normal(33, 20),),
    "reduce": (normal(17, 70),),
}


def near(found, operator, inputs) -> bool:
    right = operator.reference(*(array.astype(float) for array in inputs))
    return np.allclose(found, right, atol=1e-4, rtol=1e-4)


@pytest.fixture
def session():
    return Session(pool="serial", mode="tune")


def installed_by(*implementations, absent=None):
    """A registry with nothing but these."""
    return registry.Registry(tuple(implementations), absent or {})


@pytest.fixture
def only(monkeypatch):
    """Replaces what is installed."""

    def put(*implementations, absent=None):
        made = installed_by(*implementations, absent=absent)
        for module in ("registry", "dispatch"):
            monkeypatch.setattr(sys.modules[f"tunewright.operators.{module}"], "installed", lambda: made)

    return put


def calls(log, name, run):
    def noted(*args):
        log.append(name)
        run(*args)

    return noted


def quick(x, out):
    np.sum(x, axis=-1, out=out)


def slow(x, out):
    for _ in range(30):
        np.sum(x, axis=-1, out=out)


def wrong(x, out):
    out[:] = 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", STANDARD)
def test_every_implementation_computes_what_the_reference_does(provider, name, tmp_path) -> None:
    every = {one.name for one in importlib.metadata.entry_points(group="tunewright.operators")}
    if provider not in every or provider in registry.installed().absent:
        pytest.skip(f"{provider} is not installed here")
    operator, inputs = STANDARD[name], SMALL[name]
    if provider not in {one.name for one in registry.installed().of(operator)}:
        pytest.skip(f"{provider} has no {name}")
    operation = dispatch(name, only=provider, threads=1, session=Session(mode="off", cache=str(tmp_path)))
    assert near(operation(*inputs), operator, inputs)
    out = np.full_like(operation.with_output(inputs)[-1], np.nan)
    operation.into(*inputs, out)
    assert near(out, operator, inputs)


def test_convolutions_of_many_channels_agree() -> None:
    inputs = normal(2, 3, 12, 10), normal(4, 3, 3, 5)
    for name in ("numpy", "torch"):
        if name not in registry.installed().absent:
            found = dispatch("conv2d", only=name, session=Session(mode="off"))(*inputs)
            assert found.shape == (2, 4, 10, 6)
            assert near(found, STANDARD["conv2d"], inputs)


def test_the_fastest_is_called_and_what_is_wrong_never(only, session) -> None:
    log = []
    runs = {"slow": slow, "wrong": wrong, "quick": quick}
    only(*(Implementation(name, REDUCE, calls(log, name, run)) for name, run in runs.items()))
    total = dispatch("reduce", threads=1, session=session)
    x = normal(64, 512)
    assert near(total(x), REDUCE, [x])
    decision = total.decide(x)
    assert decision.config == {"variant": "quick"}
    assert decision.evidence.failures == 1
    log.clear()
    total(x)
    assert log == ["quick"]
    assert session.counts["searches"] == 1


def test_the_choice_is_remembered_and_frozen_processes_race_nothing(only, tmp_path) -> None:
    only(Implementation("slow", REDUCE, slow), Implementation("quick", REDUCE, quick))
    x = normal(64, 512)
    dispatch("reduce", threads=1, session=Session(pool="serial", cache=str(tmp_path)))(x)
    strict = Session(mode="strict", cache=str(tmp_path))
    total = dispatch("reduce", threads=1, session=strict)
    total(x)
    assert total.decide(x).config == {"variant": "quick"}
    assert set(strict.counts) == {"exact"}
    with pytest.raises(NoDecision):
        total(normal(65, 512))
    frozen = dispatch("reduce", threads=1, session=Session(mode="off", cache=str(tmp_path)))
    assert frozen.decide(x).config == {"variant": "slow"}


def test_names_override_and_exclude(only, session) -> None:
    only(Implementation("slow", REDUCE, slow), Implementation("quick", REDUCE, quick), absent={"gpu": "needs a GPU"})
    x = normal(64, 512)
    assert dispatch("reduce", only="slow", session=session).decide(x).config == {"variant": "slow"}
    assert dispatch("reduce", without=["quick"], session=session).decide(x).config == {"variant": "slow"}
    with pytest.raises(PluginError, match=r"no implementation 'gpu' \(needs a GPU\); there are: quick, slow"):
        dispatch("reduce", only="gpu")
    with pytest.raises(PluginError, match="every implementation of reduce is excluded"):
        dispatch("reduce", without=["quick", "slow"])
    with pytest.raises(PluginError, match="no operator named 'gem'"):
        dispatch("gem")


def test_who_does_not_take_the_arguments_is_not_raced_and_it_is_said_why(only, session) -> None:
    few = Rule("it takes at most 8 rows", lambda M: M <= 8)
    only(
        Implementation("any", REDUCE, quick, support=Support((*FLOATS, "float16"))),
        Implementation("singles", REDUCE, quick, support=Support(("float32",))),
        Implementation("dense", REDUCE, quick, support=Support(layouts="C")),
        Implementation("short", REDUCE, quick, support=Support(rules=[few])),
        Implementation("gpu", REDUCE, quick, support=Support(device="cuda")),
    )
    total = dispatch("reduce", threads=1, session=session)
    assert total.exclusion_reasons(normal(64, 8, dtype="float64")) == {
        "any": "",
        "singles": "it takes float32, not float64",
        "dense": "",
        "short": "it takes at most 8 rows",
        "gpu": "it runs on cuda, but numpy arrays are on the cpu",
    }
    assert total.exclusion_reasons(normal(8, 64).T)["dense"] == "it takes C-contiguous arrays"
    offered = total.problem([normal(64, 8, dtype="float64")]).space
    assert {variant.name for variant in offered.variants} == {"any", "dense"}
    with pytest.raises(SignatureError, match="no implementation of reduce takes"):
        total(np.ones((4, 4), np.int32))


def test_a_template_that_fits_no_sizes_is_passed_over(only) -> None:
    def template(signature, threads):
        raise ScheduleError("no sizes fit")

    only(Implementation("quick", REDUCE, quick), Implementation("template", REDUCE, template=template))
    total, x = dispatch("reduce", session=Session(mode="off")), normal(3, 3)
    assert near(total(x), REDUCE, [x])
    assert total.exclusion_reasons(x) == {"quick": "", "template": "no sizes fit"}


def test_knobs_of_implementations_are_searched_with_a_budget(only, tmp_path) -> None:
    def template(signature, threads):
        def times(x, out, *, often):
            for _ in range(often):
                np.sum(x, axis=-1, out=out)

        return Template(tw.Python(times), Space(Knob("often", [40, 20, 1])), {"often": 40})

    only(Implementation("slow", REDUCE, slow), Implementation("template", REDUCE, template=template))
    x = normal(64, 512)
    brief = dispatch("reduce", threads=1, session=Session(pool="serial", cache=str(tmp_path / "brief")))
    assert brief.decide(x).config == {"variant": "slow"}
    longer = Session(pool="serial", strategy="exhaustive", cache=str(tmp_path / "long"))
    found = dispatch("reduce", threads=1, budget="8", session=longer).decide(x)
    assert found.config == {"variant": "template", "often": 1}


def test_arrays_that_do_not_lie_right_are_copied_for_who_needs_it(only) -> None:
    seen = []

    def picky(x, out):
        seen.extend(array.ctypes.data % 256 for array in (x, out))
        np.sum(x, axis=-1, out=out)

    only(Implementation("picky", REDUCE, picky, support=Support(alignment=256)))
    memory = np.zeros(8 * 16 + 65, np.float32)
    x = memory[1 : 1 + 8 * 16].reshape(8, 16)
    x[:] = normal(8, 16)
    out = memory[-8:]
    dispatch("reduce", session=Session(mode="off")).into(x, out)
    assert seen == [0, 0]
    assert near(out, REDUCE, [x])


def test_all_are_timed_by_the_host_whatever_their_backend() -> None:
    x, out = normal(4, 4), np.zeros(4, np.float32)
    signature = Signature.of(REDUCE.parameters, [x, out])
    ready, refused = prepare_implementations([Implementation("quick", REDUCE, quick)], signature, 1)
    assert not refused
    assert isinstance(ImplementationBackend(ready).timer(quick, [x, out], 1), HostTimer)


def test_a_provider_that_lacks_a_package_is_passed_over(monkeypatch) -> None:
    def load(port, name):
        if name == "numpy":
            return lambda: [Implementation("numpy", REDUCE, quick)]
        raise PluginError("it needs a package")

    class Points(list):
        names = ("broken", "numpy")

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: Points())
    monkeypatch.setattr(registry.plugins, "load", load)
    found = registry.installed.__wrapped__()
    assert [one.name for one in found.implementations] == ["numpy"]
    assert found.absent == {"broken": "it needs a package"}


def test_implementations_may_bring_operators(only, session) -> None:
    def _double(x: In("N"), out: Out("N")) -> None: ...

    def run(x, out):
        np.multiply(x, 2, out=out)

    double = Operator("double", _double, lambda x: 2 * x, lambda x: x)
    with pytest.raises(PluginError, match="double has no implementation; install a package"):
        dispatch(double)
    only(Implementation("numpy", double, run))
    assert (dispatch("double", session=session)(np.ones(3)) == 2).all()


def test_a_decision_rests_on_who_is_installed(only, session) -> None:
    x = normal(4, 4)
    quick_one = Implementation("quick", REDUCE, quick, versions={"fast": "1"})
    only(quick_one)
    before = dispatch("reduce", session=session).problem([x]).key
    assert before.toolchain["fast"] == "1"
    only(quick_one, Implementation("slow", REDUCE, slow))
    assert "source" in before.differences(dispatch("reduce", session=session).problem([x]).key)


def test_a_new_session_forgets_what_was_chosen(only, session) -> None:
    only(Implementation("slow", REDUCE, slow), Implementation("quick", REDUCE, quick))
    total, x = dispatch("reduce", threads=1, session=session), normal(64, 512)
    total(x)
    off = Session(mode="off")
    total.using(off)
    total(x)
    assert off.counts["default"] == 1


def test_operators_are_attributes_of_the_package_on_any_number_of_threads() -> None:
    from tunewright import operators

    assert operators.gemm is operators.gemm
    assert operators.gemm.operator is GEMM
    assert operators.gemm_on_3.options.threads == 3
    with pytest.raises(AttributeError, match="no attribute 'gem'"):
        _ = operators.gem


def test_knowing_what_is_installed_loads_neither_torch_nor_opencl() -> None:
    code = (
        "import sys; from tunewright.operators.registry import installed; installed();"
        "print([name for name in ('torch', 'pyopencl', 'torch_mlir', 'islpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_empty_results_are_refused() -> None:
    with pytest.raises(SignatureError, match="is empty"):
        dispatch("conv2d", session=Session(mode="off"))(normal(1, 1, 5, 5), normal(1, 1, 7, 7))


@pytest.mark.slow
def test_workers_find_an_operator_by_name_and_explain_tells_the_choice(tmp_path) -> None:
    session = Session(pool="process", cache=str(tmp_path))
    x = normal(64, 128)
    total = dispatch("reduce", threads=1, session=session)
    assert near(total(x), REDUCE, [x])
    assert total.decide(x).evidence.failures == 0
    store = str(tmp_path / "store.sqlite")
    asked = ["explain", "tunewright.operators:reduce_on_1", "--shape", "M=64,N=128", "--store", store]
    told = json.loads(command(*asked, "--json"))
    assert told["tier"] == "exact"
    assert told["implementations"]["numpy"] == ""
    assert "numpy: takes part" in command(*asked)


@pytest.mark.slow
def test_what_was_recorded_as_missing_is_raced_later() -> None:
    program = (
        "import numpy as np; from tunewright.operators import dispatch;"
        "dispatch('batched_gemm', threads=1)(np.ones((2, 8, 8)), np.ones((2, 8, 8)))"
    )
    env = {**os.environ, "TUNEWRIGHT_MODE": "record"}
    subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True)
    told = json.loads(command("tune", "--recorded", "--json"))
    assert told["decision"]["config"]["variant"] in {"numpy", "torch"}
    subprocess.run(
        [sys.executable, "-c", program], env={**env, "TUNEWRIGHT_MODE": "strict"}, check=True, capture_output=True
    )


def command(*args):
    done = subprocess.run([sys.executable, "-m", "tunewright", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", STANDARD)
def test_arrays_of_bfloat16_are_computed_by_numpy_and_torch_and_judged(name, session) -> None:
    narrow = pytest.importorskip("ml_dtypes").bfloat16
    inputs = [array.astype(narrow) for array in SMALL[name]]
    right = STANDARD[name].reference(*(array.astype(float) for array in inputs))
    for provider in ("numpy", "torch"):
        if provider in registry.installed().absent:
            continue
        found = dispatch(name, only=provider, threads=1, session=session)(*inputs)
        assert found.dtype == narrow
        assert np.allclose(found.astype(float), right, atol=0.1, rtol=0.02)


def test_a_bound_launch_is_the_one_that_was_chosen(only, session) -> None:
    chosen = dispatch("reduce", only="numpy", session=session)
    x = np.ones((4, 3), np.float32)
    launch, one, other = chosen.bound(x, np.empty(4, np.float32)), np.zeros(4, np.float32), np.zeros(4, np.float32)
    launch(x, one)
    launch(2 * x, other)
    np.testing.assert_array_equal((one, other), ([3] * 4, [6] * 4))


@pytest.mark.parametrize("name", ["conv2d", "layer_norm", "attention"])
def test_torch_gives_its_own_result_where_it_would_only_be_copied(name, session) -> None:
    torch = pytest.importorskip("torch")
    chosen = dispatch(name, only="torch", session=session)
    inputs = chosen.example(dict.fromkeys(chosen.dims, 8))[:-1]
    out = np.empty_like(chosen.with_output(inputs)[-1])
    with torch.no_grad():
        chosen.into(*inputs, out)
    fresh = chosen(*inputs)
    assert fresh.flags.c_contiguous
    assert (fresh.dtype, fresh.shape) == (out.dtype, out.shape)
    np.testing.assert_array_equal(fresh, out)
    assert chosen(*inputs) is not fresh
