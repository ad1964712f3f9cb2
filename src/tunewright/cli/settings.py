"""Settings: what is set, and where each value comes from."""

from __future__ import annotations

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.settings import FEATURES, Settings


@click.command()
@json_option
def settings(as_json: bool) -> None:
    """Show every setting and where it comes from; then every feature.

    Python over environment (TUNEWRIGHT_MODE) over tunewright.toml over default.
    """
    sources, found = Settings.sources(), Settings.read()
    shown = {name: getattr(found, name) for name in found.__struct_fields__}
    if found.store:
        shown["store"] = found.store_name
    del shown["features"]
    rows = [(name, shown[name], sources[name][1] if name in sources else "default") for name in shown]
    features = [
        (
            one.name,
            found.has(one.name),
            one.since,
            one.on_from,
            sources["features"][1] if one.name in found.features else "version",
            one.says,
        )
        for one in FEATURES
    ]
    if as_json:
        output.as_json(
            {
                "settings": {name: {"value": value, "from": where} for name, value, where in rows},
                "features": {
                    name: {"on": on, "since": since, "on_from": on_from, "from": where}
                    for name, on, since, on_from, where, _ in features
                },
            }
        )
        return
    output.table(
        ("setting", "value", "from"), [(name, value if value != "" else '""', where) for name, value, where in rows]
    )
    output.say()
    heads = ("feature", "is", "since", "on from", "by", "what it does")
    output.table(heads, [(name, "on" if on else "off", *rest) for name, on, *rest in features])
    output.say()
    output.say(f"decisions are kept in {found.store_name}")
    output.say("set one by TUNEWRIGHT_NAME=value, in tunewright.toml, or in Python: tunewright.configure(name=value)")
