"""The parts of a match: policy, draws, shared memory, tasks, and the filter of system calls."""

import errno
import os

import numpy as np
import pytest

from tunewright.referee import Task, TaskError, landlock, load_task, seccomp, syscalls
from tunewright.referee.arena import GUARD, SLOTS, Arena, ResultArena, spaced_bytes
from tunewright.referee.checking import ResultChecker
from tunewright.referee.draws import FRESH, NEIGHBOR, REPEAT, Draws, make_arguments
from tunewright.referee.messages import MemorySizes, PlacedLaunch, StagedLaunch
from tunewright.referee.namespaces import outermost
from tunewright.referee.policy import find_breach
from tunewright.referee.staging import LaunchMemory, Staging

F32 = np.dtype(np.float32)


def double(x, w):
    return 2 * x + w


def inputs(rng, n):
    return rng.standard_normal(n, dtype=np.float32), rng.standard_normal(n, dtype=np.float32)


def make_task(**more) -> Task:
    return Task(double, inputs, **({"shapes": [{"n": 64}, {"n": 256}]} | more))


@pytest.mark.parametrize(
    "source",
    [
        "import os", "from os import path", "import numpy.f2py, socket", "__import__('os')", "exec('import os')",
        "from . import other", "def f(:",
    ],
)  # fmt: skip
def test_what_may_not_be_imported_is_refused(source) -> None:
    assert find_breach(source, make_task()) is not None


def test_usual_imports_and_free_tasks_are_not_refused() -> None:
    usual = "import numpy as np\nfrom functools import lru_cache\ngetattr(np, 'sin')"
    assert find_breach(usual, make_task()) is None
    assert find_breach("import os, socket\nexec('1')", make_task(imports=None)) is None


@pytest.mark.parametrize(
    "source",
    ["c = a @ b", "a @= b", "np.matmul(a, b)", "from numpy import matmul", "getattr(np, 'mat' + 'mul')", "np.__dict__"],
)
def test_forbidden_calls_are_refused_however_they_are_written(source) -> None:
    assert find_breach(source, make_task(forbidden=["matmul", "@"])) is not None
    assert find_breach(source, make_task(imports=None)) is None


def test_draws_have_all_kinds_and_shapes_and_do_not_repeat_a_pattern() -> None:
    draws = Draws(make_task(), 5)
    drawn = [draws.draw() for _ in range(400)]
    kinds = [each.kind for each in drawn]
    assert set(kinds) == {FRESH, REPEAT, NEIGHBOR}
    assert 0.5 < kinds.count(FRESH) / 400 < 0.9
    assert {each.shape for each in drawn} == {0, 1}
    fresh = [each.seed for each in drawn if each.kind == FRESH]
    assert len(set(fresh)) == len(fresh)
    assert {each.seed for each in drawn if each.kind != FRESH} <= set(fresh)


def test_an_old_input_comes_at_another_address_and_a_changed_one_at_the_old() -> None:
    draws, slots = Draws(make_task(), 5), {}
    for _ in range(300):
        drawn = draws.draw()
        if drawn.kind == FRESH:
            slots[drawn.seed] = drawn.position
        elif drawn.kind == REPEAT:
            assert drawn.position.slot != slots[drawn.seed].slot
        else:
            assert drawn.position == slots[drawn.seed]


def test_a_neighbor_differs_in_two_elements_and_repeats_in_none() -> None:
    task = make_task(constant=["w"])
    draws = Draws(task, 5)
    drawn = next(each for each in iter(draws.draw, None) if each.kind == NEIGHBOR)
    before = make_arguments(task, drawn._replace(swap=0), 5)
    after = make_arguments(task, drawn, 5)
    assert np.count_nonzero(before[0] != after[0]) == 2
    assert sorted(before[0]) == sorted(after[0])
    assert np.array_equal(before[1], after[1])


def test_structured_inputs_are_never_changed() -> None:
    draws = Draws(make_task(structured=True), 5)
    assert {draws.draw().kind for _ in range(100)} == {FRESH, REPEAT}


def test_constant_arguments_stay_and_others_change() -> None:
    task = make_task(constant=["w"])
    (x1, w1), (x2, w2) = (task.make_inputs(0, seed, 9) for seed in (1, 2))
    assert np.array_equal(w1, w2)
    assert not np.array_equal(x1, x2)
    assert not np.array_equal(w1, task.make_inputs(0, 1, 10)[1])


