"""Contract tests of pools: subclass `PoolContract` and define the fixtures `pool` and `attempt`."""

from __future__ import annotations

from collections.abc import Iterator

from tunewright.model.trial import Failure, TrialRequest
from tunewright.ports.pool import Attempt, Pool
from tunewright.spaces.config import Config

CONFIGS = [Config(step=i) for i in (1, 2, 4, 8)]
ENTRIES = [TrialRequest(config) for config in CONFIGS]


class PoolContract:
    """Tests of what `ports.pool.Pool` promises; `attempt` tries configs of a knob `step` and fails at `step=4`."""

    def test_each_config_comes_back_once_with_its_outcome(self, pool: Pool, attempt: Attempt) -> None:
        trials = list(pool.run(attempt, ENTRIES))
        assert {trial.config for trial in trials} == set(CONFIGS)
        assert len(trials) == len(CONFIGS)
        assert [t.config["step"] for t in trials if isinstance(t.outcome, Failure)] == [4]

    def test_configs_are_drawn_no_earlier_than_there_is_a_place(self, pool: Pool, attempt: Attempt) -> None:
        drawn: list[TrialRequest] = []

        def source() -> Iterator[TrialRequest]:
            for entry in ENTRIES:
                drawn.append(entry)
                yield entry

        for done, _ in enumerate(pool.run(attempt, source()), start=1):
            assert len(drawn) <= done + pool.width

    def test_nothing_to_do_is_done_at_once(self, pool: Pool, attempt: Attempt) -> None:
        assert list(pool.run(attempt, [])) == []

    def test_a_closed_pool_may_be_used_again(self, pool: Pool, attempt: Attempt) -> None:
        for _ in range(2):
            assert len(list(pool.run(attempt, ENTRIES[:2]))) == 2
            pool.close()
