"""MLIR kernels: built once, loaded anywhere, safe in threads, tuned like any other."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

import tunewright as tw
from tunewright.errors import BackendError, ScheduleError, SignatureError
from tunewright.measure.evaluator import Limits
from tunewright.mlir import Mlir, payloads
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.processor import has_dot_tiles
from tunewright.mlir.row_plans import row_plan
from tunewright.mlir.schedule import Schedule
from tunewright.model.signature import In, Out, Parameter, Signature
from tunewright.model.trial import Failure, Kind, Stage, TrialRequest
from tunewright.pools.worker import IsolatedAttempt
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config
from tunewright.stores import artifacts
from tunewright.testing.backend_kit import BackendContract

PAYLOAD = payloads.matmul(24, 64, 16, after="relu")
PLAN = gemm_plan(PAYLOAD)
CONFIG = Config(variant="packed rows", mr=8, nr=32, kr=8, pk=8)
ROLES = {"a": In("M", "K"), "b": In("K", "N"), "c": Out("M", "N")}


def parameters():
    return tuple(Parameter(name, role) for name, role in ROLES.items())


def arrays(m=24, n=64, k=16):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    return [a, b, np.zeros((m, n), np.float32)]


@pytest.fixture
def kernel(tmp_path):
    return Kernel("product", lambda: None, parameters(), tmp_path)


def right(args) -> bool:
    return np.allclose(args[2], np.maximum(args[0] @ args[1], 0), atol=1e-4)


class TestMlir(BackendContract):
    @pytest.fixture
    def backend(self):
        return Mlir(PAYLOAD, PLAN)

    @pytest.fixture
    def kernel(self, kernel):
        return kernel

    @pytest.fixture
    def args(self):
        return arrays()

    @pytest.fixture
    def config(self):
        return CONFIG

    def test_what_was_built_is_not_built_again(self, backend, kernel, args) -> None:
        signature = Signature.of(kernel.parameters, args)
        first = backend.build(kernel, CONFIG, signature)
        stamp = first.stat().st_mtime_ns
        assert backend.build(kernel, CONFIG, signature) == first
        assert first.stat().st_mtime_ns == stamp
        assert backend.build(kernel, CONFIG.with_value("kr", 4), signature) != first
        assert not list((kernel.cache / "scratch").iterdir())

    @pytest.mark.parametrize("between", [False, True], ids=["before the build", "between build and load"])
    def test_a_damaged_library_is_built_again(self, backend, kernel, args, between) -> None:
        signature = Signature.of(kernel.parameters, args)
        built = backend.build(kernel, CONFIG, signature)
        built.write_bytes(built.read_bytes()[:-100])
        backend.load(kernel, built if between else backend.build(kernel, CONFIG, signature))(*args)
        assert right(args)
        assert artifacts.is_intact(built)

    def test_comments_and_blanks_do_not_change_the_key_but_sizes_and_threads_do(self, backend, kernel, args) -> None:
        signature = Signature.of(kernel.parameters, args)
        key = backend.key(kernel, signature, {})
        commented = PAYLOAD.text.replace("\n", "  // a remark\n", 3)
        assert Mlir(commented, PLAN).key(kernel, signature, {}) == key
        assert Mlir(PAYLOAD, PLAN, threads=2).key(kernel, signature, {}).source != key.source
        other = payloads.matmul(24, 64, 16)
        assert Mlir(other, PLAN).key(kernel, signature, {}).source != key.source
        assert key.toolchain == {"torch-mlir": "20261001"}

    def test_arrays_the_payload_would_misread_are_refused(self, backend, kernel) -> None:
        a, b, c = arrays()
        for args, said in (
            ([a.astype(np.float64), b, c], "float64"),
            ([np.asfortranarray(a), b, c], "ascontiguousarray"),
            (arrays(m=32), "memref<24x16xf32>"),
        ):
            with pytest.raises(SignatureError, match=said):
                backend.key(kernel, Signature.of(kernel.parameters, args), {})

    def test_a_kernel_that_writes_gets_no_read_only_array(self, backend, kernel, args) -> None:
        launch = backend.load(kernel, backend.build(kernel, CONFIG, Signature.of(kernel.parameters, args)))
        args[0].flags.writeable = False
        launch(*args)
        assert right(args)
        args[2].flags.writeable = False
        with pytest.raises(SignatureError, match="c is read-only"):
            launch(*args)


def test_what_is_wrong_is_said(kernel) -> None:
    with pytest.raises(BackendError, match=r"llvm\.emit_c_interface"):
        Mlir("module { func.func @f() { return } }", PLAN)
    with pytest.raises(ScheduleError, match="no structure 'spiral'"):
        PLAN.schedule({"variant": "spiral"})
    with pytest.raises(BackendError, match="1 thread or more"):
        Mlir(PAYLOAD, PLAN, threads=0)
    broken = PAYLOAD.text.replace("linalg.fill", "linalg.fil")
    with pytest.raises(BackendError, match="no valid MLIR"):
        Mlir(broken, PLAN).build(kernel, CONFIG, Signature())


def test_any_transform_script_is_a_schedule(kernel) -> None:
    args = arrays()
    script = str(PLAN.schedule(CONFIG))
    backend = Mlir(PAYLOAD, script)
    backend.load(kernel, backend.build(kernel, Config(), Signature.of(kernel.parameters, args)))(*args)
    assert right(args)
    chosen = Mlir(PAYLOAD, lambda config: PLAN.schedule(CONFIG.with_value("kr", config["kr"])))
    args[2][:] = 0
    chosen.load(kernel, chosen.build(kernel, Config(kr=4), Signature.of(kernel.parameters, args)))(*args)
    assert right(args)


def test_a_launch_is_re_entrant_and_safe_in_threads(kernel) -> None:
    backend, calls = Mlir(PAYLOAD, PLAN), [arrays() for _ in range(8)]
    for number, args in enumerate(calls):
        args[0] *= number
    launch = backend.load(kernel, backend.build(kernel, CONFIG, Signature.of(kernel.parameters, calls[0])))
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            calls[number][2][:] = -1
            launch(*calls[number])
            if not right(calls[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("variant", ["packed rows", "packed columns", "unpacked rows", "panels rows"])
def test_several_threads_compute_the_same(kernel, variant) -> None:
    pytest.importorskip("islpy")
    payload = payloads.matmul(48, 128, 16, after="relu")
    plan = gemm_plan(payload, threads=2)
    args = arrays(48, 128, 16)
    config = next(c for c in plan.space if c["variant"] == variant and c["mr"] == 4 and c["nr"] == 16 and c["kr"] == 4)
    backend = Mlir(payload, plan, threads=2)
    backend.load(kernel, backend.build(kernel, config, Signature.of(kernel.parameters, args)))(*args)
    assert right(args)


@pytest.mark.slow
def changed(text, changes):
    """A program with parts replaced."""
    text = textwrap.dedent(text)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


NARROW = {
    "import gemm_plan": "import dot_plan",
    "= gemm_plan": "= dot_plan",
    ', after="relu")': ', element="i8")',
    "session=session)": "session=session, default=seed)",
    "mode = {": 'seed = next(dict(one) for one in plan.space if one["variant"] == "tiles rows")\nmode = {',
    "(16, 64), np.float32": "(16, 64), np.int8",
    "(24, 16), np.float32": "(24, 16), np.int8",
    "(24, 64), np.float32": "(24, 64), np.int32",
}
"""What makes the product one of int8 whose default uses tiles."""


@pytest.mark.parametrize("changes", [{}, NARROW], ids=["float32", "int8 in tiles"])
def test_a_process_without_the_compiler_loads_what_was_built(changes, tmp_path) -> None:
    if changes and not has_dot_tiles("i8"):
        pytest.skip("this processor has no tiles")
    script = tmp_path / "product.py"
    script.write_text(
        changed(
            """
            import sys
            import numpy as np
            import tunewright as tw
            if "--bare" in sys.argv:
                sys.modules["torch_mlir"] = None
            from tunewright.mlir import Mlir, payloads
            from tunewright.mlir.gemm_plans import gemm_plan

            payload = payloads.matmul(24, 64, 16, after="relu")
            plan = gemm_plan(payload)
            mode = {"mode": "strict", "store": sys.argv[3]} if len(sys.argv) > 3 else {}
            session = tw.Session(cache=sys.argv[1], strategy="random", trials=3, pool="serial", **mode)

            @tw.tune(plan.space, backend=Mlir(payload, plan), reference=payload.reference, session=session)
            def product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...

            a, b, c = np.ones((24, 16), np.float32), np.ones((16, 64), np.float32), np.zeros((24, 64), np.float32)
            product(a, b, c)
            assert (c == 16).all()
            print(session.counts["measurements"] + session.counts["compiles"], product.decide(a, b, c).config)
            """,
            {"from tunewright.mlir.gemm_plans": f"from tunewright.mlir.{'dot' if changes else 'gemm'}_plans"} | changes,
        )
    )
    cache = str(tmp_path / "cache")
    said = [
        subprocess.run(
            [sys.executable, str(script), cache, *more], capture_output=True, text=True, check=True
        ).stdout.split(maxsplit=1)
        for more in ([], ["--bare"])
    ]
    assert int(said[0][0]) > 0
    assert said[1] == ["0", said[0][1]]
    build = [sys.executable, "-m", "tunewright", "bundle", "build", str(tmp_path / "product.bundle"), "--json"]
    environ = {**os.environ, "TUNEWRIGHT_CACHE": cache}
    told = json.loads(subprocess.run(build, capture_output=True, text=True, check=True, env=environ).stdout)
    place = f"bundle:{tmp_path}/product.bundle?pin={told['digest']}"
    command = [sys.executable, str(script), str(tmp_path / "elsewhere"), "--bare", place]
    shipped = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(maxsplit=1)
    assert shipped == said[1]


HANGING = payloads.matmul(128, 128, 128)


def test_a_build_that_does_not_end_is_killed_at_its_deadline(tmp_path) -> None:
    def whole(config):
        schedule = Schedule()  # 2 million products as one vector operation: minutes in the lowering
        schedule.vectorize(schedule.match("linalg.matmul")[0])
        schedule.bufferize()
        schedule.lower()
        return schedule

    session = tw.Session(cache=str(tmp_path), strategy="random", trials=1)
    space = tw.Space(tw.Knob("x", [1]))
    tuned = tw.tune(space, backend=Mlir(HANGING, whole), session=session, reference=np.matmul)(_product)
    cases = tuned.cases_like(arrays(128, 128, 128))
    attempt = IsolatedAttempt(
        partial(tuned.make_evaluator, cases, tmp_path), cases, tmp_path, None, 1, Limits(build=1.5)
    )
    trial = attempt(TrialRequest(Config(x=1)))
    assert isinstance(trial.outcome, Failure)
    assert (trial.outcome.stage, trial.outcome.kind) == (Stage.BUILD, Kind.HUNG)
    assert 1.4 < trial.build_seconds < 60  # it would take minutes
    assert not list(Path(tmp_path).rglob("*.so"))


def _product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...


@pytest.mark.slow
def test_a_search_over_structures_and_sizes_finds_one_that_works(tmp_path) -> None:
    session = tw.Session(cache=str(tmp_path), strategy="random", trials=6, pool="serial")
    tuned = tw.tune(PLAN.space, backend=Mlir(PAYLOAD, PLAN), reference=PAYLOAD.reference, session=session)(_product)
    args = arrays()
    tuned(*args)
    assert right(args)
    trials = list(session.store.trials(tuned.decide(*args).key))
    assert not [trial.outcome for trial in trials if isinstance(trial.outcome, Failure)]
    assert len({trial.config["variant"] for trial in trials}) > 1


def test_another_order_of_additions_must_be_allowed_by_name() -> None:
    payload = payloads.softmax(None, 64)
    space = row_plan(payload).space
    assert {variant.name for variant in space.variants} == {"in order", "side by side"}
    assert [variant.name for variant in space.exact().variants] == ["in order"]
    assert len(space.exact(["side by side"]).variants) == 2
