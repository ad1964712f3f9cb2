"""Search space of a whole graph, whose configs are judged end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant
from tunewright.torch import thread_limit
from tunewright.torch.expected_gains import NONE, ProductGain
from tunewright.torch.reduced_precision import FULL

EAGER, INDUCTOR = "eager", "inductor"
LIBRARY, TEMPLATE, CHOSEN = "library", "template", "chosen"
SMALL, HUGE = "small", "huge"
PLAIN = Config(
    {
        VARIANT: INDUCTOR,
        "freezing": False,
        "products": LIBRARY,
        "wrapper": "python",
        "lanes": 0,
        "fusion": 64,
        "pages": SMALL,
    }
)
"""What `torch.compile` does by itself."""

UNCOMPILED = Config({VARIANT: EAGER})
"""Eager mode, which costs no compilation."""


def make_space(
    *, gemms: bool, padding: bool, freezing: bool = True, numerics: Sequence[str] = (), threads: int = 1
) -> Space:
    """Returns the space of a graph: with `gemms`, their implementations; with `padding`, sizes that are rounded up.

    Without `freezing`, weights stay inputs, as training needs them. `numerics` are the reduced precisions allowed.
    Where the process has several `threads`, a graph may have fewer.
    """
    knobs = [
        Knob("freezing", [False, True] if freezing else [False]),
        Knob("products", [LIBRARY, TEMPLATE, CHOSEN] if gemms else [LIBRARY]),
        Knob("wrapper", ["python", "cpp"]),
        Knob("lanes", [0, 256]),
        Knob("fusion", [8, 64]),
        Knob("pages", [SMALL, HUGE]),
    ]
    rules = [
        Rule("products are chosen on frozen weights", lambda freezing, products: freezing or products == LIBRARY),
        Rule("only frozen weights are gathered", lambda freezing, pages: freezing or pages == SMALL),
    ]
    if padding:
        knobs.append(Knob("padding", [False, True]))
        rules.append(Rule("only frozen weights are padded", lambda freezing, padding: freezing or not padding))
    if numerics:
        knobs.append(Knob("precision", [FULL, *numerics]))
        rules.append(Rule("only frozen weights are rounded", lambda freezing, precision: freezing or precision == FULL))
    if threads > 1:
        knobs.append(Knob("threads", thread_limit.choices(threads)))
    return Space(variants=[Variant(EAGER), Variant(INDUCTOR, *knobs, rules=rules)])


def default(space: Space) -> Config:
    """Returns the config that is used without a decision."""
    return _complete(space, PLAIN)


SEARCH_COST = 0.05
"""What choosing products one by one must be expected to gain to come before the library's: it takes longer."""

MUCH_SLOWER = -0.2
"""C++ templates come last if they are expected to gain less, which is a loss: compiling them takes half a minute."""


def seeds(space: Space, *, huge: bool, gain: ProductGain = NONE) -> tuple[Config, ...]:
    """Returns the usual configs, so that none of them is missing from a race; those expected to `gain` most come first.

    Where there are huge pages, frozen weights use them: the code is the same.
    """
    frozen = PLAIN.with_value("freezing", True).with_value("pages", HUGE if huge else SMALL)
    expected = {LIBRARY: 0.0, CHOSEN: gain.chosen - SEARCH_COST, TEMPLATE: gain.template - SEARCH_COST}
    order = sorted(expected, key=lambda products: -expected[products])
    usual = [UNCOMPILED, *(frozen.with_value("products", products) for products in order)]
    configs = [_complete(space, config) for config in usual]
    if _has(space, "padding"):  # templates round up by themselves
        unpadded = [config for config in configs if config.get("products") in (LIBRARY, CHOSEN)]
        configs += [config.with_value("padding", True) for config in unpadded]
    if frozen not in space:  # of training, single changes of the default
        configs += [
            PLAIN.with_value(name, value) for name, value in (("wrapper", "cpp"), ("fusion", 8), ("lanes", 256))
        ]
    configs += _reduced(space, configs)
    configs += _with_one_thread(space, configs)
    chosen = [config for config in configs if config.get("products") == CHOSEN]
    configs += [config.with_value("wrapper", "cpp") for config in chosen[:1]]
    if expected[TEMPLATE] < MUCH_SLOWER:
        configs.sort(key=lambda config: config.get("products") == TEMPLATE)
    return tuple(dict.fromkeys(config for config in configs if config in space))


def _reduced(space: Space, configs: Sequence[Config]) -> list[Config]:
    """Returns frozen configs in each reduced precision that is allowed: with products of the library, and chosen."""
    precisions = [value for knob in _knobs(space) if knob.name == "precision" for value in knob.values if value != FULL]
    frozen = [config for config in configs if config.get("products") in (LIBRARY, CHOSEN) and config["freezing"]]
    plain = [config for config in frozen if not config.get("padding")]
    return [config.with_value("precision", precision) for config in plain for precision in precisions]


def _with_one_thread(space: Space, configs: Sequence[Config]) -> list[Config]:
    """Returns the usual config with one thread, where the process has more; the first that is not eager mode."""
    compiled = [config for config in configs if config[VARIANT] != EAGER]
    return [config.with_value("threads", 1) for config in compiled[:1]] if _has(space, "threads") else []


def _knobs(space: Space) -> list[Knob]:
    return [knob for variant in space.variants for knob in variant.knobs]


def _has(space: Space, name: str) -> bool:
    return any(knob.name == name for knob in _knobs(space))


def _complete(space: Space, config: Config) -> Config:
    """Returns a config with the knobs that not every space has, off, where this one has them."""
    if config[VARIANT] == EAGER:
        return config
    off = {"padding": False, "precision": FULL, "threads": thread_limit.ALL}
    return Config({**config, **{name: value for name, value in off.items() if _has(space, name)}})


def settings(config: Config) -> dict[str, Any]:
    """Returns Inductor's settings for a config."""
    changes: tuple[tuple[bool, dict[str, Any]], ...] = (
        (bool(config["freezing"]), {"freezing": True}),
        (config["products"] != LIBRARY, {"max_autotune": True}),
        (config["products"] == TEMPLATE, {"max_autotune_gemm_backends": "CPP"}),
        (config["wrapper"] == "cpp", {"cpp_wrapper": True}),
        (config["lanes"] != 0, {"cpp.simdlen": config["lanes"]}),
        (config["fusion"] != PLAIN["fusion"], {"max_fusion_size": config["fusion"]}),
    )
    return {name: value for applies, change in changes if applies for name, value in change.items()}
