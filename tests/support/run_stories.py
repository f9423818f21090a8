"""Runs by hand as stories: each writes what happened into a `RunFolder`; `BAD` and `GOOD` say what a verdict finds."""

from __future__ import annotations

from collections.abc import Callable

from harrow.cluster.events.controllers import ControllerElected
from harrow.cluster.events.partitions import PartitionLeader
from harrow.harness.histories import OperationType
from judged_runs import TOPIC, RunFolder, record_batch

Story = Callable[[RunFolder], None]


def good(run: RunFolder) -> None:
    for offset, value in enumerate("abc"):
        run.send(value, offset)
        run.read(value, offset)
    run.final(dict(enumerate("abc")))


def good_with_logs(run: RunFolder) -> None:
    good(run)
    run.logs(record_batch(["a", "b"]), record_batch(["c"], base_offset=2, epoch=1))


def acked_and_gone(run: RunFolder) -> None:
    run.send("a", 0)
    run.send("b", 1)
    run.final({0: "a"})


def overwritten(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "z"})


def read_and_gone(run: RunFolder) -> None:
    run.send("a", 0)
    run.read("b", 1)
    run.final({0: "a"})


def acked_without_offset(run: RunFolder) -> None:
    run.send("a", 0)
    run.send("b", -1)
    run.final({0: "a"})


def skipped_by_the_final_read(run: RunFolder) -> None:
    run.send("a", 0)
    run.send("b", 1)
    run.final({0: "a"}, high=2)
    run.logs(record_batch(["a", "b"]))


def two_readers_two_values(run: RunFolder) -> None:
    run.send("a", 0)
    run.read("a", 0, client="one")
    run.read("z", 0, client="two")
    run.final({0: "a"})


