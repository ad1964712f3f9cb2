"""Workers of kernels that cannot be imported: fresh if this process has threads, since a fork would break them."""

import logging
import os
import sys
import threading

import numpy as np
import pytest

import tunewright as tw
from tunewright.pools import by_value


@pytest.fixture
def other_thread():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    yield
    ended.set()
    thread.join()


def kernel_with(factor, **options):
    session = tw.Session(store="memory:", trials=2)

    @tw.tune(
        tw.Space(tw.Knob("way", [1, 2, 3]), rules=[tw.Rule("no 3", lambda way: way < 3)]),
        reference=lambda a: a * factor,
        session=session,
        **options,
    )
    def kernel(a: tw.In("N"), *, way=1):
        started = {thread.name for thread in threading.enumerate()}
        return a * factor if started == {"MainThread"} else a * 0

    return kernel


def test_a_kernel_in_a_function_runs_in_fresh_workers_beside_threads(other_thread) -> None:
    kernel = kernel_with(3)
    attempt = kernel.attempt(kernel.cases_like([np.ones(4)]))
    assert attempt.target is None
    assert attempt.dumped is not None
    decision = kernel.decide(np.ones(4))
    assert (decision.evidence.trials, decision.evidence.failures) == (2, 0)


LATE_ANNOTATIONS = """
from __future__ import annotations
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("way", [1, 2])), session=session)
def kernel(a: tw.In("N"), *, way: int = 1):
    return a * 2
"""


def test_annotations_may_name_what_only_they_use(other_thread) -> None:
    names = {"session": tw.Session(store="memory:", trials=2), "__name__": "__main__"}
    exec(compile(LATE_ANNOTATIONS, "<cell>", "exec"), names)
    decision = names["kernel"].decide(np.ones(4))
    assert (decision.evidence.trials, decision.evidence.failures) == (2, 0)


def test_without_threads_workers_are_forked(monkeypatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["1"])
    kernel = kernel_with(3)
    assert kernel.attempt(kernel.cases_like([np.ones(4)])).dumped is None


def test_what_cannot_be_sent_says_so_and_what_to_do(other_thread, monkeypatch, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert by_value.dump_kernel("k", threading.Lock().acquire, ()) is None
    assert "put the kernel into a module" in caplog.text
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    caplog.clear()
    assert by_value.dump_kernel("k", print, ()) is None
    assert "pip install tunewright[notebook]" in caplog.text
