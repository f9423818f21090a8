"""`python -m retry_queue.replay`: sends the dead letters back to the topics from which they came, and ends.

It reads those that are there when it starts. Each is committed when its topic has it: a replay that was
interrupted goes on where it stopped, and may send a few twice. `--dry-run` prints them, and neither sends nor
commits.
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from .names import Names
from .outbox import Outbox
from .reading import commit, consumer_of, record_of
from .records import REASON, Record
from .service import arguments, names_of, servers, session_of

BATCH, POLL_S, RESPONSE_S = 100, 0.5, 30.0


class Replay:
    """One run of the command."""

    def __init__(self, servers: str, names: Names, **session: Any) -> None:
        self.names = names
        self.consumer: Consumer = consumer_of(servers, f"{names.source}-replay", "retry-replay", **session)
        self.outbox = Outbox(servers, "retry-replay")
        self._left = self._ranges()

    def run(self, *, send: bool = True) -> int:
        """Send the dead letters; return how many. UnavailableError: the rest is sent by the next run."""
        self.consumer.assign([TopicPartition(*place, first) for place, (first, _) in self._left.items()])
        count = 0
        while self._left:
            messages = self.consumer.consume(BATCH, timeout=POLL_S)
            records = [record_of(message) for message in messages if message.error() is None]
            letters = [record for record in records if self._is_wanted(record)]
            for letter in letters:
                print(f"{'sent' if send else 'found'} {_described(letter)}", flush=True)
                if send:
                    self.outbox.send(letter.replayed())
            if send and letters:
                self.outbox.settle_all()
                commit(self.consumer, letters)
            count += len(letters)
            for place in self.consumer.position(self.consumer.assignment()):
                if place.offset >= self._left.get((place.topic, place.partition), (0, 0))[1]:
                    self._left.pop((place.topic, place.partition), None)
        return count

    def close(self) -> None:
        """End the clients."""
        self.outbox.close()
        self.consumer.close()

    def _ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return from which offset to which each partition is replayed, where there is anything."""
        topics = self.consumer.list_topics(self.names.dead, timeout=RESPONSE_S).topics
        places = [TopicPartition(self.names.dead, number) for number in topics[self.names.dead].partitions]
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for place in self.consumer.committed(places, timeout=RESPONSE_S):
            low, high = self.consumer.get_watermark_offsets(place, timeout=RESPONSE_S)
            first = low if place.offset < 0 else max(low, place.offset)
            if first < high:
                ranges[place.topic, place.partition] = first, high
        return ranges

    def _is_wanted(self, record: Record) -> bool:
        _, end = self._left.get((record.topic, record.partition), (0, 0))
        return record.offset < end


def _described(letter: Record) -> str:
    topic, partition, offset = letter.origin
    return f"{topic}-{partition}@{offset} after {letter.attempts} attempts: {letter.header(REASON)}"


def main(words: list[str]) -> None:
    """Read the arguments, and replay."""
    parser = arguments("sends dead letters back to the topics from which they came")
    parser.add_argument("--dry-run", action="store_true", help="print them only")
    given = parser.parse_args(words)
    replay = Replay(servers(), names_of(given), **session_of(given))
    try:
        count = replay.run(send=not given.dry_run)
    finally:
        replay.close()
    print(f"{count} dead letters", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
