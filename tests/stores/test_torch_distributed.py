"""Ranks of one job agree on every decision, whoever dies; torch.distributed's own store carries it."""

import json
import multiprocessing
import socket
import time
from pathlib import Path

import pytest
from noisy_trials import SPACE, NoisyTrials, kill_marked, resolve_and_report

from tunewright import Config, Session
from tunewright.errors import StoreError
from tunewright.model.decision import Problem, Tier
from tunewright.stores import serialization, singleflight
from tunewright.stores.consensus import ConsensusStore
from tunewright.stores.memory import MemoryStore
from tunewright.testing.capability_kit import LeaseContract
from tunewright.testing.keys import DECISION, KEY, other_decision
from tunewright.testing.store_kit import StoreContract

distributed = pytest.importorskip("torch.distributed")

RANKS = 8


@pytest.fixture
def server():
    """The store that torchrun's agent would host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return distributed.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)


class TestTorchDistributedStore(StoreContract, LeaseContract):
    @pytest.fixture
    def store(self, server):
        from tunewright.stores.torch_distributed import TorchDistributedStore

        return TorchDistributedStore(server)


class TestConsensusStore(StoreContract, LeaseContract):
    @pytest.fixture
    def store(self, server):
        from tunewright.stores.torch_distributed import TorchDistributedStore

        return ConsensusStore(TorchDistributedStore(server), MemoryStore())


def test_what_one_has_stored_is_published_to_all(server) -> None:
    from tunewright.stores.torch_distributed import TorchDistributedStore

    own = MemoryStore()
    own.put(DECISION)
    for store in (own, MemoryStore()):
        assert ConsensusStore(TorchDistributedStore(server), store).get(KEY) == DECISION


def test_two_who_have_stored_differently_answer_alike(server) -> None:
    from tunewright.stores.torch_distributed import TorchDistributedStore

    stores = [MemoryStore(), MemoryStore()]
    stores[0].put(DECISION)
    stores[1].put(other_decision(config=Config(tile=8)))
    answers = {
        serialization.dump_decision(ConsensusStore(TorchDistributedStore(server), own).get(KEY)) for own in stores
    }
    assert len(answers) == 1


def test_frozen_ranks_settle_also_on_what_is_not_decided(server) -> None:
    from tunewright.stores.torch_distributed import TorchDistributedStore

    near = other_decision(key=KEY.__class__(**{**_fields(KEY), "signature": _sized(KEY, 500)}), config=Config(tile=7))
    owns = [MemoryStore(), MemoryStore()]
    owns[1].put(near)
    sessions = [Session(mode="frozen", store=ConsensusStore(TorchDistributedStore(server), own)) for own in owns]
    answers = [session.lookup_or_policy(Problem(KEY, SPACE, Config(tile=0))) for session in sessions]
    assert [answer.config["tile"] for answer in answers] == [0, 0]
    assert {answer.tier for answer in answers} == {Tier.DEFAULT}


def _fields(key):
    return {name: getattr(key, name) for name in key.__struct_fields__}


def _sized(key, size):
    return key.signature.__class__(key.signature.args, {**key.signature.dims, "M": size})


@pytest.fixture
def gone():
    """The store of ranks whose host is no more."""
    from tunewright.stores.torch_distributed import TorchDistributedStore

    host = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    store = TorchDistributedStore(
        distributed.TCPStore("127.0.0.1", host.port, None, False, wait_for_workers=False), seconds=120
    )
    store.put(DECISION)
    del host
    return store


def test_a_host_that_is_gone_is_a_store_error(gone) -> None:
    with pytest.raises(StoreError, match=r"store of torch\.distributed fails"):
        gone.get(KEY)
    assert ConsensusStore(gone, MemoryStore()).put(DECISION) == DECISION, "stored locally"


@pytest.mark.clock("within 10 s, of a time-out of 120 s")
def test_a_host_that_is_gone_is_noticed_before_the_time_out(gone) -> None:
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"store of torch\.distributed fails"):
        gone.get(KEY)
    assert time.monotonic() - began < 10


def _seconds_of(tile: int) -> float:
    return 1e-3 * (1 + 0.001 * tile % 3)


def _rank(number: int, port: int, folder: str, last: int) -> None:
    from tunewright.stores import torch_distributed

    singleflight.LEASE = 3600.0  # a leader that a busy machine holds up is not dead
    torch_distributed.SECONDS = 300.0
    store = distributed.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
    distributed.init_process_group("gloo", store=store, rank=number, world_size=RANKS)
    session = Session(cache=folder, store="torch:", pool="serial", trials=12)
    trials = NoisyTrials(number, _seconds_of, f"{folder}/../leader", last)
    resolve_and_report(session, trials, Path(folder) / f"{number}.json")


def _end_lease(server) -> None:
    """As if it had not been renewed for as long as it lasts."""
    (place,) = [name for name in server.list_keys() if name.endswith(f"tunewright/lease tune {KEY.digest}")]
    held = server.get(place).decode()
    owner, _, turn = held.split("\n")
    ended = f"{owner}\n0\n{int(turn) + 1}"
    assert server.compare_set(place, held, ended).decode() == ended


def _run(server, tmp_path, wait_until, last: int = 0) -> list[list]:
    context = multiprocessing.get_context("spawn")
    folders = [tmp_path / str(i) for i in range(RANKS)]
    for folder in folders:
        folder.mkdir()
    ranks = [context.Process(target=_rank, args=(i, server.port, str(folders[i]), last)) for i in range(RANKS)]
    for rank in ranks:
        rank.start()
    try:
        if last:
            kill_marked(tmp_path / "leader", wait_until)
            _end_lease(server)
        for rank in ranks:
            rank.join(600)
            assert rank.exitcode is not None, "a rank hangs"
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*/*.json"))]


@pytest.mark.slow
def test_eight_gloo_ranks_without_a_shared_store_decide_the_same_bytes_and_one_of_them_tunes(
    server, tmp_path, wait_until
) -> None:
    found = _run(server, tmp_path, wait_until)
    assert len(found) == RANKS
    assert len({body for body, _ in found}) == 1
    assert sum(searches for _, searches in found) == 1


@pytest.mark.slow
def test_a_tuning_rank_that_is_killed_is_replaced_and_the_others_agree(server, tmp_path, wait_until) -> None:
    found = _run(server, tmp_path, wait_until, last=5)
    assert len(found) == RANKS - 1
    assert len({body for body, _ in found}) == 1
    assert sum(searches for _, searches in found) == 1


def test_ranks_need_a_process_group() -> None:
    from tunewright.stores.torch_distributed import TorchDistributedStore

    with pytest.raises(StoreError, match="init_process_group"):
        TorchDistributedStore.at("torch:")
