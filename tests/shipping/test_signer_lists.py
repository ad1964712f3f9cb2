"""Lists of signers: thresholds, rotation and revocation."""

import pytest
from releases import ALICE, BOB, CAROL, MALLORY, list_of, public, release

from tunewright.errors import BundleError
from tunewright.stores.bundle import BundleStore, signers
from tunewright.stores.bundle.build import add_signature
from tunewright.stores.bundle.signers import parse_signers, read_signers, rotate, sign_file

NOW = 1_800_000_000.0


@pytest.fixture
def lists(tmp_path):
    """How to write a list: its rules, who is on it, and who signs it."""

    def write(name, rules, *signing, **on_it):
        path = tmp_path / name
        path.write_text(rules + list_of(**on_it))
        for key in signing:
            sign_file(path, key)
        return path

    return write


def test_a_plain_list_is_as_it_was(lists) -> None:
    listed = read_signers(lists("plain", "# the team\n\n", alice=ALICE))
    assert list(listed.names.values()) == ["alice"]
    assert (listed.threshold, listed.version, listed.expires, listed.revoked) == (1, 0, "", {})


def test_keys_are_rotated_by_old_and_new_signers(lists) -> None:
    current = lists("current", "version 1\n", alice=ALICE)
    new = lists("new", "version 2\n", ALICE, BOB, bob=BOB)
    assert list(rotate(current, new).names.values()) == ["bob"]
    assert read_signers(current) == read_signers(new)
    third = lists("third", "version 3\nthreshold 2\n", BOB, CAROL, bob=BOB, carol=CAROL)
    assert rotate(current, third).threshold == 2


def test_an_unversioned_list_can_be_replaced_by_its_signers(lists) -> None:
    rotate(lists("current", "", alice=ALICE), lists("new", "version 1\n", ALICE, BOB, bob=BOB))


def test_a_list_is_not_replaced_by_strangers_or_by_too_few(lists) -> None:
    current = lists("current", "version 2\nthreshold 2\n", alice=ALICE, bob=BOB)
    before = current.read_bytes()
    both = {"alice": ALICE, "bob": BOB}
    for new, match in (
        (lists("a", "version 3\n", MALLORY, mallory=MALLORY), "not on your list"),
        (lists("b", "version 3\n", ALICE, **both), "1 of the 2"),
        (lists("c", "version 3\n", ALICE, BOB, carol=CAROL), "by its own rules"),  # nobody shows that they hold it
        (lists("d", "version 3\nthreshold 2\n", ALICE, BOB, alice=ALICE, carol=CAROL), "by its own rules.*1 of the 2"),
        (lists("e", "version 2\n", ALICE, BOB, **both), "has version 2.*higher"),
        (lists("f", "version 1\n", ALICE, BOB, **both), "higher"),
        (lists("g", "version 3\n", **both), "is not signed"),
        (lists("h", "version 3\nexpires 2020-01-01\n", ALICE, BOB, **both), "expired"),
    ):
        with pytest.raises(BundleError, match=match):
            rotate(current, new, lambda: NOW)
        assert current.read_bytes() == before


def test_a_changed_list_has_no_signatures(lists) -> None:
    current = lists("current", "version 1\n", alice=ALICE)
    new = lists("new", "version 2\n", ALICE, alice=ALICE)
    new.write_text(list_of(mallory=MALLORY) + new.read_text())
    with pytest.raises(BundleError, match="signature is wrong"):
        rotate(current, new)
    with pytest.raises(BundleError, match="nothing but signatures may follow"):
        parse_signers(new.read_text() + list_of(mallory=MALLORY), "it")


def test_a_name_that_looks_like_a_signature_does_not_move_where_they_begin(lists) -> None:
    path = lists("new", "version 2\n", ALICE, alice=ALICE)
    signature = read_signers(path).signatures[0]
    sneaky = f"version 2\n{public(ALICE)} x signature {signature}\n{list_of(mallory=MALLORY)}signature {signature}\n"
    listed = parse_signers(sneaky, "it")
    assert b"\n" + list_of(mallory=MALLORY).encode() in listed.text


def test_a_revoked_key_opens_nothing(lists, tmp_path) -> None:
    bundle = release(tmp_path / "x", 7)
    listed = lists("revoking", f"revoked {list_of(alice=ALICE)}", alice=ALICE, bob=BOB)
    with pytest.raises(BundleError, match="alice, whose key was revoked"):
        BundleStore.open_trusted(bundle, listed)
    add_signature(bundle, BOB)
    assert BundleStore.open_trusted(bundle, listed).signer == "bob"


def test_an_expired_list_opens_nothing(lists, tmp_path) -> None:
    bundle = release(tmp_path / "x", 7)
    with pytest.raises(BundleError, match=r"list of signers expired.*rotate"):
        BundleStore.open_trusted(bundle, lists("old", "expires 2020-01-01\n", alice=ALICE))


def test_signatures_are_added_one_by_one_and_keep_the_digest(tmp_path, lists) -> None:
    bundle = release(tmp_path / "x", 7)
    listed = lists("three", "threshold 3\n", alice=ALICE, bob=BOB, carol=CAROL)
    digests = {add_signature(bundle, key) for key in (BOB, CAROL, BOB)}
    opened = BundleStore.open_trusted(bundle, listed)
    assert digests == {opened.digest}
    assert set(opened.signer.split(", ")) == {"alice", "bob", "carol"}


@pytest.mark.parametrize(
    "text",
    ["threshold 2\n{alice}", "threshold 0\n{alice}", "threshold x\n{alice}", "version 1.5\n{alice}", "minimum prod\n",
     "expires soon\n{alice}", "revoked nobody\n{alice}", "threshold 2\n{alice}{bob}revoked {bob}", "version -1\n"],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(text) -> None:
    with pytest.raises(BundleError):
        parse_signers(text.format(alice=list_of(alice=ALICE), bob=list_of(bob=BOB)), "it")


def test_a_list_without_a_version_is_not_signed(lists) -> None:
    with pytest.raises(BundleError, match="add a line such as `version 1`"):
        lists("plain", "", ALICE, alice=ALICE)


def test_a_service_and_a_cache_take_no_list_that_asks_for_more_than_one(lists) -> None:
    listed = signers.read_signers(lists("two", "threshold 2\n", alice=ALICE, bob=BOB))
    with pytest.raises(BundleError, match="asks for 2 signatures"):
        listed.require_single("signers")
