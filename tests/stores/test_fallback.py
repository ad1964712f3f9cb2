"""Answers by tiers, and what is said of those that are not answers to the question itself."""

import msgspec
import pytest

from tunewright import Config, Knob, Session, Space
from tunewright.errors import NoDecision
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.event import LookupMissed
from tunewright.stores.fallback import CachedLookups, find_decision, normalize_device_name
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY, other_key

SPACE = Space(Knob("tile", [8, 16, 32, 64]))


def sized(key=KEY, **sizes):
    return msgspec.structs.replace(
        key, signature=msgspec.structs.replace(key.signature, dims={**key.signature.dims, **sizes})
    )


def on(model, key=KEY, **limits):
    changed = {"model": model, **({"limits": {**key.device.limits, **limits}} if limits else {})}
    return msgspec.structs.replace(key, device=msgspec.structs.replace(key.device, **changed))


def holding(**tiles):
    """A store with a decision for each key given as (key, tile)."""
    store = MemoryStore()
    for key, tile in tiles.values():
        store.put(Decision(key, Config(tile=tile)))
    return store


def ask(store, key=KEY, *, exact=None, aliases=None, like=True):
    found = find_decision(store, Problem(key, SPACE, Config(tile=8), exact=exact), aliases or {}, allow_similar=like)
    return found and (found.tier, found.config["tile"])


def test_the_key_itself_comes_first() -> None:
    store = holding(exact=(KEY, 64), near=(sized(M=513), 32), alias=(on("Some CPU @ 3 GHz"), 16))
    assert ask(store) == (Tier.EXACT, 64)


def test_the_same_device_under_another_name_answers_the_question_itself() -> None:
    store = holding(alias=(on("SOME(R) CPU @ 3.00GHz"), 16), near=(sized(M=513), 32))
    assert ask(store, like=False) == (Tier.ALIAS, 16)


def test_a_name_alone_does_not_make_two_devices_one() -> None:
    store = holding(bigger=(on("SOME(R) CPU", cores=64), 16))
    assert ask(store) == (Tier.ARCHITECTURE, 16)
    assert ask(store, like=False) is None


def test_a_device_that_hides_an_instruction_set_is_another_even_if_its_name_is_the_same() -> None:
    device = KEY.device
    masked = msgspec.structs.replace(KEY, device=msgspec.structs.replace(device, features=("avx2",)))
    store = holding(whole=(KEY, 16))
    assert ask(store, masked) == (Tier.ARCHITECTURE, 16)
    assert ask(store, masked, like=False) is None
    assert ask(store, masked, aliases={device.model: device.model}, like=False) == (Tier.ALIAS, 16)


def test_an_alias_may_be_declared() -> None:
    store = holding(card=(on("A800"), 16))
    assert ask(store, on("A100")) == (Tier.ARCHITECTURE, 16)
    assert ask(store, on("A100"), aliases={"A800": "A100"}) == (Tier.ALIAS, 16)


def test_a_bucket_answers_for_the_sizes_it_holds_and_a_decision_for_the_size_itself_before_it() -> None:
    call = sized(M=500)
    store = holding(bucket=(KEY, 64))
    assert ask(store, exact=call) == (Tier.BUCKET, 64)
    store.put(Decision(call, Config(tile=32)))
    assert ask(store, exact=call) == (Tier.EXACT, 32)


def test_the_nearest_shape_is_nearest_by_ratio() -> None:
    store = holding(half=(sized(M=300), 16), twice=(sized(M=1000), 32), other=(sized(M=512, K=1024), 64))
    assert ask(store) == (Tier.NEAREST, 16)
    assert ask(store, sized(M=700)) == (Tier.NEAREST, 32)
    assert ask(store, like=False) is None


def test_a_config_that_left_the_space_is_passed_over_for_the_next() -> None:
    store = holding(near=(sized(M=500), 128), far=(sized(M=2048), 32))
    assert ask(store) == (Tier.NEAREST, 32)


