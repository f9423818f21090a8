"""Coordinators: load, serve, write and unload the partitions of an internal topic, for any state machine.

A coordinator keeps its state in a compacted internal topic (`internal_topics.py`). The leader of a partition of that
topic coordinates the keys that hash to it. This room owns everything that does not depend on what the records mean;
a state machine (groups, transactions) owns their meaning. One object of the state machine is made for each partition
and each leadership generation: a *shard*.

                  becomes leader                     HW >= epoch start, all records up to the HW replayed
    (no shard) ──────────────────► LOADING ──────────────────────────────────────────► ACTIVE
         ▲                            │                                                   │
         └──────────── UNLOADED ◄─────┴────── leadership lost, broker stops ──────────────┘

Who calls what (a state machine implements `StateMachine`; the rest is given by this room):

| call                                        | caller       | when, and what it must do |
| ------------------------------------------- | ------------ | --- |
| `factory(shard) -> machine`                 | runtime      | a load begins; the machine keeps `shard` |
| `machine.replay(record, producer)`          | loader       | each record up to the HW, in log order; writes nothing |
| `machine.replay_end_marker(producer, …)`    | loader       | the control record that ends a transaction |
| `machine.loaded(took_ms)`                   | runtime      | after the last record; from now on it may write |
| `machine.unload()`                          | runtime      | once; responds NOT_COORDINATOR to every waiting request |
| `runtime.active(key) -> machine`            | API handlers | each request; KafkaError unless the shard is ACTIVE |
| `shard.write(CoordinatorWrite)`             | the machine  | appends records with acks=all |
| `write.committed(base_offset)`              | shard        | in-sync replicas have them: now the state may change |
| `write.failed(error)`                       | shard        | in the log or not, unknown; `error` is for the client |
| `shard.timers.schedule(key, delay, call)`   | the machine  | `call` runs once, unless cancelled or replaced |
| `runtime.leadership_changed(led, followed)` | replication  | a hook of `on_leadership` |

`active` refuses with NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS while the shard loads. A record for which
`replay` raises RecordFormatError or KafkaError is reported and skipped.

Guarantees of this room:

* a shard serves nothing and writes nothing before it is loaded;
* a shard belongs to one leadership generation (`Partition.leadership_generation`): a load, an append or a timer
  of an older generation changes nothing when it ends;
* of each write exactly one of `committed` and `failed` is called, exactly once, possibly before `write` returns. At
  unload `machine.unload()` comes first, then `failed(NOT_COORDINATOR)` for each write in progress, in order;
* `committed` is called in the order in which replication completes the appends; a machine for which the order of
  the log matters compares `base_offset`;
* the room never undoes a change of state: a machine that changes its state before `committed` must undo the change in
  `failed`, or refuse or queue further changes of that key meanwhile (the transaction coordinator refuses them);
* nothing here depends on groups; of replication only the protocols in `replicas.py` are used.

`find_coordinator.py` serves FindCoordinator for all coordinator types and creates a missing internal topic.

Source: Kafka's CoordinatorRuntime, CoordinatorShard, CoordinatorPlayback, CoordinatorLoaderImpl, PartitionWriter,
CoordinatorTimer, TransactionStateManager; KafkaApis.getCoordinator.
"""

from .find_coordinator import CoordinatorType, FindCoordinator
from .runtime import CoordinatorRuntime
from .shard import Shard, ShardState
from .state_machine import (
    COORDINATOR_ERRORS,
    CoordinatorWrite,
    EndMarker,
    KeyValue,
    RecordFormatError,
    StateMachine,
    TransactionalProducer,
)

__all__ = [
    "COORDINATOR_ERRORS",
    "CoordinatorRuntime",
    "CoordinatorType",
    "CoordinatorWrite",
    "EndMarker",
    "FindCoordinator",
    "KeyValue",
    "RecordFormatError",
    "Shard",
    "ShardState",
    "StateMachine",
    "TransactionalProducer",
]
