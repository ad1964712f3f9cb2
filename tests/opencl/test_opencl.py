"""OpenCL kernels: built by the driver, kept as binaries, timed by events, tuned like any other."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import tunewright as tw
from tunewright.errors import BackendError, Sealed, SignatureError, SpaceError
from tunewright.model.signature import In, InOut, Out, Parameter, Signature
from tunewright.model.trial import Failure, Stage, Timing
from tunewright.opencl import DeviceSelector, OpenCL
from tunewright.opencl.source import first_error, parse_arguments
from tunewright.ports.backend import Kernel
from tunewright.session import Session
from tunewright.spaces.config import Config
from tunewright.stores import artifacts
from tunewright.testing.backend_kit import BackendContract

SOURCE = """
#include "scale.h"
// y = FACTOR * x + shift
__kernel __attribute__((reqd_work_group_size(LX, 1, 1)))
void scale(__global const float *restrict x, __global float *y, const float shift, int offset) {
    for (int i = get_global_id(0) * EACH; i < min((int)(get_global_id(0) + 1) * EACH, N); i++)
        y[i] = FACTOR * x[i] + shift + offset;
}
__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2; }
"""


def scale(x: In("N"), y: Out("N"), shift: float, offset: int): ...


def twice(x: InOut("N")): ...


def per_group(N, LX, EACH):
    return -(-N // (LX * EACH))


def kernel_of(function, cache: Path) -> Kernel:
    return Kernel(function.__name__, function, Parameter.of(function, []), cache)


def loaded(backend, kernel, config, args):
    return backend.load(kernel, backend.build(kernel, config, Signature.of(kernel.parameters, args)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scale.cl").write_text(SOURCE)
    (tmp_path / "scale.h").write_text("#define FACTOR 2\n")
    return tmp_path


@pytest.fixture
def kernel(folder):
    return kernel_of(scale, folder)


@pytest.fixture
def args():
    return [np.ones(100, np.float32), np.zeros(100, np.float32), 0.5, 3]


@pytest.fixture
def config():
    return Config(LX=4, EACH=2)


def made(folder, **more):
    return OpenCL(folder / "scale.cl", groups=per_group, local=("LX",), **more)


class TestOpenCL(BackendContract):
    @pytest.fixture
    def backend(self, folder):
        return made(folder)

    def test_knobs_are_macros_and_the_clock_is_the_device_s(self, backend, kernel, config, args) -> None:
        launch = loaded(backend, kernel, config, args)
        launch(*args)
        assert (args[1] == 5.5).all()
        timer = backend.timer(launch, args, 1)
        assert timer.clock == "opencl events"
        assert 0 < timer(300) < 5
        timer.flush(whole=True)


class TestCopies(TestOpenCL):
    """The same where the device has memory of its own."""

    @pytest.fixture
    def backend(self, folder):
        return made(folder, on=DeviceSelector(shared=False))


@pytest.mark.parametrize("shared", [True, False])
def test_an_array_that_is_read_and_written_comes_back(folder, shared) -> None:
    backend = OpenCL(folder / "scale.cl", groups=lambda N: N, local=(1,), on=DeviceSelector(shared=shared))
    array = np.full(8, 3, np.float32)
    config = Config(LX=1, EACH=1)
    launch = loaded(backend, kernel_of(twice, folder), config, [array])
    launch(array)
    assert (array == 6).all()
    timer = backend.timer(launch, [array], 1)
    for _ in range(3):
        array[:] = 1  # what is put back before a reading must reach the device
        timer(1)
    launch.collect([array], timer._buffers)
    assert (array == 2).all()


def test_what_was_built_is_found_again_and_needs_no_compiler(folder, kernel, config, args) -> None:
    signature = Signature.of(kernel.parameters, args)
    built = made(folder).build(kernel, config, signature)
    stamp = built.path.stat().st_mtime_ns
    (label,) = artifacts.read_labels(folder)
    assert (label.config, label.kernel, label.name) == (config, "scale", built.path.name)
    assert made(folder).build(kernel, config, signature) == built
    assert built.path.stat().st_mtime_ns == stamp
    assert made(folder).build(kernel, config.with_value("EACH", 4), signature).path != built.path
    (folder / "scale.h").write_text("#define FACTOR 7\n")
    assert made(folder).build(kernel, config, signature).path != built.path


@pytest.mark.parametrize("between", [False, True], ids=["before the build", "between build and load"])
def test_a_damaged_binary_is_built_again(folder, kernel, config, args, between) -> None:
    backend, signature = made(folder), Signature.of(kernel.parameters, args)
    built = backend.build(kernel, config, signature)
    content = bytearray(built.path.read_bytes())
    content[len(content) // 2] ^= 1
    built.path.write_bytes(content)
    backend.load(kernel, built if between else backend.build(kernel, config, signature))(*args)
    assert (args[1] == 5.5).all()
    assert artifacts.is_intact(built.path)


def test_the_binary_holds_the_work_group_that_was_launched(folder, kernel, config, args) -> None:
    """In another process, with nothing in the driver's own cache, a launch compiles nothing."""
    built = made(folder).build(kernel, config, Signature.of(kernel.parameters, args))
    code = f"""
        import sys
        import pyopencl as cl, numpy as np
        device = cl.get_platforms()[0].get_devices()[0]
        context = cl.Context([device])
        program = cl.Program(context, [device], [open({str(built.path)!r}, "rb").read()]).build()
    """
    own = folder / "driver"
    env = {**os.environ, "POCL_CACHE_DIR": str(own)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, check=True, capture_output=True)
    groups = {path.parent.name for path in own.rglob("scale.so")}
    assert any(name.startswith("4-1-1") for name in groups), groups


