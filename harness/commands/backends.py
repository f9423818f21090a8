"""`harrow backends`: what each backend can do here, and why one cannot be used (J2)."""

from __future__ import annotations

import click
from harrow.faults.errors import CapabilityError
from harrow.faults.system import CAPABILITIES

from ..backends.choice import choose_backend
from ..backends.kinds import all_backends
from .backend_options import origin_options


@click.command()
@origin_options
def command(**origins: str) -> None:
    """List the backends, where the brokers of a test may run, and what faults may ask of each."""
    for name, kind in all_backends().items():
        choice = choose_backend(name, origins)
        click.echo(f"{name:<10}{kind.brokers}")
        try:
            click.echo(f"          here: {kind.describe(choice)}")
        except CapabilityError as error:
            click.echo(f"          not here: {error}")
        able = kind.capabilities_of(choice) if kind.capabilities_of else kind.capabilities()
        click.echo(f"          faults can use: {', '.join(sorted(able))}")
        lacking = sorted(set(CAPABILITIES) - able)
        if lacking:
            click.echo(f"          and cannot use: {', '.join(lacking)}")
