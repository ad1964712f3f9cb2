import ctypes
from pathlib import Path

import numpy as np
import pytest

from tunewright import C, Config, In, Knob, Out, Python, Space, Variant, tune
from tunewright.backends.c_source import CArgument, normalize_source, parse_prototype
from tunewright.backends.replay import Recording, Replay
from tunewright.backends.variants import Variants
from tunewright.errors import BackendError, SignatureError, SpaceError
from tunewright.model.signature import Parameter, Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.backend import Kernel
from tunewright.session import Session
from tunewright.testing.backend_kit import BackendContract
from tunewright.testing.keys import KEY

SOURCE = """
#include <stdint.h>
#include "scale.h"
// y = FACTOR * x
void scale(const float *x, float *y, double shift) {
    for (int64_t i = 0; i < N; i += STEP)
        for (int64_t j = i; j < i + STEP; j++) y[j] = FACTOR * x[j] + shift;
}
"""


def scale(x: In("N"), y: Out("N"), shift: float): ...


def kernel_of(function, cache: Path) -> Kernel:
    return Kernel(function.__name__, function, Parameter.of(function, []), cache)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scale.c").write_text(SOURCE)
    (tmp_path / "scale.h").write_text("#define FACTOR 2\n")
    return tmp_path


@pytest.fixture
def kernel(tmp_path):
    return kernel_of(scale, tmp_path / "cache")


@pytest.fixture
def args():
    return [np.ones(64, np.float32), np.zeros(64, np.float32), 0.5]


@pytest.fixture
def config():
    return Config(STEP=4, opt="-O1")


def loaded(backend, kernel, config, args):
    return backend.load(kernel, backend.build(kernel, config, Signature.of(kernel.parameters, args)))


def key_of(backend, kernel, args):
    return backend.key(kernel, Signature.of(kernel.parameters, args), {})


class TestC(BackendContract):
    @pytest.fixture
    def backend(self, folder):
        return C(folder / "scale.c")

    def test_knobs_become_macros_and_flags(self, backend, kernel, config, args) -> None:
        loaded(backend, kernel, config, args)(*args)
        assert (args[1] == 2.5).all()

    def test_the_same_content_is_built_once(self, backend, kernel, config, args, monkeypatch) -> None:
        signature = Signature.of(kernel.parameters, args)
        first = backend.build(kernel, config, signature)
        stamp = first.stat().st_mtime_ns
        assert backend.build(kernel, config, signature) == first
        assert first.stat().st_mtime_ns == stamp
        assert backend.build(kernel, config.with_value("STEP", 8), signature) != first
        assert not list(first.parent.glob("tmp*"))

    def test_sizes_may_come_as_arguments(self, tmp_path, args, config) -> None:
        path = tmp_path / "sized.c"
        path.write_text(
            "#include <stdint.h>\n"
            "void scale(const float *x, float *y, double s, int64_t n) { for (int64_t i = 0; i < n; i++) y[i] = n; }"
        )
        kernel = kernel_of(scale, tmp_path)
        backend = C(path, sizes="arguments")
        launch = loaded(backend, kernel, Config(), args)
        launch(*args)
        assert (args[1] == 64).all()
        longer = [np.ones(9, np.float32), np.zeros(9, np.float32), 0.5]
        assert backend.build(kernel, Config(), Signature.of(kernel.parameters, longer)) == backend.build(
            kernel, Config(), Signature.of(kernel.parameters, args)
        )
        launch(*longer)
        assert (longer[1] == 9).all()

    def test_cpp_is_compiled_as_cpp(self, tmp_path, args) -> None:
        path = tmp_path / "k.cpp"
        path.write_text('extern "C" void scale(const float *x, float *y, double s) { auto f = [=]{ y[0] = 7; }; f(); }')
        loaded(C(path), kernel_of(scale, tmp_path), Config(), args)(*args)
        assert args[1][0] == 7

    def test_comments_and_blank_lines_do_not_change_the_key(self, backend, folder, kernel, args) -> None:
        before = key_of(backend, kernel, args)
        (folder / "scale.c").write_text(
            "/* moved\n down */\n\n" + SOURCE.replace("// y = FACTOR * x", "").replace(" = ", "  = ")
        )
        assert key_of(C(folder / "scale.c"), kernel, args) == before

    def test_source_headers_flags_and_compiler_change_the_key(self, backend, folder, kernel, args) -> None:
        before = key_of(backend, kernel, args)
        assert set(before.differences(key_of(C(folder / "scale.c", flags="-O2"), kernel, args))) == {"toolchain.flags"}
        (folder / "scale.h").write_text("#define FACTOR 3\n")
        assert set(before.differences(key_of(C(folder / "scale.c"), kernel, args))) == {"source"}

    def test_the_path_does_not_change_the_key(self, backend, folder, tmp_path_factory, kernel, args) -> None:
        other = tmp_path_factory.mktemp("elsewhere")
        for name in ("scale.c", "scale.h"):
            (other / name).write_text((folder / name).read_text())
        assert key_of(C(other / "scale.c"), kernel, args) == key_of(backend, kernel, args)

    def test_what_is_wrong_is_said(self, folder, kernel, args, tmp_path) -> None:
        with pytest.raises(BackendError, match="no source file"):
            key_of(C("nowhere.c"), kernel, args)
        with pytest.raises(BackendError, match="no compiler found"):
            key_of(C(folder / "scale.c", compiler="nonesuch-cc"), kernel, args)
        with pytest.raises(BackendError, match="undeclared"):
            loaded(C(folder / "scale.c"), kernel, Config(), args)
        with pytest.raises(BackendError, match="has no function 'other'"):
            loaded(C(folder / "scale.c", "other"), kernel, Config(STEP=1), args)
        with pytest.raises(BackendError, match="macros"):
            C(folder / "scale.c", sizes="guess")
        with pytest.raises(SignatureError, match="not of the kind"):
            loaded(C(folder / "scale.c"), kernel, Config(STEP=1), args)(args[0], args[1], "x")

    def test_an_array_that_is_not_contiguous_is_refused_before_it_does_harm(self, backend, kernel) -> None:
        args = [np.ones(128, np.float32)[::2], np.zeros(64, np.float32), 0.5]
        with pytest.raises(SignatureError, match="ascontiguousarray"):
            key_of(backend, kernel, args)


