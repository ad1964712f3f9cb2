"""`tunewright report`: the dashboard of a store or a bundle as one file; saved reports of other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import session_to_read, store_option
from tunewright.dashboard import ReportLimits, SavedReport, Views, render_report
from tunewright.errors import StoreError
from tunewright.ports.store import Store
from tunewright.report import formatting
from tunewright.settings import Settings
from tunewright.stores import files, locations
from tunewright.stores.capabilities import KeepsNamespaces

MAX_REPORT_BYTES = 64 << 20
"""Size of the largest report that is saved."""

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(invoke_without_command=True)
@click.option("--out", type=click.Path(path_type=Path), help="The file to write, or a folder for report.html.")
@click.option("--bundle", "bundles", multiple=True, type=_FILE, help="Show this bundle too; without --store, only it.")
@click.option("--signers", type=_FILE, help="Public keys of trusted signers.")
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
    """Write the dashboard of a store as one HTML file.

    It shows what is tuned, how it was found and what is missing, and needs no other file. `tunewright service run`
    serves the same pages. The store is that of the settings, of --store, or a --bundle.
    """
    if context.invoked_subcommand is not None:
        return
    if out is None:
        raise click.UsageError("say where to write it: --out report.html")
    path = out / "report.html" if out.is_dir() or not out.suffix else out
    views = _views(options)
    text = render_report(views, ReportLimits(spaces=options["spaces"], searches=options["searches"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, text.encode())
    summary = (
        f"{formatting.counted(len(views.decisions()), 'decision')}, "
        f"{formatting.counted(len(views.kernels()), 'kernel')}"
    )
    output.echo(f"{path}: {summary}, {formatting.size(len(text))}")


def _views(options: dict[str, Any]) -> Views:
    """Returns what the options ask to show."""
    settings = Settings.read()
    bundles = [_open_bundle(file, options, settings) for file in options["bundles"]]
    reports = [_read_report(file) for file in options["filed"]]
    quarantined = {
        digest: entry for bundle in bundles for digest, entry in _quarantine(settings, bundle.digest).items()
    }
    store: Store
    if bundles and options["store"] is None:
        store, name = bundles[0], bundles[0].path.name
    else:
        session = session_to_read(options["store"])
        store, name = locations.open_authoritative(session.settings.store_location), session.settings.store_name
    return Views(store, name, bundles=bundles, quarantined=quarantined, reports=reports)


def _open_bundle(file: Path, options: dict[str, Any], settings: Settings) -> Any:
    from tunewright.stores.bundle import BundleStore  # noqa: PLC0415 - needs `cryptography`

    bundle = BundleStore.open_trusted(file, options["signers"], options["pin"])
    bundle.apply_quarantine(settings.cache_path)
    return bundle


def _quarantine(settings: Settings, digest: str) -> Any:
    from tunewright.stores.bundle.quarantine import Quarantine  # noqa: PLC0415 - only where there are bundles

    return Quarantine(settings.cache_path, digest).entries()


def _read_report(file: Path) -> SavedReport:
    try:
        return SavedReport.read(files.read_bounded(file, MAX_REPORT_BYTES), file.stem)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from error


@report.command()
@click.argument("filed", nargs=-1, required=True, type=_FILE)
@store_option
def keep(filed: tuple[Path, ...], store: str | None) -> None:
    """Save what other commands wrote with --json in the store, so that its dashboard shows it.

    FILED are outputs of `triton prebuild --json`, `mlir steps --json` and `torch doctor --json`; their content tells
    which.
    """
    session = session_to_read(store)
    backing = locations.open_authoritative(session.settings.store_location)
    if not isinstance(backing, KeepsNamespaces):
        raise StoreError(f"{session.settings.store_name} cannot store reports; use `report --with FILE`")
    for saved in [_read_report(file) for file in filed]:
        saved.save(backing)
        output.echo(f"{saved.title}: a report of {saved.kind}, saved in {session.settings.store_name}")
