"""Kernels as people write them, under Triton's own autotuner and under ours: what can be seen is the same (rung 2)."""

from pathlib import Path

import pytest

from tunewright.testing.triton_driver import FakeDriver, fake_driver
from tunewright.triton.tuner import TritonTuner

SUITE = sorted(path.stem for path in (Path(__file__).parent / "kernels").glob("*.py"))


def tuner_of(kernel):
    while not hasattr(kernel, "configs"):
        kernel = kernel.fn
    return kernel


def seconds(launch):
    """Well apart for configs that differ, and always the same: wide blocks and few warps are fast."""
    sizes = [value for value in launch.config.values() if isinstance(value, int) and not isinstance(value, bool)]
    return 1e-4 * (1 + sum(sizes) % 97 / 10 + sum(size * i for i, size in enumerate(sizes)) % 13)


def seen(launches):
    return {(launch.kernel, launch.grid, tuple(sorted(launch.config.items(), key=str))) for launch in launches}


def observed(module, driver):
    """All that a program can see of tuning: launches, decisions, timings, and what a second call does."""
    found = []
    for kernel, grid, args, kwargs in module.calls():
        before, tuner = len(driver.launches), tuner_of(kernel)
        kernel[grid](*args, **kwargs)
        first = driver.launches[before:]
        kernel[grid](*args, **kwargs)
        found.append(
            {
                "launches": seen(first),
                "last": seen(first[-1:]),
                "again": [seen([launch]) for launch in driver.launches[before + len(first) :]],
                "keys": list(tuner.cache),
                "best": tuner.best_config.all_kwargs(),
                "tried": {str(config) for config in tuner.configs_timings},
                "fastest": str(min(tuner.configs_timings, key=tuner.configs_timings.get)),
                "names": (tuner.base_fn.__name__, tuner.nargs, tuner.keys, tuner.arg_names, tuner.bench_time > 0),
            }
        )
    return found


def test_there_are_at_least_a_dozen():
    assert len(SUITE) >= 12


@pytest.mark.parametrize("name", SUITE)
def test_a_program_sees_the_same_as_under_stock(name, kernels):
    results = []
    for ours in (False, True):
        with fake_driver(FakeDriver(seconds=seconds)) as driver:
            module = kernels(name, ours=ours)
            assert isinstance(tuner_of(module.calls()[0][0]), TritonTuner) == ours
            results.append(observed(module, driver))
            results[-1].append(getattr(module, "SEEN", [])[-2:])
    assert results[0] == results[1]


def test_hooks_are_called_as_by_stock(kernels):
    orders = []
    for ours in (False, True):
        with fake_driver(FakeDriver(seconds=seconds)):
            module = kernels("hooked", ours=ours)
            kernel, grid, args, kwargs = module.calls()[0]
            kernel[grid](*args, **kwargs)
            tuning, final = module.SEEN[:-2], module.SEEN[-2:]
            pairs = {tuple(tuning[i : i + 3]) for i in range(0, len(tuning), 3)}
            orders.append((pairs, final))
    assert orders[0] == orders[1]
    assert orders[1] == (
        {("config 64", "before", "after"), ("config 128", "before", "after")},
        ["reset", orders[1][1][1]],
    )


def test_a_warmup_through_heuristics_launches_nothing(kernels, driver, ours):
    import torch

    kernels("heuristics_outside", ours=ours).row_sums.warmup(torch.float32, torch.float32, 100, grid=(8,))
    assert driver.launches == []


def test_warmup_compiles_every_config_and_launches_none(kernels, driver, ours):
    import torch

    kernel = kernels("softmax", ours=ours).softmax
    made = kernel.warmup(torch.float32, torch.float32, 100, 100, 100, BLOCK=128, grid=(4,))
    assert [one.metadata.num_warps for one in made] == [1, 2, 4]
    assert driver.launches == []