def test_an_edit_in_the_same_process_is_seen_and_never_kept_under_the_old_name(folder, kernel, args) -> None:
    backend, config = C(folder / "scale.c"), Config(STEP=1)
    first = key_of(backend, kernel, args)
    loaded(backend, kernel, config, args)(*args)
    assert args[1][0] == 2.5
    (folder / "scale.h").write_text("#define FACTOR 7\n")
    assert key_of(backend, kernel, args) != first
    loaded(backend, kernel, config, args)(*args)
    assert args[1][0] == 7.5
    (folder / "scale.h").write_text("#define FACTOR 2\n")
    loaded(C(folder / "scale.c"), kernel, config, args)(*args)
    assert args[1][0] == 2.5


def test_headers_found_through_flags_count(folder, kernel, args) -> None:
    there = folder / "in a folder"
    there.mkdir()
    (folder / "scale.h").rename(there / "scale.h")

    def made():
        return C(folder / "scale.c", flags=f"-O1 '-I{there}'")

    before = key_of(made(), kernel, args)
    loaded(made(), kernel, Config(STEP=1), args)(*args)
    assert args[1][0] == 2.5
    (there / "scale.h").write_text("#define FACTOR 5\n")
    assert key_of(made(), kernel, args) != before
    loaded(made(), kernel, Config(STEP=1), args)(*args)
    assert args[1][0] == 5.5


def test_an_int_for_a_declared_float_is_a_float(folder, kernel, args) -> None:
    launch = loaded(C(folder / "scale.c"), kernel, Config(STEP=1), args)
    launch(args[0], args[1], 3)
    assert args[1][0] == 5
    assert Signature.of(kernel.parameters, [*args[:2], 3]) == Signature.of(kernel.parameters, args)


def test_a_kernel_that_writes_gets_no_read_only_array(folder, kernel, args) -> None:
    launch = loaded(C(folder / "scale.c"), kernel, Config(STEP=1), args)
    args[0].flags.writeable = False
    launch(*args)
    assert args[1][0] == 2.5
    args[1].flags.writeable = False
    with pytest.raises(SignatureError, match="y is read-only"):
        launch(*args)


def test_an_array_of_another_dtype_is_refused_before_it_does_harm(folder, kernel, args) -> None:
    with pytest.raises(SignatureError, match="x is an array of float64, but the function takes"):
        key_of(C(folder / "scale.c"), kernel, [args[0].astype(np.float64), *args[1:]])


