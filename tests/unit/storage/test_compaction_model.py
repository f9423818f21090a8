"""Random keyed appends, tombstones, rolls, cleaning rounds, truncations and restarts against a dictionary (B8)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from compacted_logs import Compaction, KeyValue, Model, records
from harrow.cluster.ids import Offset
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from storage_host import StorageHost

pairs = st.tuples(
    st.integers(0, 8).map(lambda n: b"key-%d" % n),
    st.none() | st.integers(0, 99).map(lambda n: b"v" * (n % 50) + b"%d" % n),
)
appends = st.tuples(st.just("append"), st.lists(pairs, min_size=1, max_size=4), st.integers(0, 4))
steps = st.lists(
    appends
    | appends
    | st.tuples(st.just("clean"), st.just(()), st.sampled_from([0, 1, 60_000]))
    | st.tuples(st.just("roll"), st.just(()), st.just(0))
    | st.tuples(st.just("committed"), st.just(()), st.integers(0, 100))
    | st.tuples(st.just("truncate"), st.just(()), st.integers(0, 100))
    | st.tuples(st.just("restart"), st.just(()), st.integers(0, 1)),
    min_size=5,
    max_size=40,
)


class Machine:
    """A log whose high watermark the steps raise, and which is truncated only above it, as a follower's log is."""

    def __init__(self, folder: str, entries: int) -> None:
        self.folder = f"{folder}/orders-0"
        self.entries = entries
        self.model = Model()
        self.high = 0
        self.begin(StorageHost())

    def begin(self, host: StorageHost) -> None:
        topic: dict[str, object] = {"internal.segment.bytes": 300, "delete.retention.ms": 1_000}
        bound = int(192 * self.entries / 0.9) + 1
        self.log = Compaction(self.folder, topic, host=host, broker={"log.cleaner.dedupe.buffer.size": bound})
        self.log.log.high_watermark = lambda: Offset(self.high)

    def step(self, what: str, batch: Sequence[KeyValue], number: int) -> None:
        log = self.log.log
        end = log.log_end_offset
        if what == "append":
            self.model.note(self.log.put(*batch, codec=number), batch)
        elif what == "clean":
            self.log.host.clock.now += number
            self.log.clean()
        elif what == "roll":
            log.roll()
        elif what == "committed":
            self.high += (end - self.high) * number // 100
        elif what == "truncate":
            log.truncate_to(Offset(self.high + (end - self.high) * number // 100))
            for offset in [offset for offset in self.model.appended if offset >= log.log_end_offset]:
                del self.model.appended[offset]
            self.high = min(self.high, log.log_end_offset)
        elif number:
            log.close()
            self.begin(self.log.host)
        else:
            log.abandon()
            self.log.topic["cleanup.policy"] = "compact"
            point = log.recovery_point
            again = self.log.host.open(self.folder, self.log.topic, clean=False, recovery_point=point)
            again.close()
            self.begin(self.log.host)

    def dirty_from(self) -> int:
        """Return the first offset that no cleaning round may have reached: at most the active segment is dirty."""
        return self.log.log.segments[-1].base_offset


@examples(20, 60)
@given(steps, st.sampled_from([1, 3, 1_000]))
def test_compaction_keeps_the_newest_record_of_each_key(
    todo: list[tuple[str, Sequence[KeyValue], int]], entries: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, entries)
        for what, batch, number in todo:
            machine.step(what, batch, number)
            machine.model.check(machine.log.log, dirty_from=machine.dirty_from())
        machine.high = machine.log.log.log_end_offset
        machine.log.log.roll()
        while machine.log.clean():
            machine.model.check(machine.log.log)
        assert len(records(machine.log.log)) <= len(machine.model.newest()), "at most one record remains for each key"
        machine.log.log.close()
