"""`harrow failpoints`: lists the failpoints: named places in the broker's code that a fault can arm (K6)."""

from __future__ import annotations

import click
from harrow.cluster.host.seam.failpoints import DECLARED


@click.command()
def command() -> None:
    """List the failpoints of the broker's code."""
    width = max(len(name) for name in DECLARED)
    for name, doc in sorted(DECLARED.items()):
        click.echo(f"{name:<{width}}  {doc}")
