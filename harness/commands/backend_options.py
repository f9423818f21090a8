"""The option `--backend` of commands that start a cluster, and those that say where its brokers come from."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

import click
from harrow.cluster.errors import ConfigError
from harrow.faults.errors import CapabilityError

from ..backends.choice import LOCAL, ORIGIN_OPTIONS, ORIGINS, BackendChoice, choose_backend, unused_origin
from ..backends.kinds import KINDS, check_backend

C = TypeVar("C", bound=Callable[..., Any])


def origin_options(command: C) -> C:
    """Add an option for each backend that has one; the parameters have the options' names."""
    for origin in reversed(list(ORIGINS.values())):
        command = click.option(f"--{origin.option}", default="", metavar=origin.metavar, help=origin.doc)(command)
    return command


def backend_options(command: C) -> C:
    """Add the options; the parameters are `backend` and those of `origin_options`."""
    name = click.option(
        "--backend",
        metavar="NAME",
        default=LOCAL,
        show_default=True,
        help=f"where the brokers run: {', '.join(KINDS)}, or a backend of an extension",
    )
    return name(origin_options(command))


def take_backend(given: MutableMapping[str, Any]) -> BackendChoice:
    """Remove the options from the values of a command, and return their backend.

    A click error where the backend cannot be used here.
    """
    name = given.pop("backend")
    origins = {option: given.pop(option) for option in ORIGIN_OPTIONS}
    for option, value in origins.items():
        if value and (why := unused_origin(name, option)):
            raise click.UsageError(f"--{option}: {why}")
    choice = choose_backend(name, origins)
    try:
        check_backend(choice)
    except (CapabilityError, ConfigError) as error:
        raise click.UsageError(f"--backend {name}: {error}") from None
    return choice
