import tunewright as tw
from tunewright.spaces.pinning import only


def test_a_part_has_the_listed_configs_and_no_others() -> None:
    space = tw.Space(tw.Knob("a", [1, 2, 3]), tw.Knob("b", [1, 2]), rules=[tw.Rule("a >= b", lambda a, b: a >= b)])
    listed = [tw.Config(a=2, b=1), tw.Config(a=3, b=2)]
    part = only(space, listed, "it is listed")
    assert set(part) == set(listed)
    assert part.objections({"a": 3, "b": 1}) == ["it is listed"]


def test_a_part_keeps_the_variants_that_have_listed_configs() -> None:
    variants = [tw.Variant("plain"), tw.Variant("tiled", tw.Knob("tile", [8, 16])), tw.Variant("other")]
    space = tw.Space(tw.Knob("u", [1, 2]), variants=variants)
    listed = [tw.Config(variant="plain", u=2), tw.Config(variant="tiled", u=1, tile=16)]
    assert all(config in space for config in listed)
    assert set(only(space, listed, "it is listed")) == set(listed)
