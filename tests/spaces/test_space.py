import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright import Config, Knob, Rule, Space, Variant
from tunewright.backends import expressions
from tunewright.errors import SpaceError
from tunewright.spaces import grid

PLAIN = Space(
    Knob("a", [1, 2, 4, 8]),
    Knob("b", [1, 2, 3]),
    Knob("c", ["x", "y"]),
    Knob("free", [False, True]),
    rules=[
        Rule("a is a multiple of b", lambda a, b: a % b == 0),
        Rule("x goes with small b only", lambda b, c: b < 3 if c == "x" else True),  # does not vectorise
    ],
)
VARIED = Space(
    Knob("n", [1, 2, 3]),
    rules=[Rule("n is odd", lambda n: n % 2 == 1)],
    variants=[
        Variant("library"),
        Variant(
            "blocked", Knob("tile", [8, 16]), rules=[Rule("tile 16 needs n > 1", lambda n, tile: tile < 16 or n > 1)]
        ),
    ],
)


def brute_force(knobs, rules):
    for values in itertools.product(*(knob.values for knob in knobs)):
        config = dict(zip((knob.name for knob in knobs), values, strict=True))
        if all(rule.holds(*(config[name] for name in rule.reads)) for rule in rules):
            yield Config(config)


@st.composite
def spaces(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    knobs = [Knob(f"k{i}", range(1, size + 1)) for i, size in enumerate(sizes)]
    names = [knob.name for knob in knobs]
    kinds = st.sampled_from(["{0} <= {1}", "{0} % {1} == 0", "{0} * {1} < 9", "{0} == 1 or {1} != 2", "not {0} == {1}"])
    rules = [
        expressions.parse_rule(draw(kinds).format(draw(st.sampled_from(names)), draw(st.sampled_from(names))))
        for _ in range(draw(st.integers(0, 4)))
    ]
    return knobs, rules


@given(spaces())
@settings(max_examples=200, deadline=None)
def test_enumeration_is_exactly_the_configs_that_keep_every_rule(made) -> None:
    knobs, rules = made
    space = Space(*knobs, rules=rules)
    truth = set(brute_force(knobs, rules))
    found = list(space)
    assert len(found) == len(space) == len(truth)
    assert set(found) == truth
    for i, config in enumerate(found):
        assert space[i] == config
        assert space.index(config) == i
        assert config in space
    everything = set(brute_force(knobs, []))
    assert {config for config in everything if config in space} == truth


@given(spaces(), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_size_give_the_same_space(made, block) -> None:
    knobs, rules = made
    whole = list(Space(*knobs, rules=rules))
    before, grid.BLOCK = grid.BLOCK, block
    try:
        assert list(Space(*knobs, rules=rules)) == whole
    finally:
        grid.BLOCK = before


@given(spaces(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_samples_and_neighbours_stay_inside(made, seed) -> None:
    knobs, rules = made
    space = Space(*knobs, rules=rules)
    if not len(Space(*knobs, rules=rules)):
        return
    drawn = space.sample(np.random.default_rng(seed), 5)
    assert all(config in space for config in drawn)
    for config in drawn:
        near = space.neighbors(config, reach=None)
        wanted = {c for c in space if sum(c[n] != config[n] for n in c) == 1}
        assert set(near) == wanted
        assert set(space.neighbors(config)) <= wanted


def test_codes_name_every_config() -> None:
    for space in (PLAIN, VARIED):
        codes = space.codes()
        picked = space.codes(np.arange(len(space))[::-1])
        assert (codes[::-1] == picked).all()
        for row, config in zip(codes, space, strict=True):
            said = {name: code for name, code in zip(space.names, row, strict=True) if code >= 0}
            assert set(said) == set(config)


def test_variants_have_knobs_and_rules_of_their_own() -> None:
    assert {str(config) for config in VARIED} == {
        "variant=library n=1", "variant=library n=3",
        "variant=blocked n=1 tile=8", "variant=blocked n=3 tile=8", "variant=blocked n=3 tile=16",
    }  # fmt: skip
    assert [VARIED.index(config) for config in VARIED] == list(range(5))
    assert Config(variant="library", n=1, tile=8) not in VARIED
    assert VARIED.sizes() == {"library": 2, "blocked": 3}
    assert {config["variant"] for config in VARIED.sample(np.random.default_rng(0), 50)} == {"library", "blocked"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"a": 1, "b": 2, "c": "y", "free": True}, "a is a multiple of b"),
        ({"a": 5, "b": 1, "c": "y", "free": True}, "a=5 is not allowed; allowed: 1, 2, 4, 8"),
        ({"a": 1, "b": 1, "c": "y"}, "it does not set 'free'"),
        ({"a": 1, "b": 1, "c": "y", "fre": True, "free": True}, "an unknown knob 'fre'; did you mean 'free'?"),
    ],
)
def test_an_objection_says_what_is_wrong(config, said) -> None:
    assert any(said in objection for objection in PLAIN.objections(config))
    assert config not in PLAIN
    with pytest.raises(SpaceError, match="is not in the space"):
        PLAIN.index(config)


def test_an_unknown_variant_names_the_known_ones() -> None:
    assert VARIED.objections({"variant": "nope", "n": 1}) == ["no variant 'nope'; variants: library, blocked"]
    assert VARIED.objections({"n": 1}) == ["no variant is given; variants: library, blocked"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Knob("a", []), "has no values"),
        (lambda: Knob("a", [1, 1]), "twice"),
        (lambda: Knob("a", [1, True]), "twice"),
        (lambda: Knob("a b", [1]), "identifier"),
        (lambda: Knob("a", [[1]]), "bool, int, float or str"),
        (Space, "at least one knob"),
        (lambda: Space(Knob("a", [1]), Knob("a", [2])), "share the name 'a'"),
        (lambda: Space(Knob("ab", [1]), rules=[Rule("r", lambda abc: True)]), "did you mean 'ab'"),
        (lambda: Rule("r", lambda *a: True), "name the knobs"),
        (lambda: Rule("r", lambda: True), "reads no knob"),
        (lambda: expressions.parse_rule("__import__('os')"), "plain arithmetic"),
        (lambda: expressions.parse_rule("a.b > 1"), "plain arithmetic"),
        (lambda: expressions.parse_rule("a >"), "cannot read the rule"),
        (lambda: len(Space(Knob("a", [0, 1]), rules=[Rule("r", lambda a: 1 / a > 0)])), "ZeroDivisionError"),
    ],
)
def test_a_malformed_space_says_so(make, said) -> None:
    with pytest.raises(SpaceError, match=said):
        make()


