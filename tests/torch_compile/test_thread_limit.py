"""A graph may be compiled and called with fewer threads than its process has, which keeps its own number."""

import threading

import pytest
import torch

from tunewright.session import Session
from tunewright.stores.memory import MemoryStore
from tunewright.torch import compile, graph_space, thread_limit
from tunewright.torch.inductor import graphs
from tunewright.torch.thread_limit import ALL, LimitedCall, choices, limited


@pytest.fixture(autouse=True)
def several_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("count", "expected"), [(1, [ALL]), (2, [ALL, 1]), (3, [ALL, 1]), (8, [ALL, 4, 1])])
def test_a_graph_may_have_all_threads_half_of_them_or_one(count, expected):
    assert choices(count) == expected


def test_a_call_has_its_threads_and_the_process_has_its_own_again():
    assert LimitedCall(torch.get_num_threads, 2)() == 2
    assert torch.get_num_threads() == 4


def test_a_call_that_fails_gives_the_threads_back():
    def fail():
        raise ValueError(torch.get_num_threads())

    with pytest.raises(ValueError, match="1"):
        LimitedCall(fail, 1)()
    assert torch.get_num_threads() == 4
    with pytest.raises(ValueError, match="1"), limited(1):
        fail()
    assert torch.get_num_threads() == 4


def test_calls_in_calls_never_have_more_threads_than_the_outer_one():
    seen = []

    def outer():
        seen.append(LimitedCall(torch.get_num_threads, 3)())
        seen.append(LimitedCall(torch.get_num_threads, 1)())
        seen.append(torch.get_num_threads())

    LimitedCall(outer, 2)()
    assert seen == [2, 1, 2]
    assert torch.get_num_threads() == 4


def test_a_process_that_lowered_its_threads_later_gets_no_more_of_them():
    torch.set_num_threads(1)
    assert LimitedCall(torch.get_num_threads, 2)() == 1
    assert torch.get_num_threads() == 1


def test_another_thread_that_computes_meanwhile_keeps_its_number():
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other():
        seen.append(torch.get_num_threads())
        inside.set()
        leave.wait(60)
        seen.append(torch.get_num_threads())

    worker = threading.Thread(target=other)
    worker.start()
    inside.wait(60)

    def call():
        leave.set()
        worker.join(60)

    LimitedCall(call, 1)()
    assert seen == [4, 4]


def test_a_thread_that_first_computes_meanwhile_has_the_number_of_the_process():
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other():
        seen.append(torch.get_num_threads())
        inside.set()
        leave.wait(60)
        seen.append(torch.get_num_threads())

    def call():
        worker = threading.Thread(target=other)
        worker.start()
        inside.wait(60)
        return worker

    for run in (LimitedCall(call, 1), limited(1)(call)):
        worker = run()
        leave.set()
        worker.join(60)
        inside.clear()
        leave.clear()
    assert seen == [4, 4, 4, 4]


def test_openmp_and_mkl_have_the_number_in_a_call_and_their_own_after_it():
    def numbers():
        lines = [line.partition(":") for line in torch.__config__.parallel_info().splitlines()]
        return {name.strip(): int(text) for name, _, text in lines if "get_max_threads" in name}

    own = numbers()
    assert set(LimitedCall(numbers, 1)().values()) == {1}
    assert numbers() == own


def test_where_the_functions_under_pytorch_are_not_found_its_own_is_used(monkeypatch):
    monkeypatch.setattr(thread_limit, "_is_honoured", lambda setter: False)
    setter = thread_limit.thread_setter.__wrapped__()
    assert setter is thread_limit._set_for_all
    restored = setter(2, 2)
    assert torch.get_num_threads() == 2
    setter(4, restored)
    assert torch.get_num_threads() == 4


def test_a_process_with_one_thread_has_the_space_that_it_always_had():
    assert (
        graph_space.make_space(gemms=True, padding=True, threads=1).names
        == graph_space.make_space(gemms=True, padding=True).names
    )
    space = graph_space.make_space(gemms=True, padding=True, threads=2)
    assert "threads" in space.names
    assert graph_space.default(space)["threads"] == ALL
    assert any(config.get("threads") == 1 for config in graph_space.seeds(space, huge=False))


@pytest.mark.parametrize("freezing", [False, True])
def test_a_graph_with_one_thread_is_compiled_and_called_so_and_right(freezing, monkeypatch):
    seen, compiled_with = [], []
    first, compile_graph = LimitedCall.__init__, graphs.compile_graph

    def watch_compile(*arguments):
        compiled_with.append(torch.get_num_threads())
        return compile_graph(*arguments)

    def watch(self, call, count):
        def watched(*arguments):
            seen.append(torch.get_num_threads())
            return call(*arguments)

        first(self, watched, count)

    monkeypatch.setattr(LimitedCall, "__init__", watch)
    monkeypatch.setattr(graphs, "compile_graph", watch_compile)
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), torch.randn(4, 8)
    chosen = {"freezing": freezing, "threads": 1}
    session = Session(store=MemoryStore(), mode="frozen")
    with torch.no_grad():
        compiled = compile(model, session=session, overrides={"graph *": chosen})
        assert float((compiled(x) - model(x)).abs().max()) < 1e-6
        compiled(x)
    assert seen
    assert set(seen) == {1}
    assert compiled_with == [1]
    assert torch.get_num_threads() == 4