def test_the_arguments_of_a_function_are_read_from_its_text() -> None:
    text = "/* void f(int *a) { */ void f(const float *restrict x, int32_t y[], double s, struct s *p, float t)\n{ }"
    found = parse_prototype(text, "f")
    assert [argument.points_at for argument in found] == ["float32", "int32", None, None, None]
    assert [argument.ctype for argument in found][2:] == [ctypes.c_double, ctypes.c_void_p, ctypes.c_float]
    assert parse_prototype(text, "g") is None
    assert parse_prototype("#if 0\nvoid f(double *x) {}\n#else\nvoid f(float *x) {}\n#endif", "f") is None
    assert parse_prototype("void f(void) {}", "f") == []


@pytest.mark.parametrize(
    ("dtype", "points_at", "fits"),
    [("float32", "float32", True), ("float64", "float32", False), ("complex64", "float32", True),
     ("float16", "uint16", True), ("bool", "uint8", True), ("int64", "int32", False), ("float32", None, True)],
)  # fmt: skip
def test_only_elements_of_another_size_are_refused(dtype, points_at, fits) -> None:
    assert (CArgument(points_at, None).find_mismatch(dtype) is None) == fits


def test_scalars_are_passed_as_the_function_takes_them(tmp_path) -> None:
    def fill(y: Out("N"), a: float, n: int): ...

    path = tmp_path / "fill.c"
    path.write_text("void fill(float *y, float a, int n) { for (int i = 0; i < n; i++) y[i] = a; }")
    y, kernel = np.zeros(4, np.float32), kernel_of(fill, tmp_path)
    launch = loaded(C(path), kernel, Config(), [y, 3.0, 4])
    launch(y, 3.0, 4)
    assert (y == 3).all()
    launch(y, 5, np.int64(2))
    assert y.tolist() == [5, 5, 3, 3]


def test_a_function_that_takes_more_is_refused(tmp_path, args) -> None:
    path = tmp_path / "scale.c"
    path.write_text("void scale(float *x, float *y, double s, int more) { }")
    with pytest.raises(SignatureError, match="takes 4 arguments, the kernel passes 3"):
        key_of(C(path), kernel_of(scale, tmp_path), args)


def test_memory_mapped_arrays_are_arrays(folder, kernel, args) -> None:
    mapped = np.memmap(folder / "x.bin", np.float32, "w+", shape=64)
    mapped[:] = 1
    loaded(C(folder / "scale.c"), kernel, Config(STEP=1), args)(mapped, args[1], 0.5)
    assert args[1][0] == 2.5


def test_headers_that_a_knob_brings_in_count(folder, kernel, args) -> None:
    (folder / "fast.h").write_text("#define MORE 5\n")
    (folder / "scale.c").write_text('#if FAST\n#include "fast.h"\n#endif\n' + SOURCE.replace("+ shift", "+ MORE"))
    before = key_of(C(folder / "scale.c"), kernel, args)
    (folder / "fast.h").write_text("#define MORE 7\n")
    assert key_of(C(folder / "scale.c"), kernel, args) != before


def test_fast_math_stays_in_its_kernel(folder, kernel, args) -> None:
    loaded(C(folder / "scale.c", flags="-O2 -ffast-math"), kernel, Config(STEP=1), args)(*args)
    tiny = np.float32(1e-40)
    assert tiny * np.float32(1) == tiny


def test_the_source_beside_the_declaring_file_comes_first(folder, tmp_path_factory, monkeypatch) -> None:
    elsewhere = tmp_path_factory.mktemp("cwd")
    (elsewhere / "scale.c").write_text("void scale() {}")
    monkeypatch.chdir(elsewhere)
    backend = C("scale.c")
    backend.relative_to(folder)
    assert backend.path == (folder / "scale.c").resolve()


def test_normalised_source_keeps_what_is_in_quotes() -> None:
    assert normalize_source('a = "// no /* comment */";  /* c */ b;// d\n\n  c') == 'a = "// no /* comment */"; b;\nc'


class TestPython(BackendContract):
    @pytest.fixture
    def backend(self):
        return Python()

    @pytest.fixture
    def kernel(self, tmp_path):
        def add(a, b, *, times=1):
            return a + times * b

        return Kernel("add", add, Parameter.of(add, ["times"]), tmp_path)

    @pytest.fixture
    def args(self):
        return [np.ones(3), 2]

    @pytest.fixture
    def config(self):
        return Config(times=3)

    def test_knobs_are_keyword_arguments(self, backend, kernel, config, args) -> None:
        assert (loaded(backend, kernel, config, args)(*args) == 7).all()


