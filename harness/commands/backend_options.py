"""The options `--backend` and `--kafka` of commands that start a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from harrow.faults.errors import CapabilityError

from ..backend_choice import LOCAL, BackendChoice
from ..backends.kinds import KINDS, check_backend

C = TypeVar("C", bound=Callable[..., Any])


def backend_options(command: C) -> C:
    """Add the options; the parameters are `backend` and `kafka`."""
    kafka = click.option(
        "--kafka", default="", metavar="FOLDER", help="the Apache Kafka of the backend apache (default: KAFKA_HOME)"
    )  # fmt: skip
    name = click.option(
        "--backend", type=click.Choice(list(KINDS)), default=LOCAL, show_default=True, help="where the brokers run"
    )  # fmt: skip
    return name(kafka(command))


def chosen_backend(name: str, kafka: str) -> BackendChoice:
    """Return the backend of the options; a click error where it cannot be used here."""
    choice = BackendChoice(name, kafka)
    try:
        check_backend(choice)
    except CapabilityError as error:
        raise click.UsageError(f"--backend {name}: {error}") from None
    return choice