def sent_once_there_twice(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a", 1: "a"})


def unknown_and_there_twice(run: RunFolder) -> None:
    run.send("x", 2)
    run.send("a", outcome=None)
    run.final({0: "a", 1: "a", 2: "x"})


def reordered(run: RunFolder) -> None:
    run.send("first", 1)
    run.send("second", 0)
    run.final({0: "second", 1: "first"})


def reordered_without_offsets(run: RunFolder) -> None:
    """acks=0: the acknowledgements have no offset, and each record is unique."""
    run.send("first", -1)
    run.send("second", -1)
    run.final({0: "second", 1: "first"})


def in_order_without_offsets(run: RunFolder) -> None:
    run.send("first", -1)
    run.send("second", -1)
    run.send("third", 2)
    run.final({0: "first", 1: "second", 2: "third"})


def passed_over(run: RunFolder) -> None:
    """A reader that was assigned the partition jumps from 0 to 3."""
    for offset, value in enumerate("abcd"):
        run.send(value, offset)
    run.rebalanced(by_group=False)
    run.read("a", 0)
    run.read("d", 3)
    run.final(dict(enumerate("abcd")))


def read_backwards(run: RunFolder) -> None:
    good(run)
    run.read("a", 0)


def batch_lost(run: RunFolder) -> None:
    kept, gone = record_batch(["a"]), record_batch(["b"])
    run.tapped(kept, 0)
    run.tapped(gone, 1)
    run.final({0: "a"})
    run.logs(kept)


def batch_replaced(run: RunFolder) -> None:
    acked, other = record_batch(["a"]), record_batch(["z"], epoch=1)
    run.tapped(acked, 0)
    run.final({0: "z"})
    run.logs(other)


def sequence_twice(run: RunFolder) -> None:
    batch = record_batch(["a"], producer_id=7, sequence=0)
    run.tapped(batch, 0)
    run.final({0: "a", 1: "a"})
    run.logs(batch, record_batch(["a"], base_offset=1, producer_id=7, sequence=0))


def lost_response_retried(run: RunFolder) -> None:
    batch = record_batch(["a"])
    run.tapped(batch, 0, lost=True)
    run.tapped(batch, 1)
    run.final({0: "a", 1: "a"})
    run.logs(batch, record_batch(["a"], base_offset=1))


def sequences_back(run: RunFolder) -> None:
    later, earlier = (record_batch([v], base_offset=o, producer_id=7, sequence=1 - o) for o, v in enumerate("ba"))
    run.tapped(later, 0)
    run.tapped(earlier, 1)
    run.final({0: "b", 1: "a"})
    run.logs(later, earlier)


def replicas_differ(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a"})
    run.logs(record_batch(["a"]), nodes=(1, 2))
    run.log(3, record_batch(["z"]))


def replicas_differ_in_epoch(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a"})
    run.logs(record_batch(["a"]), nodes=(1, 2))
    run.log(3, record_batch(["a"], epoch=1))


def bit_flipped(run: RunFolder) -> None:
    good_with_logs(run)
    path = run.log(3, record_batch(["a", "b"]), record_batch(["c"], base_offset=2, epoch=1))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def hole(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a", 2: "b"})
    run.logs(record_batch(["a"]), record_batch(["b"], base_offset=2))


def epoch_back(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a", 1: "b"})
    run.logs(record_batch(["a"], epoch=3), record_batch(["b"], base_offset=1, epoch=2))


def epoch_cache_wrong(run: RunFolder) -> None:
    """The log has epochs 0 and 1, and its cache says that epoch 1 begins one record later."""
    for offset, value in enumerate("abc"):
        run.send(value, offset)
    run.final({0: "a", 1: "b", 2: "c"})
    first = record_batch(["a"], epoch=0)
    later = [record_batch([value], base_offset=at, epoch=1) for at, value in ((1, "b"), (2, "c"))]
    run.logs(first, *later)
    run.epoch_cache(1, [(0, 0), (1, 2)])


def two_leaders(run: RunFolder) -> None:
    good(run)
    for node in (1, 2):
        run.trace(node, PartitionLeader(topic=TOPIC, partition=0, leader=node, leader_epoch=4, isr=(node,)))


def two_controllers(run: RunFolder) -> None:
    good(run)
    for node in (1, 2):
        run.trace(node, ControllerElected(epoch=4))


def fenced_member(run: RunFolder) -> None:
    """A leader adds two followers to its ISR; its metadata lists one of them."""
    good(run)
    for added, isr in ((2, [1, 2]), (3, [1, 2, 3])):
        run.expansion(added, isr, live=[1, 2])


BAD: dict[str, tuple[Story, str, set[str]]] = {
    "acknowledged, gone": (acked_and_gone, "no-loss", {"lost-write"}),
    "acknowledged, overwritten": (overwritten, "no-loss", {"lost-write", "inconsistent-offsets"}),
    "read, gone": (read_and_gone, "no-loss", {"lost-write"}),
    "acknowledged without offset": (acked_without_offset, "no-loss", {"lost-write"}),
    "in the logs, not read": (skipped_by_the_final_read, "at-least-once", {"unseen"}),
    "two values": (two_readers_two_values, "no-loss", {"inconsistent-offsets", "lost-write"}),
    "duplicate": (sent_once_there_twice, "exactly-once", {"duplicate"}),
    "duplicate of unknown": (unknown_and_there_twice, "exactly-once", {"duplicate"}),
    "reordered": (reordered, "ordered", {"nonmonotonic-send", "realtime-order"}),
    "reordered, without offsets": (reordered_without_offsets, "ordered", {"nonmonotonic-send"}),
    "passed over": (passed_over, "exactly-once, ordered", {"poll-skip"}),
    "read backwards": (read_backwards, "ordered", {"nonmonotonic-poll"}),
    "batch lost": (batch_lost, "no-loss", {"lost-write"}),
    "batch replaced": (batch_replaced, "no-loss", {"lost-write", "inconsistent-offsets"}),
    "sequence twice": (sequence_twice, "exactly-once", {"duplicate"}),
    "retry after a lost response": (lost_response_retried, "exactly-once", {"duplicate"}),
    "sequences back": (sequences_back, "ordered", {"nonmonotonic-send"}),
    "replicas differ": (replicas_differ, "no-loss", {"replica-divergence"}),
    "replicas differ in epoch": (replicas_differ_in_epoch, "no-loss", {"replica-divergence"}),
    "bit flipped": (bit_flipped, "no-loss", {"corrupt-batch"}),
    "hole": (hole, "no-loss", {"log-gap"}),
    "epoch back": (epoch_back, "no-loss", {"epoch-regression"}),
    "epoch cache wrong": (epoch_cache_wrong, "no-loss", {"epoch-cache-mismatch"}),
    "two leaders": (two_leaders, "no-loss", {"two-leaders"}),
    "two controllers": (two_controllers, "no-loss", {"two-controllers"}),
    "fenced member": (fenced_member, "best-effort", {"fenced-in-isr"}),
}


def legal_pair(run: RunFolder) -> None:
    """The same record sent twice, both acknowledged."""
    batch = record_batch(["a"])
    run.tapped(batch, 0)
    run.tapped(batch, 1)
    run.tapped(batch, 1, fetched=True)
    run.final({0: "a", 1: "a"})
    run.logs(batch, record_batch(["a"], base_offset=1))


def info_appended(run: RunFolder) -> None:
    """Of unknown outcome, and there: once is legal; absent is legal too; so is any place in the order."""
    run.send("late", outcome=OperationType.INFO)
    run.send("a", 0)
    run.send("never", outcome=OperationType.INFO)
    run.final({0: "a", 1: "late"})


def sequences_wrap(run: RunFolder) -> None:
    first = record_batch(["a"], producer_id=7, sequence=2**31 - 1)
    second = record_batch(["b"], base_offset=1, producer_id=7, sequence=0)
    run.tapped(first, 0)
    run.tapped(second, 1)
    run.final({0: "a", 1: "b"})
    run.logs(first, second)


def reread_after_rebalance(run: RunFolder) -> None:
    good(run)
    run.rebalanced()
    run.read("a", 0)


def retention(run: RunFolder) -> None:
    run.send("a", 0)
    run.read("a", 0)
    run.send("b", 1)
    run.final({1: "b"}, low=1)


def waited_unread(run: RunFolder) -> None:
    """Made while its leader was paused, read by the broker when that was over: it overlapped the fault."""
    batch, later = record_batch(["a"]), record_batch(["b"], base_offset=1)
    run.tapped(batch, 0)
    start = run.tick()
    run.fault(start, run.tick() + 1)
    run.tick()
    run.tapped(later, 1, created_ns=start + 1)
    run.final({0: "a", 1: "b"})
    run.logs(batch, later)


def above_the_high_watermark(run: RunFolder) -> None:
    """A follower was given a batch that was truncated later: legal."""
    kept = record_batch(["a"])
    run.tapped(kept, 0)
    run.tapped(record_batch(["z"]), 1, fetched=True, client="broker-2")
    run.final({0: "a"})
    run.logs(kept)


def members_known_to_be_live(run: RunFolder) -> None:
    """A leader adds both followers; its metadata lists them."""
    good(run)
    for added, isr in ((2, [1, 2]), (3, [1, 2, 3])):
        run.expansion(added, isr, live=[1, 2, 3])


GOOD: dict[str, Story] = {
    "plain": good,
    "with logs": good_with_logs,
    "two legal sends": legal_pair,
    "in order, without offsets": in_order_without_offsets,
    "of unknown outcome": info_appended,
    "sequences wrap": sequences_wrap,
    "read again after a rebalance": reread_after_rebalance,
    "retention": retention,
    "waited before a paused leader": waited_unread,
    "followers read ahead": above_the_high_watermark,
    "members known to be live": members_known_to_be_live,
}