class TestVariants(BackendContract):
    @pytest.fixture
    def backend(self, folder):
        def numpy(x, y, shift):
            y[:] = 2 * x + shift

        return Variants({"c": C(folder / "scale.c"), "numpy": numpy})

    @pytest.fixture
    def config(self):
        return Config(variant="c", STEP=4)

    def test_each_variant_is_built_by_its_own_backend(self, backend, kernel, args) -> None:
        for config in (Config(variant="c", STEP=2), Config(variant="numpy")):
            args[1][:] = 0
            loaded(backend, kernel, config, args)(*args)
            assert (args[1] == 2.5).all()
        with pytest.raises(BackendError, match="known: c, numpy"):
            loaded(backend, kernel, Config(variant="rust"), args)

    def test_the_key_rests_on_every_implementation(self, backend, folder, kernel, args) -> None:
        before = key_of(backend, kernel, args)
        assert {"compiler", "python", "numpy"} <= set(before.toolchain)
        (folder / "scale.h").write_text("#define FACTOR 5\n")
        changed = Variants({"c": C(folder / "scale.c"), "numpy": backend._backends["numpy"]})
        assert "source" in before.differences(key_of(changed, kernel, args))


SPACE = Space(Knob("tile", [8, 16, 32]), Knob("order", ["ij", "ji"]))


def recorded() -> Recording:
    trials = []
    for i, config in enumerate(SPACE):
        failure = Failure(Stage.BUILD, Kind.REFUSED, "no") if i == 1 else Failure(Stage.VERIFY, Kind.WRONG, "bad")
        outcome = failure if i in (1, 2) else Timing((1e-3 * (6 - i),), "recorded")
        trials.append(Trial(config, outcome, 0.5, 0.25))
    return Recording.from_trials(KEY, SPACE, trials)


class TestReplay(BackendContract):
    @pytest.fixture
    def backend(self):
        return Replay(recorded())

    @pytest.fixture
    def config(self):
        return SPACE[5]

    def test_a_search_over_a_recording_finds_its_best(self, backend) -> None:
        session = Session(pool="serial", strategy="exhaustive")
        tuned = tune(SPACE, backend=backend, session=session)(lambda: None)
        decision = tuned.decide()
        assert decision.config == backend.recording.best.config
        assert decision.evidence.seconds == pytest.approx(1e-3)
        stages = [str(t.outcome.stage) for t in session.store.trials(decision.key) if isinstance(t.outcome, Failure)]
        assert sorted(stages) == ["build", "verify"]

    def test_what_was_not_recorded_is_not_made_up(self, backend, kernel, args) -> None:
        with pytest.raises(BackendError, match="was not recorded"):
            loaded(backend, kernel, Config(tile=64), args)


def test_a_recording_survives_the_disk(tmp_path) -> None:
    recording = recorded()
    recording.write(tmp_path / "k.parquet")
    back = Recording.read(tmp_path / "k.parquet")
    assert set(back.space) == set(SPACE)
    assert back.best == recording.best
    for config, trial in recording.trials.items():
        assert back.trials[config].seconds == pytest.approx(trial.seconds)
        assert isinstance(back.trials[config].outcome, Failure) == isinstance(trial.outcome, Failure)


def test_a_partial_recording_is_a_space_of_what_was_recorded(tmp_path) -> None:
    recording = recorded()
    some = dict(list(recording.trials.items())[:4])
    Recording(recording.kernel, recording.device, SPACE, some).write(tmp_path / "k.parquet")
    assert set(Recording.read(tmp_path / "k.parquet").space) == set(some)


def test_variants_do_not_fit_in_a_table(tmp_path) -> None:
    space = Space(variants=[Variant("a"), Variant("b", Knob("k", [1]))])
    with pytest.raises(SpaceError, match="does not fit one table"):
        Recording("k", "d", space, {}).write(tmp_path / "k.parquet")


def test_constraints_in_a_file_are_read_as_arithmetic_never_run(tmp_path) -> None:
    recorded().write(tmp_path / "k.parquet")
    about = (tmp_path / "k.json").read_text()
    (tmp_path / "k.json").write_text(about.replace('"constraints": null', '"constraints": ["tile <= 16"]'))
    assert len(Recording.read(tmp_path / "k.parquet").space) == 4
    evil = '"constraints": ["__import__(\'os\').abort()"]'
    (tmp_path / "k.json").write_text(about.replace('"constraints": null', evil))
    with pytest.raises(SpaceError, match="plain arithmetic"):
        Recording.read(tmp_path / "k.parquet")
