"""Names, addresses and ports of simulated machines, as their programs see them.

Owns: `Target`, what a program can connect to, and `target_of`. The name of a program is that of its machine, as in a
Compose file. Brokers, which have ports of their own, are on the loopback address of every machine.

What may fail: LookupError for a name that no machine has, and for a port of the loopback address that neither this
machine nor a broker serves; the text says what there is.
"""

from __future__ import annotations

from typing import NamedTuple

from ..simulated import Machine
from ..simulated.fabric import NetworkNode

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = frozenset({LOOPBACK, "localhost", "::1"})
EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - of a simulated machine
PROGRAM = "client"
"""The kind of the machines of programs."""


class Target(NamedTuple):
    """Where a connection goes."""

    node: NetworkNode | None
    """The machine of a program; None: a broker's port."""
    address: str


def target_of(machine: Machine, host: str | bytes | None, port: int) -> Target:
    """Return where a program of this machine connects to."""
    name = host.decode() if isinstance(host, bytes) else host
    fabric, own = machine.world.fabric, machine.network_node
    if name is None or name in LOCAL_NAMES or name in EVERY_ADDRESS:
        if (machine.name, port) in fabric.streams_listening:
            return Target(own, LOOPBACK)
        if port in fabric.owners:
            return Target(None, LOOPBACK)
        raise LookupError(_nothing_here(machine, port))
    return Target(node := node_of(machine, name), LOOPBACK if node is own else node.address)


def node_of(machine: Machine, name: str) -> NetworkNode:
    """Return the machine of a program, by its name or its address."""
    nodes = [node for node in machine.world.fabric.network_nodes.values() if node.identity.kind == PROGRAM]
    for node in nodes:
        if name in (node.identity.name, node.address):
            return node
    raise LookupError(
        f"this name is no machine of the simulation; programs: {', '.join(n.identity.name for n in nodes)}"
    )


def address_of(machine: Machine, host: str | bytes | None) -> str:
    """Return the address that a name resolves to."""
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or name in LOCAL_NAMES:
        return LOOPBACK
    return name if name in EVERY_ADDRESS else node_of(machine, name).address


def _nothing_here(machine: Machine, port: int) -> str:
    fabric = machine.world.fabric
    said = f"no machine of the simulation has this port; brokers have {sorted(fabric.owners)}"
    served = [number for name, number in fabric.streams_listening if name == machine.name]
    if served:
        said += f", this machine has {sorted(served)}"
    others = [fabric.network_nodes[name].identity.name for name, number in fabric.streams_listening if number == port]
    if others:
        said += f"; it is served on the machines of {', '.join(map(repr, others))}: connect to the name"
    return said
