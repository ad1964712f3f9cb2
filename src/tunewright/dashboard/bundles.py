"""Pages of bundles: their content, signers, and differences from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from shlex import quote
from typing import NamedTuple

from tunewright.dashboard import components
from tunewright.dashboard.layout import PageContent, Query
from tunewright.dashboard.views import BundleView, PageNotFound, Views
from tunewright.model.decision import Decision
from tunewright.report import formatting
from tunewright.report.markup import Markup, el, join_markup, link, table

MAX_ROWS = 300
CURRENT_STORE = "store"


class DecisionChange(NamedTuple):
    """A difference between two sets of decisions: a key is gone, new or changed."""

    what: str
    before: Decision | None
    after: Decision | None


def find_changes(before: Iterable[Decision], after: Iterable[Decision]) -> list[DecisionChange]:
    """Returns the differences, key by key."""
    old = {decision.key: decision for decision in before}
    new = {decision.key: decision for decision in after}
    changes = [DecisionChange("gone", decision, None) for key, decision in old.items() if key not in new]
    changes += [DecisionChange("new", None, decision) for key, decision in new.items() if key not in old]
    return changes + [
        DecisionChange("changed", decision, new[key])
        for key, decision in old.items()
        if key in new and new[key].config != decision.config
    ]


def bundles(views: Views, query: Query) -> PageContent:
    """Renders the list of bundles."""
    if not views.bundles:
        note = components.empty_note(
            "There are no bundles. Make one:", "tunewright bundle build FILE.bundle --sign KEY"
        )
        return PageContent("Bundles", note, "/bundles")
    rows = [
        (link(bundle.path.name, "/bundle", digest=bundle.digest), _signer(bundle), f"{bundle.manifest.decisions:,}",
         ", ".join(bundle.manifest.kernels), bundle.manifest.made_by, el("code", bundle.digest[:16]))
        for bundle in views.bundles
    ]  # fmt: skip
    heads = ("bundle", "signed by", "decisions", "kernels", "made by", "digest")
    return PageContent("Bundles", table("Bundles", heads, rows, numbers=(2,)), "/bundles")


def bundle(views: Views, query: Query) -> PageContent:
    """Renders one bundle: its content, and its differences from the store or from another bundle."""
    shown = _find_bundle(views, query.get("digest", ""))
    manifest = shown.manifest
    attached = Counter(kind for kind, _ in shown.attachments)
    facts = (
        (f"{manifest.decisions:,}", "decisions", formatting.counted(len(manifest.devices), "device")),
        (f"{attached.get('build', 0):,}", "builds", "compiled artifacts"),
        (f"{attached.get('race', 0):,}", "races", "transcripts that can be judged again"),
    )
    note = el("p", manifest.note, class_="note") if manifest.note else None
    identity = el("p", "Signed by ", el("strong", _signer(shown)), "; digest ", el("code", shown.digest), "; choice ",
                  el("code", manifest.choice[:16]))  # fmt: skip
    rows = [
        (components.key_link(decision.key, decision.key.kernel), components.argument_sizes(decision.key),
         str(decision.key.device), components.config_code(decision.config), components.time_of(decision),
         components.gain_of(decision))
        for decision in list(shown.decisions())[:MAX_ROWS]
    ]  # fmt: skip
    content = table("Content", ("kernel", "arguments", "device", "config", "time", "gain"), rows, numbers=(4,))
    body = [
        identity,
        note,
        components.cards(facts),
        _differences(views, shown, query.get("against", CURRENT_STORE)),
        components.section("Content", content),
        _commands(shown),
    ]
    return PageContent(shown.path.name, join_markup(body), "/bundles")


def _signer(bundle: BundleView) -> str:
    return bundle.signer or "nobody; its digest is pinned"


def _find_bundle(views: Views, digest: str) -> BundleView:
    bundles = [bundle for bundle in views.bundles if len(digest) >= 6 and bundle.digest.startswith(digest)]
    if not bundles:
        raise PageNotFound(f"No bundle has a digest that begins with {digest[:64]!r}.")
    return bundles[0]


def _differences(views: Views, bundle: BundleView, against: str) -> Markup:
    """Renders what would change if the bundle were applied to the store or to another bundle."""
    others = {other.digest: other.path.name for other in views.bundles if other.digest != bundle.digest}
    choices = [
        el("strong", name) if choice == against else link(name, "/bundle", digest=bundle.digest, against=choice)
        for choice, name in {CURRENT_STORE: "the store", **others}.items()
    ]
    if against == CURRENT_STORE:
        before, name = views.decisions(), views.name or "the store"
    else:
        other = _find_bundle(views, against)
        before, name = list(other.decisions()), other.path.name
    kernels = set(bundle.manifest.kernels)
    changes = find_changes((decision for decision in before if decision.key.kernel in kernels), bundle.decisions())
    rows = [
        (change.what, *_kernel_and_sizes(change),
         components.config_code(change.before.config) if change.before else "",
         components.config_code(change.after.config) if change.after else "")
        for change in changes[:MAX_ROWS]
    ]  # fmt: skip
    heads = ("what", "kernel", "arguments", f"in {name}", "in this bundle")
    differences = (
        table("Differences", heads, rows)
        if rows
        else components.empty_note(f"None: for these kernels it has the decisions of {name}.")
    )
    separated = (join_markup([choice, " · " if choice is not choices[-1] else None]) for choice in choices)
    choose = el("p", "Compared with: ", separated, class_="about")
    return components.section(f"{formatting.counted(len(changes), 'difference')} from {name}", choose, differences)


def _kernel_and_sizes(change: DecisionChange) -> tuple[str, str]:
    key = (change.after or change.before).key  # type: ignore[union-attr]
    return key.kernel, components.argument_sizes(key)


def _commands(bundle: BundleView) -> Markup:
    """Renders the commands that apply the bundle and roll back."""
    apply = f"tunewright bundle apply {quote(bundle.path.name)} --signers FILE"
    lines = [el("li", el("code", apply), " makes its decisions current; earlier ones stay in the history.")]
    lines += [
        el("li", el("code", f"tunewright store rollback {quote(name)} --to yesterday"), " goes back.")
        for name in list(bundle.manifest.kernels)[:5]
    ]
    return components.section("Apply and roll back", el("ul", lines))