def test_what_is_written_beside_results_is_seen() -> None:
    arena = ResultArena(spaced_bytes([256]), np.random.default_rng(1))
    try:
        (place,) = arena.places(1, 7, [((64,), F32)])
        image = arena.slot_view(1).copy()
        view = arena.view(place, F32, image)
        assert not np.array_equal(view, np.zeros(64, np.float32))
        view[:] = 1
        assert arena.is_clean_around(image, [place], [256])
        for beside in (-8, 256 + 8):
            changed = image.copy()
            changed[place.offset % arena.slot_bytes + beside] ^= 1
            assert not arena.is_clean_around(changed, [place], [256])
        assert arena.is_clean()
        arena.memory[0] ^= 1  # another slot
        assert not arena.is_clean()
        arena.restore()
        assert arena.is_clean()
    finally:
        arena.close()


def test_inputs_are_shown_at_their_turn_and_late_results_are_not_kept() -> None:
    inputs, results = (
        Arena(spaced_bytes([256]), name="test"),
        ResultArena(spaced_bytes([256]), np.random.default_rng(1)),
    )
    sizes = MemorySizes(inputs.slot_bytes, results.slot_bytes, frames=2)
    staging = Staging(sizes)
    try:
        staging.poison[:] = results.poison
        memory = LaunchMemory(sizes, inputs.descriptor, results.descriptor, staging.descriptor)
        for number in range(2):
            staging.inputs(number)[:] = 10 + number
        launch = StagedLaunch(2, 100, PlacedLaunch((), ()))
        memory.deliver(0, launch)
        assert set(inputs.slot_view(2)[:100]) == {10}, "the next ones are not there yet"
        assert not inputs.memory[: 2 * inputs.slot_bytes].any()
        results.slot_view(2)[5] = results.poison[5] ^ 1
        memory.collect(0, launch)
        assert staging.results(0)[5] == results.poison[5] ^ 1
        assert results.is_clean(), "what is written from now on is written too late"
    finally:
        for each in (inputs, results, staging):
            each.close()


def test_places_are_aligned_and_within_their_slot() -> None:
    arena = Arena(spaced_bytes([100, 4000]), name="test")
    try:
        for slot in range(SLOTS):
            for shift in (0, 1, 63, 64, 65535):
                first, second = arena.places(slot, shift, [((25,), F32), ((1000,), F32)])
                assert first.offset % 64 == second.offset % 64 == 0
                assert first.offset + 100 + GUARD <= second.offset
                slot_end = (slot + 1) * arena.nbytes // SLOTS
                assert second.offset + 4000 + GUARD <= slot_end + GUARD
    finally:
        arena.close()


def test_memory_of_inputs_cannot_be_mapped_for_writing() -> None:
    import mmap

    arena = Arena(4096, name="test")
    descriptor = arena.read_only_descriptor()
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, arena.nbytes)
        mmap.mmap(descriptor, arena.nbytes, mmap.MAP_SHARED, mmap.PROT_READ).close()
    finally:
        os.close(descriptor)
        arena.close()


def test_a_task_that_a_constant_would_solve_is_refused() -> None:
    checker = ResultChecker(make_task(tolerance=1e6), 0)
    with pytest.raises(TaskError, match="a constant would pass"):
        checker.require_sensitive([1, 2], 0)
    ResultChecker(make_task(), 0).require_sensitive([1, 2], 0)


def test_lower_precision_is_wrong_and_another_order_of_a_sum_is_not() -> None:
    def total(x):
        return x.sum(axis=1)

    task = Task(total, lambda rng: (rng.random((8, 1000), dtype=np.float32),))
    checker, (x,) = ResultChecker(task, 0), task.make_inputs(0, 1, 0)
    expected = checker.expected([x])
    assert expected[0].dtype == np.float64
    assert checker.find_mismatch(expected, [x[:, ::-1].sum(axis=1)], [x]) is None
    assert "wrong" in str(checker.find_mismatch(expected, [x.astype(np.float16).sum(axis=1).astype(np.float32)], [x]))


def test_a_tolerance_may_be_declared_by_dtype() -> None:
    task = make_task(tolerance={"float32": 0.5})
    assert task.tolerance_for("float32") == 0.5
    assert task.tolerance_for("float64") is None