def test_another_device_of_the_architecture_answers_last() -> None:
    store = holding(sibling=(on("Other", cores=4), 16), shape=(sized(M=9999), 32))
    assert ask(store) == (Tier.NEAREST, 32)
    assert ask(store, on("Third", cores=2)) == (Tier.ARCHITECTURE, 16)


@pytest.mark.parametrize("changed", [{"source": "other"}, {"toolchain": {}}, {"mode": {}}, {"kernel": "conv"}])
def test_another_source_toolchain_or_mode_never_answers(changed) -> None:
    assert ask(holding(other=(other_key(**changed), 64))) is None


def test_spelling_makers_and_clock_rates_do_not_matter() -> None:
    assert normalize_device_name("Intel(R) Xeon(R) CPU @ 2.00GHz") == normalize_device_name("INTEL Xeon")
    assert normalize_device_name("NVIDIA A100-SXM4-80GB") == normalize_device_name("A100 SXM4 80GB")
    assert normalize_device_name("NVIDIA A100-SXM4-80GB") != normalize_device_name("NVIDIA A100-SXM4-40GB")


def test_every_answer_is_counted_by_its_tier_and_said_once_it_is_not_exact(caplog) -> None:
    missed = []
    session = Session(mode="frozen", store=holding(exact=(KEY, 64)), listeners=[missed.append])
    tiers = [
        session.lookup_or_policy(Problem(k, SPACE, Config(tile=8))).tier
        for k in (KEY, sized(M=500), other_key(mode={}))
    ]
    assert tiers == [Tier.EXACT, Tier.NEAREST, Tier.DEFAULT]
    assert session.counts == {"exact": 1, "nearest shape": 1, "default": 1}
    assert [event.tier for event in missed if isinstance(event, LookupMissed)] == tiers[1:]
    assert "signature.dims.M is 500, not 512" in caplog.text
    assert "The default is used" in caplog.text


def test_strict_takes_no_answer_to_another_question() -> None:
    session = Session(mode="strict", store=holding(near=(sized(M=500), 32), alias=(on("SOME(R) CPU", sized(M=7)), 16)))
    with pytest.raises(NoDecision, match=r"signature\.dims\.M is 512, stored 500"):
        session.lookup_or_policy(Problem(KEY, SPACE, Config(tile=8)))
    assert session.lookup_or_policy(Problem(sized(M=7), SPACE, Config(tile=8))).tier is Tier.ALIAS


def test_neighbours_can_be_switched_off() -> None:
    session = Session(mode="frozen", features={"neighbours": False}, store=holding(near=(sized(M=500), 32)))
    assert session.lookup_or_policy(Problem(KEY, SPACE, Config(tile=8))).tier is Tier.DEFAULT


class Asked(MemoryStore):
    """A store that counts round trips."""

    trips = 0

    def get_many(self, keys):
        self.trips += 1
        return super().get_many(keys)

    def relatives(self, key, limit=1000):
        self.trips += 1
        return super().relatives(key, limit)


def test_many_keys_that_were_warmed_up_cost_one_read_and_one_more_for_those_that_miss() -> None:
    store = Asked()
    for size in range(1, 100):
        store.put(Decision(sized(M=size), Config(tile=16)))
    session = Session(mode="frozen", store=store)
    problems = [Problem(sized(M=size), SPACE, Config(tile=8)) for size in range(1, 200)]
    assert session.warm(problems) == 99
    answers = [session.lookup_or_policy(problem) for problem in problems[99:]]
    assert {answer.tier for answer in answers} == {Tier.NEAREST}
    assert store.trips == 2


def test_a_settled_view_does_not_ask_twice_for_what_is_missing() -> None:
    store = Asked()
    view = CachedLookups(store)
    assert view.get_many([KEY]) == {}
    store.put(Decision(KEY, Config(tile=8)))
    assert view.get_many([KEY]) == {}
    assert store.trips == 1
