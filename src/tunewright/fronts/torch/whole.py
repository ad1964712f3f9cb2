"""Whole: what is chosen for a graph as one, judged end to end."""

from __future__ import annotations

from collections.abc import Iterable
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


def space(*, products: bool, padded: bool) -> Space:
    """Every way to run a graph; with `products`, who computes them; with `padded`, whether sizes are rounded up."""
    who = [LIBRARY, TEMPLATE, CHOSEN] if products else [LIBRARY]
    knobs = [
        Knob("freezing", [False, True]),
        Knob("products", who),
        Knob("wrapper", ["python", "cpp"]),
        Knob("lanes", [0, 256]),
        Knob("fusion", [8, 64]),
        Knob("pages", [SMALL, HUGE]),
    ]
    rules = [
        Rule("products are chosen on frozen weights", lambda freezing, products: freezing or products == LIBRARY),
        Rule("only frozen weights are gathered", lambda freezing, pages: freezing or pages == SMALL),
    ]
    if padded:
        knobs.append(Knob("padding", [False, True]))
        rules.append(Rule("only frozen weights are padded", lambda freezing, padding: freezing or not padding))
    return Space(variants=[Variant(EAGER), Variant(INDUCTOR, *knobs, rules=rules)])


def default(offered: Space) -> Config:
    """What is used where nothing is decided."""
    return _within(offered, PLAIN)


def seeds(offered: Space, *, huge: bool) -> tuple[Config, ...]:
    """What everyone would try, most promising first: nobody's winner may be missing from a race.

    Where there are huge pages, frozen weights lie there: the code is the same.
    """
    frozen = PLAIN.turned("freezing", True).turned("pages", HUGE if huge else SMALL)
    wanted = [frozen, Config({VARIANT: EAGER}), *(frozen.turned("products", who) for who in (CHOSEN, TEMPLATE))]
    found = [_within(offered, one) for one in wanted]
    if any(knob.name == "padding" for variant in offered.variants for knob in variant.knobs):
        rounded = [one for one in found if one.get("products") in (LIBRARY, CHOSEN)]  # templates round up by themselves
        found += [one.turned("padding", True) for one in rounded]
    found += [one.turned("wrapper", "cpp") for one in found if one.get("products") == CHOSEN][:1]
    return tuple(dict.fromkeys(one for one in found if one in offered))


def _within(offered: Space, config: Config) -> Config:
    """A config with what else the space asks for, left as it is."""
    asked = {knob.name for variant in offered.variants for knob in variant.knobs}
    return Config({**config, "padding": False}) if "padding" in asked and config[VARIANT] == INDUCTOR else config


def settings(config: Config) -> dict[str, Any]:
    """Inductor's settings that a config stands for."""
    told: Iterable[tuple[bool, dict[str, Any]]] = (
        (bool(config["freezing"]), {"freezing": True}),
        (config["products"] != LIBRARY, {"max_autotune": True}),
        (config["products"] == TEMPLATE, {"max_autotune_gemm_backends": "CPP"}),
        (config["wrapper"] == "cpp", {"cpp_wrapper": True}),
        (config["lanes"] != 0, {"cpp.simdlen": config["lanes"]}),
        (config["fusion"] != PLAIN["fusion"], {"max_fusion_size": config["fusion"]}),
    )
    return {name: value for holds, some in told if holds for name, value in some.items()}
