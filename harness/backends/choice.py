"""Which backend a user chose; the backends are in `backends/kinds.py`. The plugin imports this when pytest starts.

Some backends have an option of their own, which says where their brokers come from: `ORIGINS` is the only list of them.
The plugin, the marker, the fixtures and the commands have an option for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

LOCAL, APACHE, DOCKER, EXTERNAL = "local", "apache", "docker", "external"
SIMULATED = "simulated"
"""Brokers and asyncio services on a virtual clock, in the process of the test."""
BACKENDS = (LOCAL, APACHE, DOCKER, EXTERNAL, SIMULATED)


class Origin(NamedTuple):
    """The option that says where the brokers of one backend come from."""

    option: str
    """Its name: `kafka` is `--harrow-kafka` of pytest, `--kafka` of a command."""
    metavar: str
    doc: str


ORIGINS: Mapping[str, Origin] = {
    APACHE: Origin("kafka", "FOLDER", "the Apache Kafka release of the backend apache (default: KAFKA_HOME)"),
    DOCKER: Origin("image", "IMAGE", "the image of the backend docker (default: HARROW_IMAGE)"),
    EXTERNAL: Origin(
        "bootstrap", "HOST:PORT", "the cluster of the backend external, as for a client's bootstrap.servers"
    ),
}
"""By the name of the backend."""
ORIGIN_OPTIONS = tuple(origin.option for origin in ORIGINS.values())


class BackendChoice(NamedTuple):
    """The backend of a test, and where its brokers come from."""

    name: str = LOCAL
    origin: str = ""
    """The value of the backend's option (`ORIGINS`); empty: the backend finds its brokers, or says that it cannot."""


HARROWS_BROKERS = BackendChoice()


def unused_origin(backend: str, option: str) -> str:
    """Return why an option of `ORIGINS` has no effect with a backend; empty for the backend's own."""
    owner = next(name for name, origin in ORIGINS.items() if origin.option == option)
    if owner == backend:
        return ""
    return f"it belongs to the backend {owner}, and the backend is {backend}: choose {owner}, or leave it out"


def choose_backend(name: str, options: Mapping[str, Any]) -> BackendChoice:
    """Return the choice; `options`: the values of the options of `ORIGINS`, of other backends too."""
    origin = ORIGINS.get(name)
    return BackendChoice(name, options.get(origin.option, "") if origin else "")


def origin_words(choice: BackendChoice) -> list[tuple[str, str]]:
    """Return the option of the backend with its value; empty without a value."""
    return [(ORIGINS[choice.name].option, choice.origin)] if choice.origin else []
