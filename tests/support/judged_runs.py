"""Run folders made by hand for the verdict: the files that recorders, taps, brokers and the nemesis write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from harrow.cluster import broker_folder
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.partitions import IsrExpansionProposed, PartitionLeader
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam import TappedRequest
from harrow.cluster.tap.layouts import (
    FETCHED,
    FLAG_LOST,
    PRODUCED,
    SHARE_ROW,
    TAP_ROW,
    WATERMARK_ROW,
    WATERMARKS_FETCHED,
    WATERMARKS_LISTED,
)
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.wire.batch_header import header_at
from harrow.cluster.wire.records import NewRecord, build_batch
from harrow.harness import run_folder
from harrow.harness.histories.coordinator_rows import FILES
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType, stable_hash, value_hash
from harrow.harness.histories.recordings import Recording, recordings_of

TOPIC = "orders"
NOW_MS = 1_700_000_000_000
Headers = Sequence[tuple[str, bytes | None]]


def record_batch(
    values: list[str],
    *,
    base_offset: int = 0,
    epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = -1,
    timestamp_ms: int = NOW_MS,
    headers: Headers = (),
) -> bytes:
    """One batch as it lies in a log."""
    records: list[NewRecord] = [(b"k", value.encode(), headers) for value in values]
    return build_batch(
        records,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


class RunFolder:
    """Writes one run's files, a method for each thing that happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._history = HistoryWriter(folder / run_folder.HISTORY)
        self._drain = HistoryWriter(folder / run_folder.DRAIN)
        self._ops = 0
        self._taps: dict[int, dict[str, int]] = {}
        self.clock_ns = 1_000_000

    def _broker(self, node: int) -> Path:
        folder = self.folder / run_folder.CLUSTER / broker_folder.broker_name(node)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def tick(self) -> int:
        """Advance the time."""
        self.clock_ns += 1_000
        return self.clock_ns

    def send(
        self,
        value: str | None,
        offset: int = -1,
        *,
        key: str | None = "k",
        outcome: OperationType | None = OperationType.OK,
        partition: int = 0,
        client: str = "producer",
        topic: str = TOPIC,
        headers: Headers = (),
    ) -> None:
        """One recorded send; without outcome it was never completed."""
        self._ops += 1
        facts = (stable_hash(key), value_hash(value, headers))
        who, what, now = self._history.name(client), self._history.name(topic), self.tick()
        self._history.append(
            OperationFunction.SEND,
            OperationType.INVOKE,
            who,
            what,
            -1,
            -1,
            self._ops,
            *facts,
            invoked_ns=now,
            time_ns=now,
        )
        if headers:
            self._history.sent.append(who, self._ops, key, value, headers)
        if outcome is not None:
            self._history.append(
                OperationFunction.SEND,
                outcome,
                who,
                what,
                partition,
                offset,
                self._ops,
                *facts,
                NOW_MS,
                now,
                self.tick(),
            )

    def read(
        self, value: str, offset: int, *, key: str | None = "k", partition: int = 0, client: str = "consumer"
    ) -> None:
        """One record that a recorded consumer read."""
        self._ops += 1
        self._history.append(
            OperationFunction.POLL,
            OperationType.OK,
            self._history.name(client),
            self._history.name(TOPIC),
            partition,
            offset,
            self._ops,
            stable_hash(key),
            stable_hash(value),
            NOW_MS,
            self.tick(),
            self.tick(),
        )

    def rebalanced(self, *, partition: int = 0, client: str = "consumer", by_group: bool = True) -> None:
        """A reader's position was set again, by its group or by the application."""
        self._ops += 1
        self._history.append(
            OperationFunction.REBALANCE if by_group else OperationFunction.BREAK,
            OperationType.OK,
            self._history.name(client),
            self._history.name(TOPIC),
            partition,
            op=self._ops,
        )

    def producer(self, *, acks: int, idempotent: bool) -> None:
        """A recorded producer was made."""
        self._history.append(
            OperationFunction.CLIENT,
            OperationType.OK,
            self._history.name("producer"),
            self._history.name(""),
            -1,
            acks,
            int(idempotent),
        )

    def wait(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self.clock_ns += int(seconds * 1e9)

    def final(
        self,
        values: Mapping[int, str],
        *,
        partition: int = 0,
        low: int = 0,
        high: int | None = None,
        key: str | None = "k",
        timestamps: Mapping[int, int] | None = None,
        topic: str = TOPIC,
        headers: Headers = (),
    ) -> None:
        """The final read of one partition."""
        who, what = self._drain.name("harrow-drain"), self._drain.name(topic)
        for offset, value in values.items():
            stamp = (timestamps or {}).get(offset, NOW_MS)
            self._drain.append(
                OperationFunction.POLL,
                OperationType.OK,
                who,
                what,
                partition,
                offset,
                offset,
                stable_hash(key),
                value_hash(value, headers),
                stamp,
            )
        end = max(values, default=-1) + 1 if high is None else high
        self._drain.append(
            OperationFunction.BOUNDS, OperationType.OK, who, what, partition, end, low, time_ns=self.tick()
        )

    def log(self, node: int, *batches: bytes, partition: int = 0, data: str | Path = broker_folder.DATA) -> Path:
        """One replica's log, in one segment of the data folder `data`."""
        folder = self._broker(node) / data / f"{TOPIC}-{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{0:020}.log"
        path.write_bytes(b"".join(batches))
        return path

    def logs(self, *batches: bytes, nodes: tuple[int, ...] = (1, 2, 3)) -> None:
        """The same log on every broker."""
        for node in nodes:
            self.log(node, *batches)

    def epoch_cache(self, node: int, entries: Sequence[tuple[int, int]]) -> None:
        """The leader epoch cache of one replica, whose log exists."""
        folder = self._broker(node) / broker_folder.DATA / f"{TOPIC}-0"
        lines = [f"{epoch} {start}\n" for epoch, start in entries]
        (folder / "leader-epoch-checkpoint").write_text("".join(["0\n", f"{len(lines)}\n", *lines]))

    def tapped(
        self,
        batch: bytes,
        offset: int,
        *,
        node: int = 1,
        fetched: bool = False,
        lost: bool = False,
        acks: int = -1,
        client: str = "app",
        partition: int = 0,
        created_ns: int | None = None,
        error: int = 0,
        topic: str = TOPIC,
    ) -> None:
        """One batch acknowledged to, or fetched by, a client, seen by a broker's tap; created as it came, or then.

        With `error` the broker refused it, and `offset` is -1.
        """
        folder, names = self._broker(node), self._numbered(node, client, topic)
        h = header_at(batch)
        invoked_ns = self.tick()
        row = TAP_ROW.pack(
            FETCHED if fetched else PRODUCED,
            FLAG_LOST if lost else 0,
            error,
            names[client],
            names[topic],
            partition,
            offset,
            -1 if error else offset + h.last_offset_delta,
            h.crc,
            h.record_count,
            h.producer_id,
            h.producer_epoch,
            0 if fetched else acks,
            h.base_sequence,
            invoked_ns,
            self.tick(),
            invoked_ns if created_ns is None else created_ns,
            h.base_timestamp,
            h.max_timestamp,
        )
        with (folder / broker_folder.TAP).open("ab") as file:
            file.write(row)

    def _numbered(self, node: int, client: str, topic: str = TOPIC) -> dict[str, int]:
        """The numbers of names in a broker's tap, the client and the topic among them."""
        names = self._taps.setdefault(node, {})
        for name in (client, topic):
            if name not in names:
                names[name] = len(names)
                with (self._broker(node) / broker_folder.TAP_NAMES).open("a") as file:
                    file.write(f"{names[name]}\t{name}\n")
        return names

    def said(
        self,
        node: int,
        leader_epoch: int,
        high: int,
        *,
        stable: int | None = None,
        start: int = 0,
        listed: bool = False,
    ) -> None:
        """A leader says its high watermark in a response, and in a Fetch response (not `listed`) also the others."""
        names = self._numbered(node, "app")
        kind, others = WATERMARKS_FETCHED, (high if stable is None else stable, start)
        if listed:
            kind, others = WATERMARKS_LISTED, (-1, -1)
        row = WATERMARK_ROW.pack(
            kind, names["app"], names[TOPIC], 0, leader_epoch, 0, high, *others, self.tick(), self.tick()
        )
        with (self._broker(node) / broker_folder.TAP_WATERMARKS).open("ab") as file:
            file.write(row)

    def shared(
        self,
        kind: int,
        first: int,
        last: int,
        *,
        member: str = "m-1",
        group: str = "workers",
        count: int = 0,
        error: int = 0,
        node: int = 1,
        leader_epoch: int = 4,
    ) -> None:
        """What a share group did with records of partition 0; a lock lasts for 30 seconds."""
        names = {**self._numbered(node, member), **self._numbered(node, group)}
        now = self.tick()
        row = SHARE_ROW.pack(
            kind,
            0,
            error,
            names[group],
            names[member],
            names[member],
            names[TOPIC],
            0,
            leader_epoch,
            count,
            first,
            last,
            now,
            self.tick(),
            now + 30_000_000_000,
        )
        with (self._broker(node) / broker_folder.TAP_SHARES).open("ab") as file:
            file.write(row)

    def coordinators_did_nothing(self, *nodes: int) -> None:
        """The taps of these brokers' coordinators, without rows."""
        for node in nodes:
            for name in FILES.values():
                (self._broker(node) / name).touch()

    def requested(self, row: TappedRequest, *, node: int = 1) -> None:
        """A request of a client, or what its connection did, in the tap of a broker; before rows of `tapped`."""
        assert node not in self._taps, "the tap of a broker numbers the names"
        tap = FileTap(str(self._broker(node)), RealClock())
        tap.requested(row)
        tap.close()

    def fault(self, inject_ns: int, heal_ns: int, *, number: int = 1, effect: bool = True, kind: str = "kill") -> None:
        """One fault, injected and healed; without `effect` it was never proved."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / run_folder.FAULTS).open("a") as file:
            events = {"inject": inject_ns, "effect": inject_ns, "heal": heal_ns, "healed": heal_ns}
            for event, t_ns in events.items():
                if event == "effect" and not effect:
                    continue
                row = {
                    "t_ns": t_ns,
                    "event": event,
                    "id": str(number),
                    "fault": kind,
                    "targets": [number],
                    "label": f"{kind}(broker({number}))",
                }
                file.write(json.dumps(row) + "\n")

    def trace(self, node: int, event: TraceEvent, *, t_ns: int | None = None, wall_ms: int = NOW_MS) -> None:
        """One event of a broker's trace, now or then."""
        row = {"t_ns": self.tick() if t_ns is None else t_ns, "wall_ms": wall_ms, "event": event.event_name}
        with (self._broker(node) / broker_folder.TRACE).open("a") as file:
            file.write(json.dumps({**row, **event.fields()}) + "\n")

    def leader(self, node: int, leader_epoch: int, log_end: int) -> None:
        """A broker becomes leader of partition 0, and its log ends there."""
        event = PartitionLeader(
            topic=TOPIC,
            partition=0,
            topic_id="id",
            leader=node,
            leader_epoch=leader_epoch,
            isr=(node,),
            leo=log_end,
            hw=log_end,
        )
        self.trace(node, event)

    def expansion(self, added: int, isr: Sequence[int], *, live: Sequence[int]) -> None:
        """Broker 1, the leader, proposes to add a broker to the ISR; `live`: replicas that its metadata lists."""
        event = IsrExpansionProposed(
            topic=TOPIC, partition=0, leader=1, leader_epoch=4, isr=tuple(isr), added=added, live=tuple(live)
        )
        self.trace(1, event)

    def done(self) -> Path:
        """Close the histories and say in run.json what the story does not record; return the folder."""
        self._history.close()
        self._drain.close()
        facts = run_folder.read_run(self.folder)
        write_run_file(self.folder, brokers=facts.get("brokers", 0), log_dirs=facts.get("log_dirs", {}))
        return self.folder


def write_run_file(
    folder: Path, *, seed: int = 0, brokers: int = 0, log_dirs: Mapping[int, Sequence[str]] | None = None
) -> None:
    """Write run.json of a run by hand: what is not there was not recorded, except the final read."""
    write = partial(
        run_folder.write_run, folder, seed=seed, brokers=brokers, config={}, log_dirs=log_dirs or {}, started_ns=0
    )
    write()  # recordings_of reads in it where the logs are
    write(unrecorded=sorted(set(recordings_of(folder).lost) - {Recording.FINAL_READ}))
