"""`--set name=value` and `--plant MODULE`, shared by the commands that start a cluster."""

from __future__ import annotations

from collections.abc import Iterable

import click

plant_option = click.option(
    "--plant",
    "plants",
    multiple=True,
    metavar="MODULE",
    help="start the brokers with a planted bug, such as harrow.faults.zoo.kip_101; repeatable",
)
"""Option of all commands that start brokers; the parameter `plants` is a tuple of module names."""


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `["a.b=1", …]` to a mapping; a pair without `=` is a usage error. The cluster checks the names."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r}: expected NAME=VALUE", param_hint="--set")
        settings[name.strip()] = value.strip()
    return settings
