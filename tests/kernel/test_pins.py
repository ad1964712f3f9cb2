"""Defaults of knobs in the signature, and calls that give values for knobs."""

import subprocess
import sys

import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import SignatureError, SpaceError
from tunewright.model.decision import Decision

X = np.ones(8)


def make(function, *knobs, rules=(), **options):
    options.setdefault("session", tw.Session(pool="serial"))
    return tw.tune(tw.Space(*knobs, rules=rules), **options)(function)


BLOCK, WIDE = tw.Knob("block", [4, 16, 64]), tw.Knob("wide", [False, True])


called = []


def blocks(x: tw.In("N"), *, block=64, wide=False):
    called.append((block, wide))
    return x * 2


def test_the_default_of_the_signature_is_the_default_config() -> None:
    assert make(blocks, BLOCK, WIDE).default == {"block": 64, "wide": False}


def test_the_default_of_the_decorator_wins() -> None:
    assert make(blocks, BLOCK, WIDE, default={"block": 16, "wide": True}).default == {"block": 16, "wide": True}


def test_without_defaults_it_is_the_first_of_the_space() -> None:
    def plain(x: tw.In("N"), *, block, wide=None): ...

    assert make(plain, BLOCK, WIDE).default == {"block": 4, "wide": False}


def test_knobs_without_a_default_get_values_that_go_with_the_others() -> None:
    def some(x: tw.In("N"), *, block=64, wide): ...

    rule = tw.Rule("64 is wide", lambda block, wide: block < 64 or wide)
    assert make(some, BLOCK, WIDE, rules=[rule]).default == {"block": 64, "wide": True}


def test_a_default_that_is_no_value_of_the_knob_is_an_error_that_names_both() -> None:
    def odd(x: tw.In("N"), *, block=63): ...

    with pytest.raises(SpaceError, match=r"block=63, the default in the signature of .*odd.* \(4, 16, 64\)"):
        make(odd, BLOCK)
    assert make(odd, BLOCK, default={"block": 16}).default == {"block": 16}


def test_defaults_that_break_a_rule_are_an_error_with_the_reason() -> None:
    with pytest.raises(SpaceError, match="64 is wide"):
        make(blocks, BLOCK, WIDE, rules=[tw.Rule("64 is wide", lambda block, wide: block < 64 or wide)])


def test_a_default_that_changes_numerics_must_be_allowed() -> None:
    def quick(x: tw.In("N"), *, fast=True): ...

    fast = tw.Knob("fast", [False, True], numerics=[True])
    with pytest.raises(SpaceError, match="changes numerics"):
        make(quick, fast)
    assert make(quick, fast, numerics=["fast"]).default == {"fast": True}


def test_the_default_of_a_variant_and_its_knobs_is_used() -> None:
    def either(x: tw.In("N"), *, variant="tiled", tile=32): ...

    space = tw.Space(variants=[tw.Variant("plain"), tw.Variant("tiled", tw.Knob("tile", [16, 32]))])
    kernel = tw.tune(space, backend={"plain": either, "tiled": either})(either)
    assert kernel.default == {"variant": "tiled", "tile": 32}


def test_the_default_of_the_signature_is_measured_first_and_compared_with() -> None:
    def double(x: tw.In("N"), *, block=64):
        return x * 2

    kernel = make(double, BLOCK)
    decision = kernel.tune(X)
    assert next(iter(kernel.session.store.trials(decision.key))).config == {"block": 64}


def test_a_misspelled_knob_is_an_error_at_declaration_that_names_the_right_one() -> None:
    def after(x: tw.In("N"), *, blok=64): ...

    def before(x: tw.In("N"), blok=64): ...

    with pytest.raises(SignatureError, match=r"'blok'.*did you mean 'block'\?"):
        make(after, BLOCK)
    with pytest.raises(SpaceError, match=r"no argument 'block'.*is 'blok' misspelled\?"):
        make(before, BLOCK)


