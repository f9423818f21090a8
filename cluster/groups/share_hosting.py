"""Share groups of one shard: how they begin, reach the log, and keep delivery states through the persister.

Owns: `ShareHosting`, the surroundings of the shard's share groups. A hosted group is a share group while `share` is
set; it never changes its type.

Source: Kafka's GroupMetadataManager (getOrMaybeCreateShareGroup), GroupCoordinatorService (persisterInitialize).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial

from ..errors import KafkaError
from ..host.seam import Host
from ..ids import Offset
from ..share_coordinator.persister import Persister
from ..share_coordinator.values import SharePartition
from ..wire.topic_ids import UUID
from .consumer.members import Partitions, by_topic_id, each
from .hosted_group import HostedGroup
from .serial_hosting import HostingShard, SerialHosting
from .share.initialization import abandon, finish, without_topics
from .share.limits import ShareRules
from .share.members import StatePartitions
from .share.share_group import ShareGroup
from .share.share_state import NEW_EPOCH, ShareDraft, ShareGroupData

Errors = Mapping[tuple[UUID, int], KafkaError]
"""Share-partitions that the persister refused."""


class ShareHosting(SerialHosting):
    """The surroundings of the share groups of one shard."""

    def __init__(self, shard: HostingShard, host: Host, rules: ShareRules, persister: Persister | None) -> None:
        super().__init__(shard, host, "share group")
        self._rules = rules
        self._persister = persister

    # ---- groups ------------------------------------------------------------------------------------

    def restore(self, hosted: HostedGroup, data: ShareGroupData) -> None:
        """The log has a share group."""
        hosted.share = ShareGroup(hosted.group_id, data, self._rules, self)

    def begin(self, hosted: HostedGroup) -> ShareGroup:
        """Make the group, which is new, a share group."""
        group = hosted.share = ShareGroup(hosted.group_id, ShareGroupData(), self._rules, self)
        return group

    def abandon(self, hosted: HostedGroup, group: ShareGroup) -> None:
        """After a refused operation: a group that has no record is none."""
        data = group.data
        is_new = data.epoch == NEW_EPOCH and not data.members and data.shares is None and not group.is_busy
        if hosted.share is group and is_new:
            self.end(hosted)

    def end(self, hosted: HostedGroup) -> None:
        """The share group was deleted, or its partition is no longer here."""
        group, hosted.share = hosted.share, None
        self.close(group)

    def topics_deleted(self, group: ShareGroup, names: Collection[str]) -> None:
        """Topics were deleted: their share-partitions are forgotten."""
        group.submit(
            group.change_partitions(lambda state: without_topics(state, names, self._rules.view)),
            partial(self._not_stored, group),
        )

    # ---- the persister -----------------------------------------------------------------------------

    def initialize(
        self,
        group: ShareGroup,
        offsets: Mapping[tuple[UUID, int], Offset],
        state_epoch: int,
        done: Callable[[Errors], None],
    ) -> None:
        """Have share-partitions initialized that are stored as initializing; then `done` with those refused.

        As in Kafka, all of them are initialized together: one that is refused leaves none initialized in the group.
        """
        persister = self._persister
        assert persister is not None, "a broker with share groups has a persister"

        async def initialize_all() -> None:
            calls = {
                key: persister.initialize(
                    SharePartition(group.group_id, *key), state_epoch=state_epoch, start_offset=offset
                )
                for key, offset in offsets.items()
            }
            self._initialized(group, by_topic_id(offsets), await self._outcome(calls), done)

        self._host.tasks.spawn(initialize_all(), name=f"initialize-share-{group.group_id}")

    def _initialized(
        self, group: ShareGroup, partitions: Partitions, errors: Errors, done: Callable[[Errors], None]
    ) -> None:
        def stored() -> None:
            done(errors)

        def not_stored(error: KafkaError) -> None:
            self._not_stored(group, error)
            done(dict.fromkeys(each(partitions), error))

        def change(state: StatePartitions) -> StatePartitions:
            return abandon(state, partitions) if errors else finish(state, partitions, self._rules.view)

        plan = group.change_partitions(change)

        def plan_and_answer(draft: ShareDraft) -> Callable[[], None]:
            plan(draft)
            return stored

        group.submit(plan_and_answer, not_stored)

    def delete(self, group_id: str, partitions: Partitions, done: Callable[[Errors], None]) -> None:
        """Have the persister delete share-partitions; then `done` with those refused."""
        persister = self._persister
        assert persister is not None, "a broker with share groups has a persister"

        async def delete_all() -> None:
            calls = {key: persister.delete(SharePartition(group_id, *key)) for key in sorted(each(partitions))}
            done(await self._outcome(calls))

        self._host.tasks.spawn(delete_all(), name=f"delete-share-{group_id}")

    async def _outcome(self, calls: Mapping[tuple[UUID, int], Coroutine[object, object, None]]) -> Errors:
        """Run all calls at once; the errors of those that failed."""
        promise = self._host.tasks.promise()
        errors: dict[tuple[UUID, int], KafkaError] = {}
        left = len(calls)

        async def run(key: tuple[UUID, int], call: Coroutine[object, object, None]) -> None:
            nonlocal left
            try:
                await call
            except KafkaError as error:
                errors[key] = error
            finally:
                left -= 1
                if not left:
                    promise.set_result(None)

        for key, call in calls.items():
            self._host.tasks.spawn(run(key, call), name="share-partition")
        if calls:
            await promise
        return errors

    # ---- surroundings of a group -------------------------------------------------------------------

    def changed(self, group: ShareGroup, before: ShareGroupData) -> None:
        """Trace a change of state or of the epoch.

        The tap has no rows of share groups: their members own no partition alone, and no state of theirs waits.
        """
        self.trace_change(group.group_id, before, group.data)

    def _not_stored(self, group: ShareGroup, error: KafkaError) -> None:
        text = f"share group {group.group_id}: its share-partitions were not stored: {error.code.name}"
        self._host.trace.log("warning", text)


def initial_offsets(partitions: Iterable[tuple[UUID, int]], offset: Offset) -> dict[tuple[UUID, int], Offset]:
    """The same start offset for all partitions, in order."""
    return dict.fromkeys(sorted(partitions), offset)
