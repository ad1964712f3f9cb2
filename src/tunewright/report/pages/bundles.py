"""Bundles: what signed files say and bring, who vouches for them, and how they differ from what stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from shlex import quote
from typing import NamedTuple

from tunewright.model.decision import Decision
from tunewright.report import words
from tunewright.report.pages import parts
from tunewright.report.pages.frame import Query, Sheet
from tunewright.report.pages.markup import Markup, el, link, put, table
from tunewright.report.pages.views import NotThere, Parcel, Views

MOST_ROWS = 300
STORE = "store"


class Change(NamedTuple):
    """What one set of decisions says otherwise than another: gone, new or changed."""

    what: str
    before: Decision | None
    after: Decision | None


def changes(before: Iterable[Decision], after: Iterable[Decision]) -> list[Change]:
    """What differs, key by key."""
    old, new = ({one.key: one for one in some} for some in (before, after))
    found = [Change("gone", one, None) for key, one in old.items() if key not in new]
    found += [Change("new", None, one) for key, one in new.items() if key not in old]
    return found + [
        Change("changed", one, new[key]) for key, one in old.items() if key in new and new[key].config != one.config
    ]


def bundles(views: Views, query: Query) -> Sheet:
    """The list of bundles."""
    if not views.bundles:
        said = parts.empty(
            "No bundle is shown here. Make one, or hand one over:", "tunewright bundle build FILE.bundle --sign KEY"
        )
        return Sheet("Bundles", said, "/bundles")
    rows = [
        (link(one.path.name, "/bundle", digest=one.digest), _signer(one), f"{one.manifest.decisions:,}",
         ", ".join(one.manifest.kernels), one.manifest.made_by, el("code", one.digest[:16]))
        for one in views.bundles
    ]  # fmt: skip
    heads = ("bundle", "vouched for by", "decisions", "kernels", "made by", "digest")
    return Sheet("Bundles", table("Bundles", heads, rows, numbers=(2,)), "/bundles")


def bundle(views: Views, query: Query) -> Sheet:
    """One bundle: what is in it, and how it differs from the store or from another bundle."""
    one = _found(views, query.get("digest", ""))
    against = query.get("against", STORE)
    enclosed = Counter(kind for kind, _ in one.enclosures)
    facts = (
        (f"{one.manifest.decisions:,}", "decisions", words.counted(len(one.manifest.devices), "device")),
        (f"{enclosed.get('build', 0):,}", "builds", "what was compiled comes along"),
        (f"{enclosed.get('race', 0):,}", "races", "written down, to be judged again"),
    )
    note = el("p", one.manifest.note, class_="note") if one.manifest.note else None
    said = el("p", "Vouched for by ", el("strong", _signer(one)), "; digest ", el("code", one.digest), "; choice ",
              el("code", one.manifest.choice[:16]))  # fmt: skip
    rows = [
        (parts.key_link(each.key, each.key.kernel), parts.sizes(each.key), str(each.key.device),
         parts.config(each.config), parts.time_of(each.evidence), parts.gain_of(each))
        for each in list(one.decisions())[:MOST_ROWS]
    ]  # fmt: skip
    content = table("Content", ("kernel", "arguments", "device", "config", "time", "gain"), rows, numbers=(4,))
    body = [
        said,
        note,
        parts.cards(facts),
        _differences(views, one, against),
        parts.section("Content", content),
        _back(one),
    ]
    return Sheet(one.path.name, put(body), "/bundles")


def _signer(one: Parcel) -> str:
    return one.signer or "nobody; its digest is known"


def _found(views: Views, digest: str) -> Parcel:
    found = [one for one in views.bundles if len(digest) >= 6 and one.digest.startswith(digest)]
    if not found:
        raise NotThere(f"No bundle here has a digest that begins with {digest[:64]!r}.")
    return found[0]


def _differences(views: Views, one: Parcel, against: str) -> Markup:
    """What would change if the bundle were applied to what it is held against."""
    others = [other for other in views.bundles if other.digest != one.digest]
    named = {STORE: "the store", **{other.digest: other.path.name for other in others}}
    ways = [
        el("strong", said) if each == against else link(said, "/bundle", digest=one.digest, against=each)
        for each, said in named.items()
    ]
    if against == STORE:
        before, name = views.decisions(), views.name or "the store"
    else:
        other = _found(views, against)
        before, name = list(other.decisions()), other.path.name
    kernels = set(one.manifest.kernels)
    found = changes((each for each in before if each.key.kernel in kernels), one.decisions())
    rows = [
        (each.what, *_named(each), parts.config(each.before.config) if each.before else "",
         parts.config(each.after.config) if each.after else "")
        for each in found[:MOST_ROWS]
    ]  # fmt: skip
    heads = ("what", "kernel", "arguments", f"in {name}", "in this bundle")
    drawn = (
        table("Differences", heads, rows) if rows else parts.empty(f"None: of these kernels it says what {name} says.")
    )
    choose = el(
        "p", "Held against: ", (put([way, " · " if way is not ways[-1] else None]) for way in ways), class_="about"
    )
    return parts.section(f"{words.counted(len(found), 'difference')} from {name}", choose, drawn)


def _named(each: Change) -> tuple[str, str]:
    key = (each.after or each.before).key  # type: ignore[union-attr]
    return key.kernel, parts.sizes(key)


def _back(one: Parcel) -> Markup:
    """How it becomes what stands, and how that is undone."""
    apply = f"tunewright bundle apply {quote(one.path.name)} --signers FILE"
    lines = [el("li", el("code", apply), " lets it stand; what stood before stays in the history.")]
    lines += [
        el("li", el("code", f"tunewright store rollback {quote(name)} --to yesterday"), " goes back.")
        for name in list(one.manifest.kernels)[:5]
    ]
    return parts.section("Apply and roll back", el("ul", lines))
