"""The attacks that The Update Framework lists, each refused; and the updates that must pass."""

import json
import logging
from datetime import UTC, datetime

import pytest
from releases import ALICE, BOB, CAROL, FAR, MALLORY, PAST, answering, list_of, release, reply

from tunewright import Session
from tunewright.errors import BundleError, StoreError
from tunewright.shipping import receive
from tunewright.shipping.receive import PullOptions
from tunewright.shipping.registry import Access
from tunewright.stores import files
from tunewright.stores.bundle import BundleStore, expiry, signers
from tunewright.stores.bundle.build import build, write
from tunewright.stores.bundle.freshness import MAX_STEP, ChannelRecord, Expectation, FreshnessCheck, Release
from tunewright.testing.keys import DECISION, KEY


class Target:
    """A machine that takes bundles over HTTP, and what it has installed."""

    def __init__(self, folder):
        self.folder, self.cache, self.file = folder, folder / "cache", folder / "installed.bundle"
        self.signers = folder / "signers"
        self.signers.write_text(list_of(alice=ALICE))

    def take(self, source, **expected):
        """Pulls the bundle in the file `source`."""
        options = PullOptions(Access(self.folder / "none"), self.signers, None, Expectation(**expected))
        with answering(lambda handler: reply(handler, body=source.read_bytes())) as (host, _):
            return receive.pull(f"http://{host}/x", self.file, options, self.cache)

    @property
    def version(self):
        """The installed version."""
        return BundleStore.open_trusted(self.file, self.signers).manifest.version


@pytest.fixture
def target(tmp_path):
    return Target(tmp_path)


@pytest.fixture
def made(tmp_path):
    """How to make a release: a version and what is special about it."""
    numbers = iter(range(1000))
    return lambda version, *keys, **more: release(tmp_path / f"made{next(numbers)}", version, *keys, **more)


def refused(target, source, match, **expected):
    before = target.file.read_bytes() if target.file.exists() else None
    with pytest.raises(BundleError, match=match):
        target.take(source, **expected)
    assert (target.file.read_bytes() if target.file.exists() else None) == before
    assert not list(target.folder.glob("*.part")) + list(target.folder.glob(".*.part"))


# Updates that must pass.


def test_the_next_version_and_the_same_again_pass(target, made) -> None:
    seven, eight = made(7), made(8)
    for source in (seven, seven, eight, eight):
        target.take(source)
    assert target.version == 8


def test_a_clock_that_is_slightly_off_passes(tmp_path) -> None:
    expires = "2027-01-01T00:00:00+00:00"
    late = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    one = Release("prod", 1, expires, (), "d1")
    for offset in (-1e6, 0, expiry.CLOCK_TOLERANCE - 1):
        FreshnessCheck(ChannelRecord(tmp_path, "prod"), Expectation(), clock=lambda at=late + offset: at).require(one)
    late_check = FreshnessCheck(
        ChannelRecord(tmp_path, "prod"), Expectation(), clock=lambda: late + expiry.CLOCK_TOLERANCE + 1
    )
    with pytest.raises(BundleError, match="expired"):
        late_check.require(one)


def test_bundles_without_a_channel_pass_as_before(target, tmp_path) -> None:
    plain = tmp_path / "plain"
    write(plain, build([DECISION]), ALICE)
    target.take(plain)
    target.take(plain)
    assert BundleStore.open_trusted(target.file, target.signers).get(KEY) == DECISION
    assert not (target.cache / "channels").exists() or not list((target.cache / "channels").glob("*.json"))


def test_two_channels_do_not_mind_each_other(target, made) -> None:
    target.take(made(7))
    target.take(made(2, channel="canary"), channel="canary")
    target.take(made(8), channel="prod")


def test_a_version_that_a_person_names_passes_once_it_is_named(target, made) -> None:
    seven, eight = made(7), made(8, expires=PAST)
    target.take(seven)
    target.take(eight, allow=8)
    refused(target, seven, "older than 8", allow=6)
    target.take(seven, allow=7)
    assert target.version == 7


