"""The delay store in Redis: a sorted set of ids by due time, a hash with the records, and a set of what was
taken.

Each operation is one Lua script, so that it happens completely or not at all. `take` moves ids from the sorted
set to the taken ones; `remove` deletes them after Kafka has confirmed the send. A scheduler that dies in
between leaves them among the taken ones, and `take_over` returns those to the sorted set: at a start, and
whenever an instance leaves the group.

Redis must keep what it confirmed: `appendonly yes`, and `appendfsync always` where the machine may fail, too.

The client must not repeat a command by itself: a repeated `take` would not return what the first one took,
whose response was lost. An error closes the store, and the next one begins with `take_over`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ..errors import UnavailableError
from ..records import Record, decode, encode

Found = TypeVar("Found")
RESPONSE_S = 3.0
"""How long Redis may take to respond."""
# KEYS: due (sorted set), records (hash), taken (sorted set)
PUT = """
for at = 1, #ARGV, 3 do
  redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 2])
  redis.call('ZADD', KEYS[1], ARGV[at + 1], ARGV[at])
end
"""
TAKE = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local records = {}
for at = 1, #ids, 2 do
  redis.call('ZREM', KEYS[1], ids[at])
  redis.call('ZADD', KEYS[3], ids[at + 1], ids[at])
  records[#records + 1] = redis.call('HGET', KEYS[2], ids[at])
end
return records
"""
REMOVE = """
for at = 1, #ARGV do
  redis.call('ZREM', KEYS[1], ARGV[at])
  redis.call('ZREM', KEYS[3], ARGV[at])
  redis.call('HDEL', KEYS[2], ARGV[at])
end
"""
RETURN_TAKEN = """
local ids = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for at = 1, #ids, 2 do
  redis.call('ZADD', KEYS[1], ids[at + 1], ids[at])
end
redis.call('DEL', KEYS[3])
return #ids / 2
"""


class RedisStore:
    """See `DelayStore`."""

    def __init__(self, address: str, name: str) -> None:
        """`address`: host:port. `name`: begins the names of the keys."""
        host, _, port = address.rpartition(":")
        self._redis: Any = Redis(
            host=host,
            port=int(port),
            socket_timeout=RESPONSE_S,
            socket_connect_timeout=RESPONSE_S,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
        )
        # the braces: a Redis cluster keeps keys with the same text in them on one node
        self._keys = [f"{{{name}}}:{part}" for part in ("due", "records", "taken")]

    def take_over(self, partitions: Collection[int]) -> None:
        """Return what was taken and not removed; another instance that is sending some of it sends it, too."""
        if partitions:
            self._run(RETURN_TAKEN)

    def give_up(self, partitions: Collection[int]) -> None:
        """Do nothing: all instances have one store."""

    def put(self, records: Sequence[Record]) -> None:
        """Add to the sorted set."""
        if records:
            rows = [(record.id, record.due_ms, encode(record)) for record in records]
            self._run(PUT, *[value for row in rows for value in row])

    def take(self, now_ms: int, most: int) -> list[Record]:
        """Move from the sorted set to the taken ones."""
        return [decode(data) for data in self._run(TAKE, now_ms, most)]

    def remove(self, records: Sequence[Record]) -> None:
        """Delete."""
        if records:
            self._run(REMOVE, *[record.id for record in records])

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def _run(self, script: str, *arguments: bytes | int) -> Any:
        return _available(lambda: self._redis.eval(script, len(self._keys), *self._keys, *arguments))


def _available(call: Callable[[], Found]) -> Found:
    try:
        return call()
    except (RedisError, OSError) as error:
        raise UnavailableError(f"Redis: {type(error).__name__}: {error}") from error
