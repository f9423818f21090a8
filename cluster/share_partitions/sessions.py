"""Share sessions: which partitions a member of a share group fetches, and which request is its next one (KIP-932).

Owns: the sessions of a broker, by group and member, no I/O. A session begins with epoch 0, every further ShareFetch and
ShareAcknowledge has the next epoch, and -1 ends it. A session ends with its connection, too.

May fail: KafkaError with share_session_not_found, invalid_share_session_epoch, share_session_limit_reached, or
invalid_request for acknowledgements in the first request.

Source: Kafka's ShareSessionCache, ShareSession, SharePartitionManager.newContext, acknowledgeSessionUpdate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..errors import ErrorCode, KafkaError
from ..wire.topic_ids import UUID

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH = 2**31 - 1

Place = tuple[UUID | None, int]
"""A partition as requests name it: topic id and number."""
SessionKey = tuple[str, str]
"""Group and member."""


@dataclass(slots=True, kw_only=True, eq=False)
class ShareSession:
    """The session of a member."""

    key: SessionKey
    partitions: dict[Place, None] = field(default_factory=dict[Place, None])
    epoch: int = INITIAL_EPOCH
    """That of the last request."""

    def advance(self, epoch: int) -> None:
        """Take the next request; KafkaError(invalid_share_session_epoch) for another one."""
        expected = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        if epoch != expected:
            raise KafkaError(ErrorCode.invalid_share_session_epoch)
        self.epoch = epoch


class ShareSessions:
    """The sessions of a broker."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        *,
        named: Iterable[Place],
        forgotten: Iterable[Place],
        acknowledges: bool,
    ) -> ShareSession:
        """The session of a ShareFetch, with the partitions that it names; KafkaError."""
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise KafkaError(ErrorCode.invalid_request, "Acknowledge data present in Initial Fetch Request.")
            self._sessions.pop(key, None)
            if len(self._sessions) >= self._most:
                raise KafkaError(ErrorCode.share_session_limit_reached)
            session = ShareSession(key=key, partitions=dict.fromkeys(named))
            self._sessions[key] = session
            return session
        session = self._existing(key)
        if epoch == FINAL_EPOCH:
            return session
        session.advance(epoch)
        for place in forgotten:
            session.partitions.pop(place, None)
        session.partitions.update(dict.fromkeys(named))
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """Take a ShareAcknowledge as the next request of its session; KafkaError."""
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.invalid_share_session_epoch)
        session = self._existing(key)
        if epoch != FINAL_EPOCH:
            session.advance(epoch)

    def _existing(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.share_session_not_found)
        return session

    def end(self, key: SessionKey) -> ShareSession | None:
        """End the session of a member; None where it has none."""
        return self._sessions.pop(key, None)

    def end_if_current(self, session: ShareSession) -> ShareSession | None:
        """End a session whose connection has ended; None where its member has begun another one meanwhile."""
        return self._sessions.pop(session.key) if self._sessions.get(session.key) is session else None