def test_the_key_has_the_device_its_limits_and_its_driver(folder, kernel, args) -> None:
    key = made(folder).key(kernel, Signature.of(kernel.parameters, args), {})
    assert key.device.kind == "opencl"
    assert {"cores", "local memory", "work-group"} <= set(key.device.limits)
    assert {"opencl", "driver"} <= set(key.toolchain)
    one = made(folder, on=DeviceSelector(units=1)).key(kernel, Signature.of(kernel.parameters, args), {})
    assert one.device.limits["cores"] == 1
    (folder / "scale.cl").write_text(SOURCE.replace("// y = FACTOR * x + shift", "/* other words */"))
    same = made(folder).key(kernel, Signature.of(kernel.parameters, args), {})
    assert same.digest == key.digest
    other = OpenCL(folder / "scale.cl", groups=lambda N: N, local=("LX",))
    assert "source" in key.differences(other.key(kernel, Signature.of(kernel.parameters, args), {}))


def test_what_the_kernel_would_misread_is_refused_with_a_remedy(folder, kernel, args) -> None:
    backend = made(folder)

    def ask(*given):
        backend.key(kernel, Signature.of(kernel.parameters, given), {})

    with pytest.raises(SignatureError, match="array of float64, but the kernel takes a pointer to float32"):
        ask(args[0].astype(float), *args[1:])
    with pytest.raises(SignatureError, match="ascontiguousarray"):
        ask(np.ones(200, np.float32)[::2], *args[1:])
    short = Kernel("scale", scale, kernel.parameters[:2], folder)
    with pytest.raises(SignatureError, match="takes 4 arguments, not 2"):
        backend.key(short, Signature.of(short.parameters, args[:2]), {})
    frozen = np.zeros(100, np.float32)
    frozen.flags.writeable = False
    launch = loaded(backend, kernel, Config(LX=1, EACH=100), args)
    launch(frozen, *args[1:])  # one that is only read may be so
    with pytest.raises(SignatureError, match="y: an OpenCL kernel takes"):
        launch(args[0], frozen, *args[2:])


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"source": "none.cl"}, BackendError, "no source file"),
        ({"function": "other"}, BackendError, "no single kernel 'other'"),
        ({"groups": lambda Q: Q}, SpaceError, "'Q' is neither a knob nor a named size"),
        ({"groups": lambda N: (N, 1)}, BackendError, "groups= has 2 axes, but local= has 1"),
        ({"groups": lambda N: 0}, BackendError, "round up"),
        ({"local": (1 << 20,)}, BackendError, "too large: the limit is"),
        ({"on": DeviceSelector("no such device")}, BackendError, "available: "),
        ({"on": DeviceSelector(units=10_000)}, BackendError, "leave `units` out"),
    ],
)
def test_errors_say_what_to_do(folder, kernel, config, args, given, error, said) -> None:
    parts = {"source": "scale.cl", "groups": per_group, "local": ("LX",), **given}
    backend = OpenCL(folder / parts.pop("source"), **parts)
    with pytest.raises(error, match=said):
        loaded(backend, kernel, config, args)


def test_a_broken_source_says_where(folder, kernel, config, args) -> None:
    (folder / "scale.cl").write_text(SOURCE.replace("get_global_id(0) * EACH;", "get_global_id(0) * MISSING;"))
    with pytest.raises(BackendError, match=r"scale.cl: .*error.*MISSING"):
        loaded(made(folder), kernel, config, args)


