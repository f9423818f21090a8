"""Damage to the files of a broker (K3): it is killed, its files are damaged, and it starts on what is left.

`damage_disk(damage, target)`; None: the seed draws the order in which these are tried until one finds a file:

    bit-flip             one bit of a batch is another one
    torn-write           the end of the last batches is zeroes
    short-write          the file ends within a batch
    misdirected-write    a piece of a batch is at another place too
    missing-index        the index files of a segment are gone
    short-index          an index file ends within an entry
    corrupt-index        an index file has random bytes
    missing-snapshot     the snapshots of the producers' states are gone
    corrupt-snapshot     a snapshot has random bytes at its end
    missing-checkpoint   a checkpoint of the data folder is gone, after a controlled shutdown, which writes them
    corrupt-checkpoint   the same, and the checkpoint ends within a line
    leftovers            `.cleaned` and `.deleted` files of a compaction that did not finish, and a complete `.swap`

What may be lost. Records and indexes are damaged at or above the recovery point only, where no fsync has promised
anything; bytes below it are not read again at a start, and a disk that loses them loses records silently, in Kafka too.
The damaged partition is one of which enough other replicas are in sync on brokers that run: half of the replicas, the
damaged one not counted, so that a majority of three copies stays good. Without such a partition the fault does not
fire. So a broker that loses a committed record after this fault had it elsewhere.

Evidence: the affected incarnation has ended, and the report of what was damaged: without a file that can be damaged
(no fsync is missing, no snapshot was written) the fault has no effect. Healed: the broker runs and is in the
ISR of the partition.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked
from harrow.cluster.view import PartitionView

from .controls import FileDamage
from .errors import ConfigError, TargetError
from .evidence import Evidence
from .process_faults import Terminate, ended, hit_once, running_again
from .spec import Fault, FaultState, Injection, Seconds
from .system import ClusterSnapshot, System
from .targets import Target, as_target

OF_RECORDS = ("bit-flip", "torn-write", "short-write", "misdirected-write")
OF_INDEXES = ("missing-index", "short-index", "corrupt-index")
OF_SNAPSHOTS = ("missing-snapshot", "corrupt-snapshot")
OF_CHECKPOINTS = ("missing-checkpoint", "corrupt-checkpoint")
LEFTOVERS = "leftovers"
DAMAGES = (*OF_RECORDS, *OF_INDEXES, *OF_SNAPSHOTS, *OF_CHECKPOINTS, LEFTOVERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageDisk(Terminate):
    """SIGKILL (for checkpoints SIGTERM), damaged files, and a start."""

    kind: ClassVar[str] = "damage_disk"
    words: ClassVar[str] = "was shut down, and files of its disk were damaged"
    needs: ClassVar[frozenset[str]] = frozenset({"process", "disk-damage"})
    damage: str = ""

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.damage and self.damage not in DAMAGES:
            raise ConfigError(f"damage_disk({self.damage!r}): expected one of {', '.join(DAMAGES)}")

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the broker, the damages and partitions in the order in which they are tried, and the seed."""
        nodes = self.target.resolve(snapshot, rng)
        if len(nodes) != 1:
            raise TargetError(f"{self}: the target is brokers {list(nodes)}; damage one broker at a time")
        partitions = sorted(
            f"{tp.topic}-{tp.partition}"
            for tp, row in snapshot.view.partitions()
            if self._is_meant(tp.topic, tp.partition) and has_good_copies(row, nodes[0], snapshot)
        )
        if not partitions:
            raise TargetError(
                f"{self}: no partition of broker {nodes[0]} has enough other replicas in sync at this moment; create "
                "topics with a replication factor of 3"
            )
        details = {
            "damages": [self.damage] if self.damage else rng.sample(DAMAGES, len(DAMAGES)),
            "partitions": rng.sample(partitions, len(partitions)),
            "seed": rng.getrandbits(32),
        }
        duration_ms = self.draw_duration_ms(snapshot, rng)
        return Injection(id=id, fault=self, nodes=nodes, duration_ms=duration_ms, details=details)

    def _is_meant(self, topic: str, partition: int) -> bool:
        target = self.target
        return target.topic in (None, topic) and target.partition in (None, partition)

    def inject(self, system: System, injection: Injection) -> None:
        """End the broker once, and damage its files when it is dead."""
        details = injection.details
        change = FileDamage(
            damages=tuple(details["damages"]), partitions=tuple(details["partitions"]), seed=str(details["seed"])
        )
        clean = self.damage in OF_CHECKPOINTS
        hit_once(system, injection, lambda broker: broker.disk.end_with(change, clean=clean))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the incarnation has ended, and what was damaged."""
        dead = ended(system, injection)
        damaged: dict[str, Mapping[str, Any]] = {}
        for node in FaultState.of(injection).incarnations:
            done = system.broker(node).disk.changed(FileDamage)
            if done is not None:
                damaged[str(node)] = dict(done)
        proved = dead.proved and bool(damaged) and all(row["files"] for row in damaged.values())
        return Evidence(proved=proved, facts={**dead.facts, "damaged": damaged})

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the broker runs in a later incarnation, and is in the ISR of the partition."""
        over = not FaultState.of(injection).incarnations or ended(system, injection).proved
        running = running_again(system, injection)
        if not (over and running.proved):
            return Evidence(proved=False, facts=running.facts)
        done = system.broker(injection.nodes[0]).disk.changed(FileDamage)
        topic, _, number = str((done or {}).get("partition", "-0")).rpartition("-")
        row = system.describe().partition(topic, int(number))
        isr = () if row is None else row.isr
        back = row is None or set(injection.nodes) & set(row.replicas) <= set(isr)
        return Evidence(proved=back, facts={**running.facts, "isr": list(isr)})


def has_good_copies(row: PartitionView, node: int, snapshot: ClusterSnapshot) -> bool:
    """Whether a broker may lose its replica: at least half of all replicas are in sync on others that run."""
    good = set(row.isr) & snapshot.running - snapshot.disturbed - {node}
    return node in row.replicas and len(good) >= max(1, -(-len(row.replicas) // 2))


@checked
def damage_disk(damage: str | None, target: Target | int, *, seconds: Seconds | None = None) -> DamageDisk:
    """Kill a broker, and damage its files before it starts again; None: the seed draws the damage.

    At the tail of a log that no fsync has reached, and only where other replicas have the records.
    """
    return DamageDisk(target=as_target(target, DamageDisk.kind), damage=damage or "", seconds=seconds)
