"""The fetch sessions between clients and one broker (KIP-227): what a client asked for last, by partition.

Owns: the offsets and leader epochs of each session. A request of a session names only partitions that changed, so the
offset from which a partition of a response is delivered may be in an earlier request. At most `SESSIONS_MOST` sessions
are kept, the latest used; Kafka keeps 1,000 by default. A partition that is not known here counts as asked from offset
0.
"""

from __future__ import annotations

from typing import NamedTuple

from ..wire.fetch import FetchRequest
from ..wire.topic_ids import UUID

SESSIONS_MOST = 4000
FINAL_EPOCH = -1
"""The epoch of a full request outside of a session, which closes the session that it names."""


class Asked(NamedTuple):
    """What a client asked for."""

    offset: int = 0
    leader_epoch: int = -1
    """The leader epoch that the client knows; a response without error comes from this epoch. -1: not known."""


Offsets = dict[tuple[str | UUID, int], Asked]
"""By topic and partition."""


class FetchSessions:
    """The sessions of one broker."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: dict[int, Offsets] = {}

    def asked(self, fetch: FetchRequest) -> Offsets:
        """The offsets that the response to this request begins from."""
        offsets: Offsets = {}
        if fetch.session_epoch > 0:
            offsets = self._sessions.pop(fetch.session_id, offsets)
            self._sessions[fetch.session_id] = offsets  # the last one in the order of use
            for forgotten in fetch.forgotten:
                offsets.pop(forgotten, None)
        elif fetch.session_epoch == FINAL_EPOCH:
            self._sessions.pop(fetch.session_id, None)
        for row in fetch.partitions:
            offsets[row.topic, row.partition] = Asked(row.fetch_offset, row.current_leader_epoch)
        self._bound()
        return offsets

    def answered(self, session_id: int, offsets: Offsets) -> None:
        """A response names its session, which is new after a full request."""
        if session_id and self._sessions.get(session_id) is not offsets:
            self._sessions[session_id] = offsets
            self._bound()

    def partitions(self, session_id: int) -> Offsets:
        """The partitions of a session; empty for one that is not known."""
        return self._sessions.get(session_id, {})

    def _bound(self) -> None:
        while len(self._sessions) > SESSIONS_MOST:
            del self._sessions[next(iter(self._sessions))]
