"""The backends by name: what each is, whether it can be used here, and its source of clusters (J2).

Extensions add backends (J4); they are looked up only for a name that Harrow does not have.

A backend that cannot be used raises CapabilityError, which says why. A test that asks for what its backend lacks is
skipped with that reason; a backend that the command line names and that cannot be used is an error of usage.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError

from .choice import APACHE, DOCKER, EXTERNAL, LOCAL, SIMULATED, BackendChoice, origin_words

if TYPE_CHECKING:
    from .clusters import ClusterSource

BeforeStart = Callable[[], None] | None


def backend_words(choice: BackendChoice) -> str:
    """Return the options of a command that choose the backend."""
    words = [("backend", choice.name), *origin_words(choice)]
    return " ".join(f"--{option} {shlex.quote(value)}" for option, value in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """One backend."""

    brokers: str
    """What its brokers are."""
    describe: Callable[[BackendChoice], str]
    """What would be started here; CapabilityError where the backend cannot be used."""
    capabilities: Callable[[], frozenset[str]]
    """What faults may ask of it (`faults.system.CAPABILITIES`)."""
    source: Callable[[BackendChoice, BeforeStart], ClusterSource]
    capabilities_of: Callable[[BackendChoice], frozenset[str]] | None = None
    """What faults may ask of the brokers that the user chose, where it is not the same for all of them."""


def check_backend(choice: BackendChoice) -> str:
    """Return what would be started here; CapabilityError where the backend cannot be used."""
    return backend_kind(choice.name).describe(choice)


def new_source(choice: BackendChoice, before_start: BeforeStart = None) -> ClusterSource:
    """Return a source of new clusters; CapabilityError where the backend cannot be used."""
    source = backend_kind(choice.name).source(choice, before_start)
    if choice.name not in KINDS and source.backend != choice.name:
        raise ConfigError(
            f"the source of the backend {choice.name!r} has backend = {source.backend!r}, expected its name"
        )
    return source


def backend_kind(name: str) -> BackendKind:
    """Return the backend with this name, one of an extension too; ConfigError where there is none."""
    return KINDS[name] if name in KINDS else all_backends(name)[name]


def all_backends(wanted: str = "") -> Mapping[str, BackendKind]:
    """Return every backend, those of extensions too; ConfigError where `wanted` is none of them."""
    found = {**KINDS, **added_backends()}
    if wanted and wanted not in found:
        raise ConfigError(
            f"{wanted!r}: expected one of {', '.join(found)}; a backend of an extension needs its distribution"
        )
    return found


def added_backends() -> Mapping[str, BackendKind]:
    """Return the backends of extensions by name."""
    from ..extensions import added_by_name  # many modules, which Harrow's own backends do not need

    return added_by_name("harrow_backends", lambda value: isinstance(value, BackendKind), "a BackendKind", KINDS)


def _local_source(_: BackendChoice, before_start: BeforeStart) -> ClusterSource:
    from .clusters import OwnCluster

    return OwnCluster(before_start)


def _local_capabilities() -> frozenset[str]:
    from harrow.faults.system import CAPABILITIES

    return frozenset(CAPABILITIES)


def _apache_source(choice: BackendChoice, before_start: BeforeStart) -> ClusterSource:
    from .apache.installation import find_kafka
    from .apache.source import KafkaClusters

    return KafkaClusters(find_kafka(choice.origin), before_start)


def _apache_description(choice: BackendChoice) -> str:
    from .apache.installation import find_kafka

    kafka = find_kafka(choice.origin)
    return f"Apache Kafka {kafka.version} in {kafka.jars}, run by {kafka.java}"


def _apache_capabilities() -> frozenset[str]:
    from .apache.kafka_listeners import can_relay
    from .apache.system import CAPABILITIES, RELAYED

    return CAPABILITIES | (RELAYED if can_relay() else frozenset[str]())


def _secured_apache_capabilities() -> frozenset[str]:
    from .apache.system import SECURED

    return _apache_capabilities() | SECURED


def _docker_source(choice: BackendChoice, before_start: BeforeStart) -> ClusterSource:
    from .docker.source import DockerClusters

    return DockerClusters(choice.origin, before_start)


def _docker_description(choice: BackendChoice) -> str:
    from .docker.source import describe

    return describe(choice.origin)


def _docker_capabilities(choice: BackendChoice) -> frozenset[str]:
    from .docker.source import is_harrows

    return _local_capabilities() if is_harrows(choice.origin) else _apache_capabilities()


def _external_source(choice: BackendChoice, before_start: BeforeStart) -> ClusterSource:
    from .external.bootstrap import parse_bootstrap
    from .external.source import ExternalClusters

    parse_bootstrap(choice.origin)
    return ExternalClusters(choice.origin, before_start)


def _external_description(choice: BackendChoice) -> str:
    from .external.bootstrap import find_brokers

    found = find_brokers(choice.origin)
    return f"the cluster {found.cluster_id or 'without an id'} of {len(found.addresses)} brokers at {choice.origin}"


def _external_capabilities() -> frozenset[str]:
    from .external.system import CAPABILITIES

    return CAPABILITIES


def _simulated_source(_: BackendChoice, before_start: BeforeStart) -> ClusterSource:
    from .simulated.source import simulated_clusters

    return simulated_clusters(before_start)


def _simulated_capabilities() -> frozenset[str]:
    from .simulated.system import CAPABILITIES

    return CAPABILITIES


KINDS: Mapping[str, BackendKind] = {
    LOCAL: BackendKind(
        brokers="Harrow's own brokers, as processes of this machine",
        describe=lambda _: "Harrow's own brokers",
        capabilities=_local_capabilities,
        source=_local_source,
    ),
    APACHE: BackendKind(
        brokers="an Apache Kafka of this machine, started by Harrow behind a proxy",
        describe=_apache_description,
        capabilities=_secured_apache_capabilities,
        source=_apache_source,
    ),
    DOCKER: BackendKind(
        brokers="an image with Apache Kafka, started by Harrow behind a proxy; or Harrow's own image",
        describe=_docker_description,
        capabilities=_apache_capabilities,
        source=_docker_source,
        capabilities_of=_docker_capabilities,
    ),
    EXTERNAL: BackendKind(
        brokers="a cluster that is running, behind a proxy; Harrow starts and stops no broker",
        describe=_external_description,
        capabilities=_external_capabilities,
        source=_external_source,
    ),
    SIMULATED: BackendKind(
        brokers="Harrow's own brokers on a virtual clock, in the process of the test, beside its asyncio services",
        describe=lambda _: "Harrow's own brokers, simulated",
        capabilities=_simulated_capabilities,
        source=_simulated_source,
    ),
}

__all__ = ["KINDS", "BackendKind", "all_backends", "backend_kind", "backend_words", "check_backend", "new_source"]
