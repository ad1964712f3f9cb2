"""A wrong option of a space or of `tune` is named where it is written, with what it takes."""

import pytest

import tunewright as tw
from tunewright.kernel.declaration import Declaration
from tunewright.kernel.option_checks import _CHECKS

WRONG = {
    "backend": "c",
    "compile": "make",
    "default": 3,
    "reference": 3,
    "tolerance": "x",
    "numerics": "fast_math",
    "inputs": 3,
    "cases": 3,
    "shapes": {"N": 4},
    "invariant": "M",
    "buckets": ["N"],
    "seeds": 3,
    "threads": 0,
    "program": 3,
    "dtype": "float33",
    "name": 3,
    "budget": 30,
    "session": "mine",
}
HONEST = {
    "backend": tw.Python(),
    "compile": lambda config: abs,
    "default": tw.Config({"k": 1}),
    "reference": abs,
    "tolerance": 0,
    "numerics": {"k"},
    "inputs": lambda n: (n,),
    "cases": [tw.Case(N=4)],
    "shapes": ({"N": 4},),
    "invariant": ("N",),
    "buckets": {"N": "pow2"},
    "seeds": "seeds.json",
    "threads": 2,
    "program": "python run.py",
    "dtype": "bfloat16",
    "name": "mine",
    "budget": "200,5m",
    "session": tw.Session(store="memory:"),
}


def test_every_option_that_could_be_of_another_kind_is_checked() -> None:
    by_value = {"precision", "regime"}  # these have a few values each, and are compared with them
    assert set(_CHECKS) == set(WRONG) == set(HONEST) == set(Declaration.__struct_fields__) - by_value


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_named_with_what_it_takes(name) -> None:
    with pytest.raises(tw.TunewrightError, match=f"^{name} takes .*not {WRONG[name]!r}".replace("[", r"\[")):
        tw.tune(tw.Space(tw.Knob("k", [1, 2])), **{name: WRONG[name]})


@pytest.mark.parametrize("name", HONEST)
def test_a_right_option_is_taken(name) -> None:
    tw.tune(tw.Space(tw.Knob("k", [1, 2])), **{name: HONEST[name]})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tw.Knob("k", 5), r"knob 'k' needs a list of values, not 5"),
        (lambda: tw.Knob(5, [1]), "a knob's name is an identifier"),
        (lambda: tw.Space(tw.Knob("k", [1]), rules=[lambda k: True]), r"rules=\[Rule\("),
        (lambda: tw.Space(tw.Knob("k", [1]), variants=["a"]), r"variants=\[Variant\("),
        (lambda: tw.Space(tw.Knob("k", [1]), features=[len]), r"features=\[Feature\("),
    ],
)
def test_a_wrong_part_of_a_space_is_named_with_how_it_is_written(make, said) -> None:
    with pytest.raises(tw.TunewrightError, match=said):
        make()


def test_help_lists_the_options() -> None:
    for name in tw.TuneOptions.__annotations__:
        assert f"- `{name}`: " in tw.tune.__doc__
