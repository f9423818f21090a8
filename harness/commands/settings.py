"""`--set name=value` and `--plant MODULE`, shared by the commands that start a cluster."""

from __future__ import annotations

from collections.abc import Iterable

import click

plant_option = click.option(
    "--plant",
    "plants",
    multiple=True,
    metavar="MODULE",
    help="start the brokers with a planted bug, such as harrow.faults.zoo.kip_101; may be given often",
)
"""The option of every command that starts brokers; the command gets `plants`, a tuple of module names."""


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """`["a.b=1", …]` as a mapping; a pair without `=` is a usage error (unknown names are the cluster's to refuse)."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r}: expected NAME=VALUE", param_hint="--set")
        settings[name.strip()] = value.strip()
    return settings
