"""A bench for commands, which must leave nothing behind."""

import pytest
from command_bench import Bench


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()
    assert not list(made.scratch.iterdir()), "nothing is left behind"
