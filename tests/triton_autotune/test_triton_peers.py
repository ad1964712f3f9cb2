"""Ranks (gloo on CPU, each with a simulated device): a kernel with peers is tuned by all in step or not at all."""

import json
import multiprocessing
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import tunewright as tw
from tunewright.testing.triton_driver import A100, FakeDriver, fake_driver
from tunewright.triton import autotune, peers

distributed = pytest.importorskip("torch.distributed")


@triton.jit
def exchange(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n), at < n)


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 64, 128)]


class MeetingDriver(FakeDriver):
    """A device whose launches end when all ranks have made the same one, as kernels with peers do."""

    def __init__(self, store, rank: int, size: int) -> None:
        super().__init__(A100, seconds=self._seconds)
        self._store, self._rank, self._size, self._number = store, rank, size, 0

    def launch(self, launch) -> None:
        self._number += 1
        name = f"launch {self._number} of BLOCK={launch.config['BLOCK']}"
        self._store.set(f"{name} on {self._rank}", "")
        self._store.wait([f"{name} on {rank}" for rank in range(self._size)], timedelta(seconds=60))
        super().launch(launch)

    def _seconds(self, launch) -> float:
        """Each rank prefers another config; the slowest rank is fastest with 64."""
        block = launch.config["BLOCK"]
        return {(0, 32): 1e-4, (1, 128): 1e-4}.get((self._rank, block), 2e-4 if block == 64 else 4e-4)


def tune_as_rank(rank: int, port: int, folder: str, size: int, configs: int) -> None:
    """What each rank does."""
    store = distributed.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    peers.RANK_SECONDS = 30.0
    tw.configure(cache=f"{folder}/cache {rank}")
    kernel = autotune(CONFIGS[:configs], ["n"], peers=True)(exchange)
    x, out = torch.ones(100), torch.zeros(100)
    with fake_driver(MeetingDriver(store, rank, size)) as driver:
        for _ in range(2):
            kernel[(4,)](x, out, 100)
    decisions = list(tw.current_session().store.decisions())
    result = {"block": kernel.best_config.kwargs["BLOCK"], "decided": [str(one.config) for one in decisions]}
    result["launches"] = [launch.config["BLOCK"] for launch in driver.launches]
    result["notes"] = [note for one in decisions for note in one.evidence.notes]
    Path(folder, f"{rank}.json").write_text(json.dumps(result))


@pytest.fixture
def server():
    return distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)


def run_ranks(server, folder, size=2, configs=(3, 3)) -> list[dict]:
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=tune_as_rank, args=(rank, server.port, str(folder), size, configs[rank]))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        assert process.exitcode == 0
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(size)]


@pytest.mark.slow
def test_ranks_tune_in_step_and_take_what_suits_the_slowest(server, tmp_path):
    first, second = run_ranks(server, tmp_path)
    assert (first["block"], second["block"]) == (64, 64)
    assert first["launches"] == second["launches"]
    assert len(first["decided"]) == 1
    assert "tuned by 2 ranks in step" in first["notes"][0]


@pytest.mark.slow
def test_ranks_that_would_try_different_configs_use_the_default(server, tmp_path):
    first, second = run_ranks(server, tmp_path, configs=(3, 2))
    assert (first["block"], second["block"]) == (32, 32)
    assert first["launches"] == second["launches"] == [32, 32]
    assert first["decided"] == second["decided"] == []


class FakeStore(dict):
    """A key-value store of one process, whose ranks are threads."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def set(self, key, value):
        with self.changed:
            self[key] = value
            self.changed.notify_all()

    def get(self, key):
        return self[key].encode()

    def wait(self, keys, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: set(keys) <= set(self), timeout.total_seconds()):
                raise RuntimeError("wait timeout after 10 ms")

    def compare_set(self, key, expected_value, desired_value):
        with self.changed:
            if super().get(key, "") == expected_value:
                self[key] = desired_value
            return self[key].encode()


def group(store, rank, seconds=0.01) -> peers.RankGroup:
    one = peers.RankGroup(store, rank, 2, seconds)
    one.begin("topic", 1)
    return one


def test_all_ranks_get_what_all_said():
    store, answers = FakeStore(), {}

    def talk(rank):
        one = group(store, rank, 60)
        answers[rank] = [one.exchange(f"{step} from {rank}") for step in range(3)]

    ranks = [threading.Thread(target=talk, args=(rank,)) for rank in range(2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    assert answers[0] == answers[1] == [[f"{step} from 0", f"{step} from 1"] for step in range(3)]


def test_a_rank_that_comes_too_late_does_not_go_on_alone():
    store = FakeStore()
    with pytest.raises(peers.PeersMissing, match=r"another rank did not answer within 0\.01 s"):
        group(store, 0).exchange("ready")
    with pytest.raises(peers.PeersMissing, match="did not answer"):
        group(store, 1).exchange("ready")  # although all answers are there now


def test_a_rank_that_waited_too_long_goes_on_if_others_did():
    store = FakeStore()
    late = group(store, 0)
    store.set("tunewright peers topic 1 0 1", "ready")
    store.set("tunewright peers topic 1 0 verdict", "go")
    store.wait = lambda keys, timeout: (_ for _ in ()).throw(RuntimeError("wait timeout"))
    assert late.exchange("ready too") == ["ready too", "ready"]


def test_a_store_that_is_gone_is_no_agreement():
    store = FakeStore()

    def fail(*_):
        raise RuntimeError("Connection reset by peer")

    store.set = fail
    with pytest.raises(peers.PeersMissing, match=r"the store of torch\.distributed fails: Connection reset"):
        group(store, 0).exchange("ready")


def test_without_a_job_a_kernel_with_peers_is_not_tuned(caplog):
    kernel = autotune(CONFIGS, ["n"], peers=True)(exchange)
    with fake_driver(FakeDriver(A100)) as driver:
        kernel[(4,)](torch.ones(100), torch.zeros(100), 100)
        kernel[(4,)](torch.ones(100), torch.zeros(100), 100)
    assert [launch.config["BLOCK"] for launch in driver.launches] == [32, 32]
    assert "exchange talks to peers and is not tuned" in caplog.text
    assert list(tw.current_session().store.decisions()) == []


def test_a_rank_waits_for_another_that_tunes_for_a_stated_time_only(monkeypatch):
    assert peers.limit_wait(3600.0) == 3600.0
    monkeypatch.setattr(peers, "_distributed", object)
    assert (peers.limit_wait(3600.0), peers.limit_wait(5.0)) == (peers.RANK_SECONDS, 5.0)
