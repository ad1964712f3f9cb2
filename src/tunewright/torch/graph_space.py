"""Search space of a whole graph, whose configs are judged end to end."""

from __future__ import annotations

from typing import Any

from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space, Variant

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


def make_space(*, gemms: bool, padding: bool, freezing: bool = True) -> Space:
    """Returns the space of a graph: with `gemms`, their implementations; with `padding`, sizes that are rounded up.

    Without `freezing`, weights stay inputs, as training needs them.
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
    return Space(variants=[Variant(EAGER), Variant(INDUCTOR, *knobs, rules=rules)])


def default(space: Space) -> Config:
    """Returns the config that is used without a decision."""
    return _complete(space, PLAIN)


def seeds(space: Space, *, huge: bool) -> tuple[Config, ...]:
    """Returns the usual configs, most promising first, so that none of them is missing from a race.

    Where there are huge pages, frozen weights use them: the code is the same.
    """
    frozen = PLAIN.with_value("freezing", True).with_value("pages", HUGE if huge else SMALL)
    usual = [UNCOMPILED, frozen]
    usual += [frozen.with_value("products", products) for products in (CHOSEN, TEMPLATE)]
    configs = [_complete(space, config) for config in usual]
    if _has_padding(space):  # templates round up by themselves
        unpadded = [config for config in configs if config.get("products") in (LIBRARY, CHOSEN)]
        configs += [config.with_value("padding", True) for config in unpadded]
    if frozen not in space:  # of training, single changes of the default
        configs += [
            PLAIN.with_value(name, value) for name, value in (("wrapper", "cpp"), ("fusion", 8), ("lanes", 256))
        ]
    chosen = [config for config in configs if config.get("products") == CHOSEN]
    configs += [config.with_value("wrapper", "cpp") for config in chosen[:1]]
    return tuple(dict.fromkeys(config for config in configs if config in space))


def _has_padding(space: Space) -> bool:
    return any(knob.name == "padding" for variant in space.variants for knob in variant.knobs)


def _complete(space: Space, config: Config) -> Config:
    """Returns a config with the knob for padding, off, where the space has it."""
    return Config({**config, "padding": False}) if _has_padding(space) and config[VARIANT] == INDUCTOR else config


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
