"""What gained in other graphs decides what is compiled first."""

import pytest
import torch

from tunewright.backends.host import cpu
from tunewright.torch import expected_gains, graph_space
from tunewright.torch.expected_gains import NONE, ProductGain, expected_gain
from tunewright.torch.graph_space import CHOSEN, LIBRARY, TEMPLATE
from tunewright.torch.product_shares import Product, estimate_cost


def product(rows, dtype=torch.float32, columns=1024, depth=1024):
    sizes = rows, columns, depth
    return Product(sizes, dtype, estimate_cost(sizes, dtype.itemsize))


def with_features(monkeypatch, *features):
    device = cpu()
    monkeypatch.setattr(expected_gains, "cpu", lambda: type(device)(**{**fields(device), "features": features}))


def fields(device):
    return {name: getattr(device, name) for name in device.__struct_fields__}


def order(gain, **space):
    found = graph_space.seeds(graph_space.make_space(gemms=True, padding=False, **space), huge=False, gain=gain)
    return list(dict.fromkeys(seed["products"] for seed in found if seed.get("freezing")))


def test_many_rows_in_single_precision_are_left_to_the_library_first() -> None:
    gain = expected_gain([product(128)], 0.0)
    assert gain.template < -0.5 < gain.chosen < 0.1
    assert order(gain) == [LIBRARY, CHOSEN, TEMPLATE]


def test_few_rows_are_chosen_one_by_one_first() -> None:
    assert order(expected_gain([product(16)], 0.0)) == [CHOSEN, LIBRARY, TEMPLATE]


def test_bfloat16_without_instructions_for_it_is_chosen_first_and_templates_come_second(monkeypatch) -> None:
    with_features(monkeypatch, "avx512bw", "avx512vl")
    assert order(expected_gain([product(128, torch.bfloat16)], 0.0)) == [CHOSEN, TEMPLATE, LIBRARY]


@pytest.mark.parametrize("feature", ["amx_bf16", "avx512_bf16"])
def test_bfloat16_with_instructions_for_it_is_left_to_the_library_first(feature, monkeypatch) -> None:
    with_features(monkeypatch, feature)
    assert order(expected_gain([product(128, torch.bfloat16)], 0.0)) == [LIBRARY, CHOSEN, TEMPLATE]


def test_what_products_gain_counts_as_far_as_they_take_time() -> None:
    alone = expected_gain([product(16)], 0.0)
    beside = expected_gain([product(16)], 20 * product(16).cost)
    assert 0 < beside.chosen < graph_space.SEARCH_COST < alone.chosen
    assert order(beside)[0] == LIBRARY


@pytest.mark.parametrize("products", [[], [product(16, torch.float16)]], ids=["no products", "an unknown dtype"])
def test_nothing_is_expected_of_what_was_never_measured(products) -> None:
    assert expected_gain(products, 1.0) == pytest.approx(NONE)
    assert order(NONE) == [LIBRARY, CHOSEN, TEMPLATE]


def test_the_default_and_eager_mode_stay_first_whatever_is_expected() -> None:
    space = graph_space.make_space(gemms=True, padding=True)
    for gain in (NONE, ProductGain(2.0, 1.0), ProductGain(-2.0, -1.0)):
        seeds = graph_space.seeds(space, huge=True, gain=gain)
        assert seeds[0] == graph_space.UNCOMPILED
        assert set(seeds) == set(graph_space.seeds(space, huge=True))


def test_templates_that_are_expected_to_be_slow_come_last() -> None:
    space = graph_space.make_space(gemms=True, padding=True)
    assert graph_space.seeds(space, huge=False, gain=ProductGain(-0.9, 0.0))[-1]["products"] == TEMPLATE
