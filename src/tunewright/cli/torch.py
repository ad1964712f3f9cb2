"""`tunewright torch`: diagnosis, reports and bundles of models compiled by `torch.compile`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tunewright.cli import output
from tunewright.cli.bundle_options import FILE, trust_options
from tunewright.cli.targets import import_place, json_option, make_session, store_option
from tunewright.pools.kernel_loader import load_target
from tunewright.report import formatting
from tunewright.stores import serialization
from tunewright.torch.report import compile_report as reports
from tunewright.torch.report.diagnosis import CodeLocation, as_dict, describe, render_page
from tunewright.torch.report.page import render_page as render_report

F = TypeVar("F", bound=Callable[..., Any])


def inductor_options(function: F) -> F:
    """Adds the options `--freeze`, `--autotune` and `--threads`."""
    freeze = click.option("--freeze", is_flag=True, help="Weights are constants, packed beforehand.")
    autotune = click.option("--autotune", is_flag=True, help="Let Inductor time its candidates.")
    threads = click.option("--threads", type=int, help="How many threads the model will run with (default: as here).")
    return freeze(autotune(threads(function)))


@click.group()
def torch() -> None:
    """Diagnose, report on and ship torch.compile models."""


@torch.command()
@click.argument("target")
@click.option("--backend", default=None, help="Backend of torch.compile (default: the model's own, else inductor).")
@click.option("--calls", default=1_000, show_default=True, help="For how many calls time is estimated.")
@click.option("--layers", is_flag=True, help="Report the error of each layer, even if the whole is right.")
@click.option("--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write a page instead.")
@json_option
def doctor(target: str, backend: str | None, calls: int, layers: bool, page_at: Path | None, as_json: bool) -> None:
    """Find what costs a compiled model time or accuracy, where, and what to change.

    TARGET is FILE.py:MAKE or module:MAKE, a function that returns a model and the arguments of one call or more, each a
    tuple, `return model, (x,)`, or a dict of keywords, `return model, {"input_ids": x}`. Symptoms are ranked by the
    time at stake.
    """
    from tunewright.torch.diagnostics.doctor import examine_target  # noqa: PLC0415 - loads torch

    file, example = _load_model(target)
    overrides = {"backend": backend} if backend else {}
    diagnosis = examine_target(example, CodeLocation(file), overrides, calls=calls, layers=layers)
    if page_at:
        page_at.write_text(render_page(diagnosis))
        output.echo(f"{len(diagnosis.symptoms)} symptoms written to {page_at}")
    elif as_json:
        output.print_json(as_dict(diagnosis))
    else:
        for line in describe(diagnosis):
            output.echo(line)


@torch.command()
@click.argument("target")
@click.option("--out", type=FILE, required=True, help="Where the bundle is written.")
@click.option("--sign", type=FILE, help="The private key to sign with, as made by `tunewright bundle key`.")
@click.option("--caches", is_flag=True, help="Pack PyTorch's cache artifacts instead of machine code.")
@click.option("--numerics", default="", help="Reduced precisions that it was tuned with: bfloat16, int8, or both.")
@inductor_options
@store_option
@json_option
def bundle(
    target: str, out: Path, sign: Path | None, caches: bool, numerics: str, as_json: bool, **options: Any
) -> None:
    """Compile the model that TARGET makes into a bundle that is loaded without a compiler.

    TARGET is FILE.py:MAKE or module:MAKE, as for the doctor. The model is compiled for each call that it returns, as
    was decided for its graphs, with these decisions. --freeze and --autotune say how it is compiled instead.
    """
    from tunewright.torch import shipping  # noqa: PLC0415 - loads torch
    from tunewright.torch.diagnostics.doctor import split_target  # noqa: PLC0415 - as above

    model, calls = split_target(_load_model(target)[1])
    config = _config(options)
    session = make_session(None, {"store": options["store"]})
    allowed = [name for name in numerics.replace(",", " ").split() if name]
    made = shipping.compile_bundle(model, calls, config, caches=caches, session=session, numerics=allowed)
    digest, decisions = made.write(out, sign), made.decisions
    size = out.stat().st_size
    if as_json:
        answer = {"file": str(out), "digest": digest, "bytes": size, "calls": len(calls), "decisions": len(decisions)}
        output.print_json({**answer, "signed": sign is not None, "notes": made.notes})
        return
    for note in made.notes:
        output.echo(note)
    summary = f"{formatting.counted(len(calls), 'call')}, {formatting.counted(len(decisions), 'decision')}"
    output.echo(f"{out}: {summary}, {formatting.size(size)}, " + ("signed" if sign else "not signed"))
    output.echo(f"pin it with {digest}")


@torch.command()
@click.argument("file", type=FILE)
@click.argument("target", required=False)
@trust_options
@json_option
def explain(file: Path, target: str | None, signers: Path | None, pin: str | None, as_json: bool) -> None:
    """Check whether the model in the bundle FILE can be loaded here; exit status 1 if it cannot.

    Prints what differs. With TARGET, FILE.py:MAKE or module:MAKE, source and weights are compared too.
    """
    from tunewright.torch import loading  # noqa: PLC0415 - loads torch
    from tunewright.torch.diagnostics.doctor import split_target  # noqa: PLC0415 - as above

    _, shipment = loading.open_bundle(file, signers, pin)
    model = None if target is None else split_target(_load_model(target)[1])[0]
    differences = loading.find_differences(shipment, model)
    if as_json:
        output.print_json(
            {
                "model": shipment.name,
                "premises": shipment.compatibility,
                "differences": [difference._asdict() for difference in differences],
            }
        )
    else:
        built_for = shipment.compatibility
        output.echo(f"{file}: {shipment.name}, compiled for {built_for.processor}, torch {built_for.torch}")
        for difference in differences:
            output.echo(f"  {difference}")
        output.echo("it cannot be loaded as it is" if differences else "it can be loaded here")
    if differences:
        sys.exit(1)


@torch.command()
@click.argument("target")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="A folder for the page.")
@inductor_options
@json_option
def report(target: str, out: Path, as_json: bool, **options: Any) -> None:
    """Write a page on how the model that TARGET makes is compiled, from Python to machine code.

    Writes index.html, which needs no other file, and journey.json. The first call that TARGET returns is compiled.
    """
    from tunewright.torch.diagnostics.doctor import split_target  # noqa: PLC0415 - as above
    from tunewright.torch.inductor import adapter  # noqa: PLC0415 - loads torch
    from tunewright.torch.trace_compile import compile_report  # noqa: PLC0415 - as above

    model, calls = split_target(_load_model(target)[1])
    with adapter.inductor_config(**_config(options)):
        traced = compile_report(model, calls[0])
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").write_text(render_report(traced))
    (out / "journey.json").write_bytes(serialization.encode(reports.as_dict(traced)))
    if as_json:
        output.print_json(reports.as_dict(traced))
        return
    for line in reports.describe(traced):
        output.echo(line)
    output.echo(f"written to {out / 'index.html'}")


def _config(options: dict[str, Any]) -> dict[str, Any]:
    """Returns Inductor's settings from the options; sets the number of threads at once."""
    from tunewright.torch.compatibility import set_threads  # noqa: PLC0415 - loads torch

    if options["threads"]:
        set_threads(options["threads"])
    return {name: True for name, option in (("freezing", "freeze"), ("max_autotune", "autotune")) if options[option]}


def _load_model(target: str) -> tuple[str, Any]:
    """Calls the function at a target; returns its file, and the model and calls that it made."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise click.UsageError(f"{target} names no function; write FILE.py:MAKE or module:MAKE")
    place = import_place(place, "a function is named as FILE.py:MAKE or module:MAKE")
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the command's answer
        make = load_target(f"{place}:{name}")
        example = make()
    return str(getattr(getattr(make, "__code__", None), "co_filename", place)), example