def test_a_pinned_knob_is_used_for_the_call_and_never_stored() -> None:
    kernel = make(blocks, BLOCK, WIDE)
    kernel.session.store.put(decided := kernel.tune(X))
    others = decided.config["wide"]
    for block in (4, 16, 64, np.int64(16)):
        kernel(X, block=block)
        assert called[-1] == (block, others)
    kernel(X)
    assert called[-1] == (decided.config["block"], others)
    assert [decision.config for decision in kernel.session.store.decisions()] == [decided.config]


def test_nothing_is_tuned_or_looked_up_if_all_knobs_are_given() -> None:
    kernel = make(blocks, BLOCK, WIDE)
    kernel(X, block=4, wide=True)
    assert called[-1] == (4, True)
    assert kernel.session.counts == {}
    assert list(kernel.session.store.keys()) == []


def test_a_frozen_kernel_pins_knobs_too() -> None:
    kernel = make(blocks, BLOCK, WIDE, session=tw.Session(mode="frozen"))
    kernel(X, wide=True)
    assert called[-1] == (64, True)


def test_a_pin_that_equals_a_value_is_that_value() -> None:
    kernel = make(blocks, BLOCK, tw.Knob("wide", [0, 1]), default={"block": 4.0, "wide": False})
    assert [type(value) for value in kernel.default.values()] == [int, int]
    kernel(X, block=16.0, wide=True)
    assert [type(value) for value in called[-1]] == [int, int]


def test_pins_are_checked() -> None:
    kernel = make(blocks, BLOCK, WIDE, rules=[tw.Rule("4 is narrow", lambda block, wide: block > 4 or not wide)])
    with pytest.raises(SpaceError, match=r"block=5, which is not among its values \(4, 16, 64\)"):
        kernel(X, block=5)
    with pytest.raises(SpaceError, match=r"block=4, wide=True.*4 is narrow"):
        kernel(X, block=4, wide=True)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'blok'; did you mean 'block'\?"):
        kernel(X, blok=4)


def test_other_knobs_come_from_the_default_if_the_decision_does_not_go_with_the_pin() -> None:
    rule = tw.Rule("they differ", lambda a, b: a != b)
    space = (tw.Knob("a", [1, 2, 3]), tw.Knob("b", [1, 2, 3]))

    def pair(x: tw.In("N"), *, a=3, b=2):
        return a, b

    kernel = make(pair, *space, rules=[rule], session=tw.Session(pool="serial", mode="frozen"))
    decided = tw.Config(a=2, b=1)
    kernel.session.store.put(Decision(kernel.problem([X]).key, decided))
    assert kernel(X, a=3) == (3, 1)
    assert kernel(X, a=1) == (1, 2)


def test_a_pinned_variant_gets_knobs_of_its_own() -> None:
    space = tw.Space(variants=[tw.Variant("plain"), tw.Variant("tiled", tw.Knob("tile", [16, 32]))])

    def either(x: tw.In("N")): ...

    kernel = tw.tune(space, backend={"plain": lambda x: "plain", "tiled": lambda x, tile: tile})(either)
    assert kernel(X, variant="tiled", tile=32) == 32
    assert kernel(X, variant="plain") == "plain"


def test_arguments_by_name_and_pins_mix() -> None:
    def scaled(x: tw.In("N"), by: float = 2.0, *, block=64):
        return x[0] * by, block

    kernel = make(scaled, BLOCK)
    assert kernel(x=X, by=3.0, block=16) == (3.0, 16)
    with pytest.raises(TypeError, match="missing 1 required"):
        kernel(block=16)


def test_a_script_that_pins_every_knob_is_not_run_again_in_workers(tmp_path) -> None:
    (tmp_path / "script.py").write_text(
        "import numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('block', [1, 2])), budget='2')\n"
        "def double(x: tw.In('N'), *, block=2): return x * 2\n"
        "double(np.ones(4), block=1)\n"
        "open('runs', 'a').write('x')\n"
        "double(np.ones(4))\n"
    )
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "runs").read_text() == "x"
