"""`tunewright settings`: every setting, and where its value comes from."""

from __future__ import annotations

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.settings import FEATURE_FLAGS, Settings


@click.command()
@json_option
def settings(as_json: bool) -> None:
    """Show every setting and where it comes from.

    Then every feature flag. Python over environment (TUNEWRIGHT_MODE) over tunewright.toml over default.
    """
    sources, current = Settings.sources(), Settings.read()
    values = {name: getattr(current, name) for name in current.__struct_fields__}
    if current.store:
        values["store"] = current.store_name
    del values["features"]
    rows = [(name, values[name], sources[name][1] if name in sources else "default") for name in values]
    features = [
        (
            flag.name,
            current.is_enabled(flag.name),
            flag.since,
            flag.enabled_from,
            sources["features"][1] if flag.name in current.features else "version",
            flag.description,
        )
        for flag in FEATURE_FLAGS
    ]
    if as_json:
        output.print_json(
            {
                "settings": {name: {"value": value, "from": source} for name, value, source in rows},
                "features": {
                    name: {"on": on, "since": since, "on_from": on_from, "from": source}
                    for name, on, since, on_from, source, _ in features
                },
            }
        )
        return
    output.print_table(
        ("setting", "value", "from"), [(name, value if value != "" else '""', source) for name, value, source in rows]
    )
    output.echo()
    heads = ("feature", "is", "since", "on from", "by", "what it does")
    output.print_table(heads, [(name, "on" if on else "off", *rest) for name, on, *rest in features])
    output.echo()
    output.echo(f"decisions are kept in {current.store_name}")
    output.echo(
        "set one with TUNEWRIGHT_NAME=value, in tunewright.toml, or in Python: tunewright.configure(name=value)"
    )
