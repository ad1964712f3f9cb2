"""Ranks of one job agree on every decision, whoever dies; torch.distributed's own store carries it."""

import json
import multiprocessing
import os
import random
import signal
import socket
import time

import pytest

from tunewright import Config, Knob, Session, Space
from tunewright.errors import StoreError
from tunewright.model.decision import Problem, Tier
from tunewright.model.trial import Timing, Trial
from tunewright.sharing import wire
from tunewright.stores.agreed import Agreed
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import DECISION, KEY, other_decision
from tunewright.testing.offer_kit import LeaseContract
from tunewright.testing.store_kit import StoreContract

distributed = pytest.importorskip("torch.distributed")

SPACE = Space(Knob("tile", list(range(12))))
RANKS = 8


@pytest.fixture
def server():
    """The store that torchrun's agent would host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return distributed.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)


class TestRankStore(StoreContract, LeaseContract):
    @pytest.fixture
    def store(self, server):
        from tunewright.stores.ranks import RankStore

        return RankStore(server)


class TestAgreed(StoreContract, LeaseContract):
    @pytest.fixture
    def store(self, server):
        from tunewright.stores.ranks import RankStore

        return Agreed(RankStore(server), MemoryStore())


def test_what_one_has_stored_is_published_to_all(server) -> None:
    from tunewright.stores.ranks import RankStore

    own = MemoryStore()
    own.put(DECISION)
    one, other = Agreed(RankStore(server), own), Agreed(RankStore(server), MemoryStore())
    assert one.get(KEY) == DECISION
    assert other.get(KEY) == DECISION


def test_two_who_have_stored_differently_answer_alike(server) -> None:
    from tunewright.stores.ranks import RankStore

    stores = [MemoryStore(), MemoryStore()]
    stores[0].put(DECISION)
    stores[1].put(other_decision(config=Config(tile=8)))
    answers = {wire.dump_decision(Agreed(RankStore(server), own).get(KEY)) for own in stores}
    assert len(answers) == 1


def test_frozen_ranks_settle_also_on_what_is_not_decided(server) -> None:
    from tunewright.stores.ranks import RankStore

    near = other_decision(key=KEY.__class__(**{**_fields(KEY), "signature": _sized(KEY, 500)}), config=Config(tile=7))
    owns = [MemoryStore(), MemoryStore()]
    owns[1].put(near)
    sessions = [Session(mode="frozen", store=Agreed(RankStore(server), own)) for own in owns]
    answers = [session.answer(Problem(KEY, SPACE, Config(tile=0))) for session in sessions]
    assert [answer.config["tile"] for answer in answers] == [0, 0]
    assert {answer.tier for answer in answers} == {Tier.DEFAULT}


def _fields(key):
    return {name: getattr(key, name) for name in key.__struct_fields__}


def _sized(key, size):
    return key.signature.__class__(key.signature.args, {**key.signature.dims, "M": size})


def test_a_host_that_is_gone_is_a_store_error_within_the_time_out() -> None:
    from tunewright.stores.ranks import RankStore

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_host, args=(theirs,))
    process.start()
    store = RankStore(distributed.TCPStore("127.0.0.1", ours.recv(), None, False, wait_for_workers=False), seconds=2)
    store.put(DECISION)
    process.kill()
    process.join()
    began = time.monotonic()
    with pytest.raises(StoreError, match="does not answer"):
        store.get(KEY)
    assert time.monotonic() - began < 10
    assert Agreed(store, MemoryStore()).put(DECISION) == DECISION, "kept at home"


def _host(pipe) -> None:
    store = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    pipe.send(store.port)
    signal.pause()


class Noisy:
    """Near ties under noise that differs from rank to rank: alone, ranks would choose differently."""

    def __init__(self, seed: int, seconds: float) -> None:
        self._rng, self._seconds = random.Random(seed), seconds

    def __call__(self, entry):
        time.sleep(self._seconds)
        samples = tuple(1e-3 * (1 + 0.001 * entry.config["tile"] % 3) * self._rng.uniform(0.95, 1.05) for _ in range(5))
        return Trial(entry.config, Timing(samples, "cpu"))


def _rank(number: int, port: int, folder: str, pause: float) -> None:
    store = distributed.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
    distributed.init_process_group("gloo", store=store, rank=number, world_size=RANKS)
    session = Session(cache=folder, store="torch:", pool="serial", trials=12)
    problem = Problem(KEY, SPACE, Config(tile=0))

    def told(event) -> None:
        if session.counts["measurements"] == 1:
            with open(f"{folder}/leader", "a") as out:
                out.write(f"{number} {os.getpid()}\n")

    session.listeners.append(told)
    decision = session.resolve(problem, Noisy(number, pause))
    with open(f"{folder}/{number}.json", "w") as out:
        json.dump([wire.dump_decision(decision).decode(), session.counts["searches"]], out)


def _run(server, tmp_path, *, kill: bool) -> list[list]:
    context = multiprocessing.get_context("spawn")
    folders = [tmp_path / str(i) for i in range(RANKS)]
    for folder in folders:
        folder.mkdir()
    pause = 0.1 if kill else 0.01
    ranks = [context.Process(target=_rank, args=(i, server.port, str(folders[i]), pause)) for i in range(RANKS)]
    for rank in ranks:
        rank.start()
    if kill:
        deadline = time.monotonic() + 60
        while not (marks := list(tmp_path.glob("*/leader"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.5))
        os.kill(int(marks[0].read_text().split()[1]), signal.SIGKILL)
    for rank in ranks:
        rank.join(90)
        assert rank.exitcode is not None, "a rank hangs"
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*/*.json"))]


@pytest.mark.slow
def test_eight_gloo_ranks_without_a_shared_store_decide_the_same_bytes_and_one_of_them_tunes(server, tmp_path) -> None:
    found = _run(server, tmp_path, kill=False)
    assert len(found) == RANKS
    assert len({body for body, _ in found}) == 1
    assert sum(searches for _, searches in found) == 1


@pytest.mark.slow
def test_a_tuning_rank_that_is_killed_is_replaced_and_the_others_agree(server, tmp_path) -> None:
    found = _run(server, tmp_path, kill=True)
    assert len(found) == RANKS - 1
    assert len({body for body, _ in found}) == 1
    assert sum(searches for _, searches in found) == 1


def test_ranks_need_a_process_group() -> None:
    from tunewright.stores.ranks import RankStore

    with pytest.raises(StoreError, match="init_process_group"):
        RankStore.at("torch:")