@pytest.mark.parametrize(
    "rule",
    [
        Rule("and", lambda a, b: a > 2 and b > 1),
        Rule("chained", lambda a, b: 1 < a <= b * 4),
        Rule("membership", lambda a, b: a in (1, 4) or b == 2),
        Rule("min", lambda a, b: min(a, b) == 1),
        Rule("text", lambda a, b: f"{a}{b}" in ("11", "42")),
        Rule("identity", lambda a, b: a is not b),
        Rule("constant", lambda a, b: True),
        Rule("only the first", lambda a, b: a > 1),
        expressions.parse_rule("b == 4 or a % (b - 4) == 0"),
        Rule("overflow in arrays", lambda a, b: (a * 2**40) * (b * 2**40) > 2**70),
    ],
    ids=lambda rule: rule.reason,
)
def test_a_rule_that_does_not_vectorise_still_works(rule) -> None:
    knobs = [Knob("a", [1, 2, 4, 8]), Knob("b", [1, 2, 3])]
    assert set(Space(*knobs, rules=[rule])) == set(brute_force(knobs, [rule]))


def test_bools_count_as_numbers_in_rules_as_in_python() -> None:
    knobs = [Knob("x", [False, True]), Knob("y", [False, True])]
    rule = Rule("at most one", lambda x, y: x + y <= 1)
    assert len(Space(*knobs, rules=[rule])) == 3


def test_a_space_without_rules_is_never_enumerated() -> None:
    space = Space(*(Knob(f"k{i}", range(100)) for i in range(30)))
    assert space.combinations == 100**30
    config = space.sample(np.random.default_rng(0))[0]
    assert config in space
    assert len(space.neighbors(config)) <= 60


def test_sampling_does_not_enumerate_a_huge_island() -> None:
    knobs = [Knob(f"k{i}", range(64)) for i in range(11)]
    chain = [expressions.parse_rule(f"k{i} + k{i + 1} > 20") for i in range(10)]
    space = Space(*knobs, rules=chain)
    drawn = space.sample(np.random.default_rng(0), 100)
    assert len(set(drawn)) == 100
    assert all(config in space for config in drawn)
    with pytest.raises(SpaceError, match="sample"):
        len(space)


def test_rare_configs_are_sampled_all_the_same() -> None:
    knobs = [Knob(f"k{i}", range(40)) for i in range(5)]
    space = Space(*knobs, rules=[expressions.parse_rule(f"k{i} == k{i + 1}") for i in range(4)])
    assert {len(set(c.values())) for c in space.sample(np.random.default_rng(0), 20)} == {1}


def test_a_space_where_nothing_is_left_says_so() -> None:
    space = Space(Knob("a", [1, 2]), rules=[Rule("never", lambda a: a > 5)])
    assert len(space) == 0
    assert list(space) == []
    with pytest.raises(SpaceError, match="no config satisfies all rules"):
        _ = space.first
    with pytest.raises(SpaceError, match="no config satisfies all rules"):
        space.sample(np.random.default_rng(0))


def test_canonical_order_is_that_of_the_declaration() -> None:
    order = sorted(VARIED, key=VARIED.rank)
    assert [c["variant"] for c in order] == ["library"] * 2 + ["blocked"] * 3
