"""Torch: what `torch.compile` makes of a model."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tunewright.cli import output
from tunewright.cli.bundle import FILE, trust_options
from tunewright.cli.targets import json_option, placed, session_for, store_option
from tunewright.pools.loading import find
from tunewright.report import journey as travelled
from tunewright.report import journey_page, words
from tunewright.report.diagnosis import Place, page, plain, told
from tunewright.sharing import wire

F = TypeVar("F", bound=Callable[..., Any])


def inductor_options(function: F) -> F:
    """`--freeze`, `--autotune` and `--threads`."""
    freeze = click.option("--freeze", is_flag=True, help="Weights are constants, packed beforehand.")
    autotune = click.option("--autotune", is_flag=True, help="Let Inductor time its candidates.")
    threads = click.option("--threads", type=int, help="How many threads it will run with (default: as here).")
    return freeze(autotune(threads(function)))


@click.group()
def torch() -> None:
    """Models that torch.compile compiles."""


@torch.command()
@click.argument("target")
@click.option("--backend", default=None, help="Of torch.compile (default: as the model says, else inductor).")
@click.option("--calls", default=1_000, show_default=True, help="For how many calls time is reckoned.")
@click.option("--layers", is_flag=True, help="The error of each layer, even where the whole is right.")
@click.option("--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write a page instead.")
@json_option
def doctor(target: str, backend: str | None, calls: int, layers: bool, page_at: Path | None, as_json: bool) -> None:
    """Say what costs a compiled model time or digits, where, and what to change.

    TARGET is FILE.py:MAKE or module:MAKE, a function that returns a model and the arguments of one call or more, each a
    tuple: `return model, (x,)`. Symptoms are ranked by the time at stake.
    """
    from tunewright.fronts.torch.doctor import examine_made  # noqa: PLC0415 - torch is loaded where it is asked for

    file, made = _made(target)
    how = {"backend": backend} if backend else {}
    found = examine_made(made, Place(file), how, calls=calls, layers=layers)
    if page_at:
        page_at.write_text(page(found))
        output.say(f"{len(found.symptoms)} symptoms written to {page_at}")
    elif as_json:
        output.as_json(plain(found))
    else:
        for line in told(found):
            output.say(line)


@torch.command()
@click.argument("target")
@click.option("--out", type=FILE, required=True, help="Where the bundle is written.")
@click.option("--sign", type=FILE, help="The key to sign with, as `tunewright bundle key` makes it.")
@click.option("--caches", is_flag=True, help="PyTorch's cache artefacts instead of machine code.")
@inductor_options
@store_option
@json_option
def bundle(target: str, out: Path, sign: Path | None, caches: bool, as_json: bool, **options: Any) -> None:
    """Compile the model that TARGET makes, and pack it into a bundle that is loaded without a compiler.

    TARGET is FILE.py:MAKE or module:MAKE, as for the doctor; each call it returns is compiled for. Decisions of the
    store that are about this release of torch go along.
    """
    from tunewright.fronts.torch import shipping  # noqa: PLC0415 - torch is loaded where it is asked for
    from tunewright.fronts.torch.doctor import parted  # noqa: PLC0415 - as above

    _, made = _made(target)
    model, calls = parted(made)
    config = _config(options)
    session = session_for(None, {"store": options["store"]})
    decisions = [one for one in session.store.decisions() if "torch" in one.key.toolchain]
    digest = shipping.bundle(out, model, *calls, sign=sign, caches=caches, decisions=decisions, **config)
    size = out.stat().st_size
    if as_json:
        told_of = {"file": str(out), "digest": digest, "bytes": size, "calls": len(calls), "decisions": len(decisions)}
        output.as_json({**told_of, "signed": sign is not None})
        return
    counted = f"{words.counted(len(calls), 'call')}, {words.counted(len(decisions), 'decision')}"
    output.say(f"{out}: {counted}, {words.size(size)}, " + ("signed" if sign else "not signed"))
    output.say(f"pin it with {digest}")


@torch.command()
@click.argument("file", type=FILE)
@click.argument("target", required=False)
@trust_options
@json_option
def explain(file: Path, target: str | None, signers: Path | None, pin: str | None, as_json: bool) -> None:
    """Say whether the model in the bundle FILE can be loaded here, and what differs; exit status 1 if it cannot.

    With TARGET, FILE.py:MAKE or module:MAKE, its source and weights are compared too.
    """
    from tunewright.fronts.torch import loading  # noqa: PLC0415 - torch is loaded where it is asked for
    from tunewright.fronts.torch.doctor import parted  # noqa: PLC0415 - as above

    _, shipment = loading.opened(file, signers, pin)
    model = None if target is None else parted(_made(target)[1])[0]
    found = loading.compared(shipment, model)
    if as_json:
        output.as_json(
            {"model": shipment.name, "premises": shipment.premises, "differences": [one._asdict() for one in found]}
        )
    else:
        output.say(
            f"{file}: {shipment.name}, compiled for {shipment.premises.processor}, torch {shipment.premises.torch}"
        )
        for one in found:
            output.say(f"  {one}")
        output.say("it cannot be loaded as it is" if found else "all that its code takes for granted holds here")
    if found:
        sys.exit(1)


@torch.command()
@click.argument("target")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="A folder for the page.")
@inductor_options
@json_option
def journey(target: str, out: Path, as_json: bool, **options: Any) -> None:
    """Follow the model that TARGET makes from Python to machine code, and write a page about it.

    Into the folder go index.html, which needs nothing else, and journey.json. The first call that TARGET returns is
    followed.
    """
    from tunewright.backends.inductor import adapter  # noqa: PLC0415 - torch is loaded where it is asked for
    from tunewright.fronts.torch.doctor import parted  # noqa: PLC0415 - as above
    from tunewright.fronts.torch.journey import journey as followed  # noqa: PLC0415 - as above

    _, made = _made(target)
    model, calls = parted(made)
    with adapter.configured(**_config(options)):
        found = followed(model, *calls[0])
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").write_text(journey_page.page(found))
    (out / "journey.json").write_bytes(wire.encode(travelled.plain(found)))
    if as_json:
        output.as_json(travelled.plain(found))
        return
    for line in travelled.told(found):
        output.say(line)
    output.say(f"written to {out / 'index.html'}")


def _config(options: dict[str, Any]) -> dict[str, Any]:
    """Settings of Inductor, from what a person typed; threads are set at once."""
    from tunewright.fronts.torch.premises import use_threads  # noqa: PLC0415 - torch is loaded where it is asked for

    if options["threads"]:
        use_threads(options["threads"])
    return {name: True for name, given in (("freezing", "freeze"), ("max_autotune", "autotune")) if options[given]}


def _made(target: str) -> tuple[str, Any]:
    """The file that a function stands in, and what it returns."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise click.UsageError(f"{target} names no function; write FILE.py:MAKE or module:MAKE")
    place = placed(place, "a function is named as FILE.py:MAKE or module:MAKE")
    with contextlib.redirect_stdout(sys.stderr):  # what the program prints is not our answer
        make = find(f"{place}:{name}")
        made = make()
    return str(getattr(getattr(make, "__code__", None), "co_filename", place)), made