def test_threads_may_call_one_launch(folder, kernel, config, args) -> None:
    launch = loaded(made(folder), kernel, config, args)
    results = [np.zeros(100, np.float32) for _ in range(8)]
    calls = [threading.Thread(target=launch, args=(args[0], out, float(i), 0)) for i, out in enumerate(results)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert [set(out) for out in results] == [{2.0 + i} for i in range(8)]


def test_a_forked_process_is_told_rather_than_hung(folder, kernel, config, args) -> None:
    launch = loaded(made(folder), kernel, config, args)
    read, write = os.pipe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.filters", [])
        pid = os.fork()
    if pid == 0:
        try:
            launch(*args)
        except BackendError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert b'pool="serial"' in os.read(read, 1000)
    os.close(read)


@pytest.mark.slow
def test_it_is_tuned_like_any_other_and_bad_configs_are_results(folder) -> None:
    (folder / "scale.cl").write_text(SOURCE.replace("{", "{\n#if EACH == 3\n#error no threes\n#endif\n", 1))
    space = tw.Space(tw.Knob("LX", [8]), tw.Knob("EACH", [1, 2, 3]))
    session = Session(pool="serial", strategy="exhaustive", mode="tune")
    tuned = tw.tune(space, backend=made(folder), reference=lambda x: 2 * x + 1, session=session)(_scaled)
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    tuned(x, y, 1.0, 0)
    assert (y == 3).all()
    trials = list(session.store.trials(tuned.problem((x, y, 1.0, 0)).key))
    failed = [trial.outcome for trial in trials if isinstance(trial.outcome, Failure)]
    assert {outcome.stage for outcome in failed} == {Stage.BUILD}
    assert all("no threes" in outcome.reason for outcome in failed)
    assert len(failed) == 1
    timed = [trial.outcome for trial in trials if isinstance(trial.outcome, Timing)]
    assert {outcome.clock for outcome in timed} == {"opencl events"}


def _scaled(x: In("N"), y: Out("N"), shift: float, offset: int): ...


_scaled.__name__ = _scaled.__qualname__ = "scale"


def test_a_sealed_process_refuses_to_compile(folder, args) -> None:
    session = Session(pool="serial", mode="off")
    space = tw.Space(tw.Knob("LX", [1]), tw.Knob("EACH", [1]))
    tuned = tw.tune(space, backend=made(folder), session=session)(_scaled)
    tuned(*args)
    assert session.counts["compiles"] == 1
    tw.seal()
    try:
        tuned(*args)
        with pytest.raises(Sealed, match="scale was about to be compiled"):
            tuned(*(arg[:50] if isinstance(arg, np.ndarray) else arg for arg in args))
    finally:
        tw.unseal()


PROGRAM = """import json
import numpy as np
import tunewright as tw
from tunewright.opencl import OpenCL

backend = OpenCL("scale.cl", groups=lambda N, LX, EACH: -(-N // (LX * EACH)), local=("LX",))
space = tw.Space(tw.Knob("LX", [1, 4]), tw.Knob("EACH", [2]))

@tw.tune(space, backend=backend)
def scale(x: tw.In("N"), y: tw.Out("N"), shift: float, offset: int = 1): ...

if __name__ == "__main__":
    counts = tw.seal(raises=False)
    y = np.zeros(64, np.float32)
    scale(np.ones(64, np.float32), y, 1.0)
    print(json.dumps({"sum": float(y.sum()), "counts": tw.current_session().counts, "sealed": counts}))
"""


@pytest.mark.slow
def test_a_bundle_brings_the_binary(folder, tmp_path_factory) -> None:
    (folder / "program.py").write_text(PROGRAM)

    def run(*command, home, **more):
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TUNEWRIGHT")}
        env = {**ours, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), **more}
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    tell, here, there = ("-m", "tunewright"), tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    run(*tell, "tune", "program.py:scale", "--shape", "N=64", "--budget", "2", home=here)
    (folder / "signers").write_text(run(*tell, "bundle", "key", "team.pem", home=here))
    run(*tell, "bundle", "build", "all.bundle", "program.py:scale", "--sign", "team.pem", home=here)
    store = "bundle:all.bundle?signers=signers"
    said = json.loads(run("program.py", home=there, TUNEWRIGHT_MODE="strict", TUNEWRIGHT_STORE=store))
    assert said == {"sum": 256.0, "counts": {"exact": 1}, "sealed": {}}


def test_prototypes_are_read_as_opencl_writes_them() -> None:
    text = "kernel void f(global const half *a, __constant int* b, const ulong n, local float *s, float4 v) {}"
    read = parse_arguments(text, "f")
    assert [(one.name, str(one.dtype), one.is_pointer, one.is_local) for one in read] == [
        ("a", "float16", True, False),
        ("b", "int32", True, False),
        ("n", "uint64", False, False),
        ("s", "float32", True, True),
        ("v", "None", False, False),
    ]
    assert parse_arguments(text, "g") is None
    assert first_error("note: x\n/tmp/a/b.cl:3:4: error: bad\n") == "b.cl:3:4: error: bad"