def test_what_was_accepted_in_time_still_starts_after_it_expired(target, made, caplog) -> None:
    """Expiry is for what arrives: production must be able to restart."""
    target.take(made(7, expires=PAST), allow=7)
    location = f"bundle:{target.file}?signers={target.signers}&channel=prod"
    session = Session(mode="frozen", store=location, cache=str(target.cache))
    assert session.store.get(KEY).config["tile"] == 7
    elsewhere = target.folder / "another cache"
    with pytest.raises(BundleError, match="expired"):
        _ = Session(mode="frozen", store=location, cache=str(elsewhere)).store
    allowed = Session(mode="frozen", store=f"{location}&allow=7", cache=str(elsewhere))
    assert allowed.store.get(KEY).config["tile"] == 7


def test_where_nothing_can_be_remembered_a_store_opens_and_says_so(target, made, caplog, monkeypatch) -> None:
    """A container may have a read-only disk."""

    def read_only(*given, **more):
        raise OSError(30, "Read-only file system")

    made(7).rename(target.file)
    monkeypatch.setattr(files, "write_atomic", read_only)
    with caplog.at_level(logging.WARNING):
        session = Session(mode="frozen", store=f"bundle:{target.file}?signers={target.signers}", cache=target.cache)
        assert session.store.get(KEY).config["tile"] == 7
    assert "version 7 of channel 'prod' is not remembered" in caplog.text


# Attacks.


def test_arbitrary_installation(target, made) -> None:
    refused(target, made(7, MALLORY), "not on your list")
    sound = made(7)
    sound.write_bytes(sound.read_bytes().replace(b'"version":7', b'"version":9'))
    refused(target, sound, "signature is wrong")


@pytest.mark.parametrize("field", [b'"channel":"prod"', b'"version":7', b'"expires":"2099', b'"audience":["web"]'])
def test_what_a_release_says_of_itself_is_under_the_signature(target, made, field) -> None:
    source = made(7, audience=["web"])
    whole = source.read_bytes()
    assert field in whole
    source.write_bytes(whole.replace(field, field[:-2] + b"#" + field[-1:]))
    refused(target, source, "signature is wrong", audience="web")


def test_rollback(target, made) -> None:
    six, seven = made(6), made(7)
    target.take(seven)
    refused(target, six, "older than 7.*--allow 6")
    assert target.version == 7


def test_rollback_of_a_file_under_a_running_fleet(target, made) -> None:
    """The store itself refuses, whoever put the old file there."""
    six, seven = made(6), made(7)
    location = f"bundle:{target.file}?signers={target.signers}"
    target.file.write_bytes(seven.read_bytes())
    assert Session(store=location, cache=str(target.cache)).store.get(KEY).config["tile"] == 7
    target.file.write_bytes(six.read_bytes())
    with pytest.raises(BundleError, match="older than 7"):
        _ = Session(store=location, cache=str(target.cache)).store


def test_rollback_to_a_bundle_from_before_there_were_channels(target, made, tmp_path) -> None:
    plain = tmp_path / "plain"
    write(plain, build([DECISION]), ALICE)
    target.take(made(7))
    refused(target, plain, "of no channel, not of 'prod'")
    target.file.unlink()
    refused(target, plain, "of no channel", channel="prod")


def test_indefinite_freeze(target, made) -> None:
    refused(target, made(7, expires=PAST), "expired.*--allow 7")
    current = made(8, expires=PAST)
    target.take(current, allow=8)
    refused(target, current, "expired")  # the same for ever is a freeze too


def test_replay_after_a_rollback(target, made) -> None:
    """Version 8 was bad, and a person went back to 7: who serves 8 again does not bring it back."""
    seven, eight = made(7), made(8)
    target.take(seven)
    target.take(eight)
    target.take(seven, allow=7)
    refused(target, eight, "replaced here by version 7 on purpose")
    target.take(seven)  # the same again is no change
    target.take(made(9))
    assert target.version == 9


