"""`harrow backends`: what each backend can do here, and why one cannot be used (J2)."""

from __future__ import annotations

import click
from harrow.faults.errors import CapabilityError
from harrow.faults.system import CAPABILITIES

from ..backend_choice import BackendChoice
from ..backends.kinds import KINDS


@click.command()
@click.option(
    "--kafka", metavar="FOLDER", default="", help="An Apache Kafka release (default: KAFKA_HOME)."
)
def command(kafka: str) -> None:
    """List the backends, where the brokers of a test may run, and what faults may ask of each."""
    for name, kind in KINDS.items():
        click.echo(f"{name:<8}{kind.brokers}")
        try:
            click.echo(f"        here: {kind.describe(BackendChoice(name, kafka))}")
        except CapabilityError as error:
            click.echo(f"        not here: {error}")
        able = kind.capabilities()
        click.echo(f"        faults can use: {', '.join(sorted(able))}")
        lacking = sorted(set(CAPABILITIES) - able)
        if lacking:
            click.echo(f"        and cannot use: {', '.join(lacking)}")
