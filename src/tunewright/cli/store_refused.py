"""`tunewright store refused`: writes that the remote store refused."""

from __future__ import annotations

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option, make_session, store_option
from tunewright.report import formatting
from tunewright.stores.capabilities import HasRefusedWrites
from tunewright.stores.statistics import RefusedWrite


@click.command()
@click.option("--drop", is_flag=True, help="Forget them.")
@click.option("--retry", is_flag=True, help="Send them again with the next writes, as after a token got more rights.")
@store_option
@json_option
def refused(drop: bool, retry: bool, store: str | None, as_json: bool) -> None:
    """List writes that the remote store refused.

    They are kept on this machine, the last thousand of them, and change nothing. Other writes go on.
    """
    if drop and retry:
        raise click.UsageError("choose one of --drop and --retry")
    session = make_session(None, {"store": store})
    backing = session.store
    writes = backing.refused_writes() if isinstance(backing, HasRefusedWrites) else []
    dropped = backing.drop_refused() if drop and isinstance(backing, HasRefusedWrites) else 0
    retried = backing.retry_refused() if retry and isinstance(backing, HasRefusedWrites) else 0
    if as_json:
        rows = [{"digest": write.key.digest, "kernel": write.key.kernel, **_what(write)} for write in writes]
        output.print_json({"refused": rows, "dropped": dropped, "retried": retried})
        return
    if writes:
        output.print_table(
            ("key", "kernel", "what", "reason"),
            [(write.key.digest[:10], write.key.kernel, _text(write), write.reason) for write in writes],
        )
    count = formatting.counted(len(writes), "refused write")
    output.echo(f"{count}{' dropped' if drop else ' will be sent again' if retry else ''}")


def _what(write: RefusedWrite) -> dict[str, object]:
    config = None if write.decision is None else write.decision.config.plain()
    return {"config": config, "trials": write.trials, "reason": write.reason}


def _text(write: RefusedWrite) -> str:
    return formatting.counted(write.trials, "trial") if write.decision is None else str(write.decision.config)