def test_mix_and_match(target, made) -> None:
    """Two bundles of one version: a target must not get one half of its fleet's and one half of another."""
    target.take(made(7))
    refused(target, made(7, tile=99), "not the bundle that was seen here as this version")


def test_mix_and_match_of_parts(target, made) -> None:
    """Parts of two honest bundles are no bundle."""
    seven, eight = made(7).read_bytes(), made(8).read_bytes()
    half = len(seven) // 2
    for mixed in (seven[:half] + eight[half:], eight[:-96] + seven[-96:]):
        source = target.folder / "mixed"
        source.write_bytes(mixed)
        refused(target, source, "signature is wrong")


def test_fast_forward(target, made) -> None:
    target.take(made(7))
    refused(target, made(7 + MAX_STEP + 1), "too far ahead")
    target.take(made(8))


def test_fast_forward_by_a_stolen_key_ends_with_the_key(target, made) -> None:
    """After rotation, versions that only revoked keys signed no longer count."""
    target.signers.write_text("version 1\n" + list_of(alice=ALICE, bob=BOB))
    target.take(made(900_000, BOB))  # stolen
    refused(target, made(8), "older than 900000")
    new = target.folder / "new"
    new.write_text("version 2\nminimum prod 8\n" + list_of(alice=ALICE) + f"revoked {list_of(bob=BOB)}")
    signers.sign_file(new, ALICE)
    signers.rotate(target.signers, new)
    refused(target, made(900_001, BOB), "key was revoked")
    refused(target, made(7), "older than 8, the minimum")
    target.take(made(8))
    refused(target, made(7), "older than 8")


def test_wrong_software_installation(target, made) -> None:
    refused(target, made(7, channel="canary"), "of channel 'canary', not of 'prod'", channel="prod")
    target.take(made(7))
    refused(target, made(8, channel="canary"), "of channel 'canary', not of 'prod'")
    refused(target, made(8, audience=["web", "batch"]), "is for web, batch; say which")
    refused(target, made(8, audience=["web"]), "this machine is db", audience="db")
    target.take(made(8, audience=["web", "batch"]), audience="batch")


def test_key_compromise_of_fewer_than_the_threshold(target, made) -> None:
    target.signers.write_text("threshold 2\n" + list_of(alice=ALICE, bob=BOB, carol=CAROL))
    refused(target, made(7), "1 of the 2 signatures")
    refused(target, made(7, ALICE, MALLORY), "1 of the 2 signatures")
    refused(target, made(7, MALLORY), "not on your list")
    twice = made(7)
    whole = twice.read_bytes()
    trailer, count = whole[-96:], (b"TWSIGNATURES" + (2).to_bytes(4, "little")).ljust(96, b"\0")
    twice.write_bytes(whole + trailer + count)
    refused(target, twice, "1 of the 2 signatures")
    target.take(made(7, ALICE, CAROL))
    target.take(made(8, ALICE, BOB, CAROL))


def test_a_damaged_record_is_not_an_empty_one(target, made) -> None:
    target.take(made(7))
    (state,) = (target.cache / "channels").glob("*.json")
    assert json.loads(state.read_text())["highest"] == 7
    state.write_text("{")
    with pytest.raises(StoreError, match=r"cannot be read.*remove it"):
        target.take(made(8))


@pytest.mark.parametrize("text", ["-1", "7.5", "seven", "", "٧"])
def test_a_version_to_allow_is_a_number(target, made, text) -> None:
    made(7).rename(target.file)
    with pytest.raises(BundleError, match="is not a version"):
        BundleStore.at(f"bundle:{target.file}?signers={target.signers}&allow={text or 'x'}")


def test_an_expiry_that_is_no_date_is_refused(target, made) -> None:
    refused(target, made(7, expires="soon"), "is not a date")
    assert expiry.expiry_after("90d", 0) == "1970-04-01T00:00:00+00:00"
    assert expiry.expiry_after(FAR, 0) == FAR