def test_a_task_file_must_define_a_task(tmp_path) -> None:
    path = tmp_path / "task.py"
    with pytest.raises(TaskError, match=r"folder with task\.py"):
        load_task(tmp_path)
    path.write_text("x = 1\n")
    with pytest.raises(TaskError, match="defines no `task"):
        load_task(tmp_path)
    lines = "from tunewright.referee import Task", "def f(x): return x", "task = Task(f, lambda rng: (rng.random(3),))"
    path.write_text("\n".join(lines))
    task = load_task(tmp_path)
    assert task.entry_name == "f"
    assert task.source == path.read_text()


def test_an_unknown_constant_is_named() -> None:
    with pytest.raises(TaskError, match=r"'weights' is no parameter.*x, w"):
        make_task(constant=["weights"])


def interpret(program, number: int, arguments=()) -> int:
    """Runs a filter on a system call as the kernel does; returns 0 if it is allowed, else the error number."""
    import platform

    values = {0: number, 4: syscalls.ARCHITECTURES[platform.machine()]}
    values |= {16 + 8 * i: value & 0xFFFFFFFF for i, value in enumerate((*arguments, 0, 0))}
    at = loaded = 0
    while True:
        code, true, false, operand = program[at]
        at += 1
        if code == 0x20:
            loaded = values[operand]
        elif code == 0x06:
            return 0 if operand == 0x7FFF0000 else operand & 0xFFFF
        else:
            holds = {0x15: loaded == operand, 0x45: bool(loaded & operand), 0x35: loaded >= operand}[code]
            at += true if holds else false


def test_the_filter_forbids_what_it_names_and_allows_the_rest() -> None:
    numbers = syscalls.numbers()
    alone = seccomp.build_filter(processes=False, pid=7)
    for name in ("ptrace", "socket", "execve", "mount", "io_uring_setup", "sched_setaffinity", "process_vm_readv"):
        assert interpret(alone, numbers[name]) == errno.EPERM, name
    assert interpret(alone, numbers["clone3"]) == errno.ENOSYS
    assert interpret(alone, numbers["clone"], [0x11]) == errno.EPERM
    assert interpret(alone, numbers["clone"], [0x3D0F00]) == 0  # a thread
    assert interpret(alone, numbers["kill"], [7]) == 0
    assert interpret(alone, numbers["kill"], [1]) == errno.EPERM
    assert interpret(alone, numbers["prctl"], [1]) == errno.EPERM
    assert interpret(alone, numbers["prctl"], [15]) == 0
    assert interpret(alone, 0) == interpret(alone, 1) == 0  # read and write
    several = seccomp.build_filter(processes=True, pid=None)
    assert interpret(several, numbers["clone"], [0x11]) == interpret(several, numbers["execve"]) == 0
    assert interpret(several, numbers["kill"], [1]) == 0
    assert interpret(several, numbers["ptrace"]) == errno.EPERM


def test_what_an_older_kernel_does_not_restrict_is_named() -> None:
    assert landlock.lacking(6) == {}
    assert set(landlock.lacking(3)) == {"landlock for TCP", "landlock for device control", "landlock for signals"}
    assert "version 3 of Landlock, and it came with 4" in landlock.lacking(3)["landlock for TCP"]


def test_paths_below_others_are_shown_once(tmp_path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    wanted = [str(tmp_path / "a"), str(inner), str(tmp_path / "ab"), str(tmp_path / "missing")]
    assert outermost(wanted) == [str(tmp_path / "a"), str(tmp_path / "ab")]


def test_new_inputs_come_to_old_addresses_too() -> None:
    draws = Draws(make_task(), 5)
    fresh = [drawn for drawn in (draws.draw() for _ in range(200)) if drawn.kind == FRESH]
    places = [(drawn.shape, drawn.position) for drawn in fresh]
    assert len(set(places)) < 0.8 * len(places)


def test_constant_arguments_are_the_same_for_shapes_that_have_them_in_one_size() -> None:
    def both(x, w):
        return x[:, None] * w

    def make(rng, n):
        return rng.standard_normal(n), rng.standard_normal(7)

    task = Task(both, make, shapes=[{"n": 3}, {"n": 30}], constant=["w"])
    (x1, w1), (x2, w2) = (task.make_inputs(shape, 1, 5) for shape in (0, 1))
    assert np.array_equal(w1, w2)
    assert (len(x1), len(x2)) == (3, 30)
