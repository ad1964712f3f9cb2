"""Report: all pages of a store or a bundle as one file; reports of other commands filed in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import session_for, store_option
from tunewright.errors import StoreError
from tunewright.ports.store import Store
from tunewright.report import words
from tunewright.report.pages import Bounds, Filed, Views
from tunewright.report.pages import report as written
from tunewright.settings import Settings
from tunewright.sharing import files
from tunewright.sharing.offers import Shelves
from tunewright.stores import places

MOST_BYTES = 64 << 20
"""Of a report that is filed."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(invoke_without_command=True)
@click.option("--out", type=click.Path(path_type=Path), help="Where to: FILE.html, or a folder (report.html in it).")
@click.option(
    "--bundle", "bundles", multiple=True, type=_FILE, help="Show this bundle too; alone, if there is no --store."
)
@click.option("--signers", type=_FILE, help="Public keys of those whose bundles are believed.")
@click.option("--pin", help="The digest that a bundle must have, instead of a signer.")
@click.option("--with", "filed", multiple=True, type=_FILE, help="Also show what another command wrote with --json.")
@click.option(
    "--spaces", type=click.IntRange(min=0), default=8, show_default=True, help="Journals to explore, largest first."
)
@click.option(
    "--searches",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Journals on which strategies are compared.",
)
@store_option
@click.pass_context
def report(context: click.Context, /, out: Path | None, **options: Any) -> None:
    """Write what is tuned, how it was found and what is missing as one HTML file that needs nothing else.

    These are the pages that `tunewright serve` serves, for the store of the settings, for --store, or for a --bundle.
    """
    if context.invoked_subcommand is not None:
        return
    if out is None:
        raise click.UsageError("say where to write it: --out report.html")
    path = out / "report.html" if out.is_dir() or not out.suffix else out
    views = _views(options)
    text = written(views, Bounds(spaces=options["spaces"], searches=options["searches"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.put(path, text.encode())
    said = f"{words.counted(len(views.decisions()), 'decision')}, {words.counted(len(views.kernels()), 'kernel')}"
    output.say(f"{path}: {said}, {words.size(len(text))}")


def _views(options: dict[str, Any]) -> Views:
    """What is to be shown of what was typed."""
    settings = Settings.read()
    bundles = [_opened(file, options, settings) for file in options["bundles"]]
    filed = [_read(file) for file in options["filed"]]
    held = {digest: entry for one in bundles for digest, entry in _quarantine(settings, one.digest).items()}
    store: Store
    if bundles and options["store"] is None:
        store, name = bundles[0], bundles[0].path.name
    else:
        session = session_for(None, {"store": options["store"]})
        store, name = places.truth(session.settings.store_location), session.settings.store_name
    return Views(store, name, bundles=bundles, held=held, filed=filed)


def _opened(file: Path, options: dict[str, Any], settings: Settings) -> Any:
    from tunewright.stores.bundle import BundleStore  # noqa: PLC0415 - needs `cryptography`

    opened = BundleStore.trusted(file, options["signers"], options["pin"])
    opened.heed(settings.cache_path)
    return opened


def _quarantine(settings: Settings, digest: str) -> Any:
    from tunewright.stores.bundle.quarantine import Quarantine  # noqa: PLC0415 - only where there are bundles

    return Quarantine(settings.cache_path, digest).entries()


def _read(file: Path) -> Filed:
    try:
        return Filed.read(files.content(file, MOST_BYTES), file.stem)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from error


@report.command()
@click.argument("filed", nargs=-1, required=True, type=_FILE)
@store_option
def keep(filed: tuple[Path, ...], store: str | None) -> None:
    """File what other commands wrote with --json in the store, so that its dashboard shows it.

    FILED are outputs of `triton prebuild --json`, `mlir steps --json` and `torch doctor --json`; they are known by
    what is in them.
    """
    session = session_for(None, {"store": store})
    kept = places.truth(session.settings.store_location)
    if not isinstance(kept, Shelves):
        raise StoreError(f"{session.settings.store_name} has no shelves to keep reports on; use `report --with FILE`")
    for one in [_read(file) for file in filed]:
        one.keep(kept)
        output.say(f"{one.title}: a report of {one.kind}, filed in {session.settings.store_name}")
