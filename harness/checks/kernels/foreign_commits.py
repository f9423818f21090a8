"""`commit-for-other-group`: offsets that were committed for a group that does not read the partition (L2).

A job reads as a member of one group, and its offsets go to another one: `send_offsets_to_transaction` with the metadata
of another consumer, or a commit by a second client with another `group.id`. Nothing is wrong with the records of such
a run. When a member of the reading group starts again, or gets the partition, it reads the same records again, because
its own group has no offset for them: a hazard that waits for a crash. So it is reported when it happens.

A commit of group G for the partition is one when all of this holds:

* no member of G owned the partition, and nothing read G's committed offset of it, in the whole run;
* another group H owned the partition at the time of the commit, and the committer (the producer id, or without one the
  client id) committed nothing for H;
* it is known that the committer's records are those that H read: a member of G committed (its generation is set), or
  the client is the owner in H, or, with a producer id, nothing was committed for H and only H's owners fetched.

An administrator who sets the offsets of a group, and a consumer with `assign()`, do none of this. Without the taps of
all coordinators nothing is judged, because an owner or a read may be missing; the doubt is `without_tap`'s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_READ, OFFSET_SENT
from harrow.cluster.tap.layouts import MEMBER_OWNS

from ..client_names import ClientNumber
from ..rows import OperationRow
from .findings import Description, PartitionFindings
from .inputs import PartitionInputs

NAME = "commit-for-other-group"


class ForeignCommit(NamedTuple):
    """A commit for a group that does not read the partition, and the group that owned it."""

    group: int
    owner: int
    client: int
    member: int
    generation: int
    producer_id: int
    offset: int
    invoked_ns: int
    completed_ns: int


def commits_for_other_groups(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """commit-for-other-group."""
    offsets, members = inputs.coordinators.offsets, inputs.coordinators.members
    if not len(offsets) or not len(members) or inputs.job.untapped:
        return
    readers = pl.concat(
        [members.filter(pl.col("kind") == MEMBER_OWNS)["group"], offsets.filter(pl.col("kind") == OFFSET_READ)["group"]]
    ).unique()
    commits = _commits(offsets)
    foreign = commits.filter(~pl.col("group").is_in(readers.to_list()))
    if not len(foreign):
        return
    found: list[pl.DataFrame] = []
    for (owner,), own in members.group_by("group", maintain_order=True):
        of_owner = commits.filter(pl.col("group") == owner)
        bad = _misplaced(inputs, foreign, of_owner, own)
        found.append(bad.with_columns(pl.lit(owner, pl.UInt32).alias("owner")))
    bad = pl.concat(found).unique(["group", "offset"], keep="first", maintain_order=True)
    findings.add_each(NAME, bad.sort("offset", "group"), ForeignCommit, _describe)


def _commits(offsets: pl.DataFrame) -> pl.DataFrame:
    """Return what clients committed; of a transaction the row of the request, which has member and generation."""
    of_transaction = pl.col("producer_id") >= 0
    asked = (pl.col("kind") == OFFSET_SENT) | ((pl.col("kind") == OFFSET_COMMITTED) & ~of_transaction)
    return offsets.filter(asked & (pl.col("error") == 0))


def _misplaced(
    inputs: PartitionInputs, foreign: pl.DataFrame, of_owner: pl.DataFrame, own: pl.DataFrame
) -> pl.DataFrame:
    """Return the commits of groups that do not read, which belong to the group with the members `own`."""
    producer, client = pl.col("producer_id"), pl.col("client")
    in_transaction = producer >= 0
    known = of_owner.filter(in_transaction)["producer_id"].to_list()
    known_clients = of_owner.filter(~in_transaction)["client"].to_list()
    clients = own["client"].unique().to_list()
    fetchers = inputs.fetched.filter(pl.col("completed_ns") <= foreign["completed_ns"].max())
    alone = not len(of_owner) and bool(fetchers["client"].is_in(clients).all()) and len(fetchers) > 0
    also = (in_transaction & producer.is_in(known)) | (~in_transaction & client.is_in(known_clients))
    linked = (pl.col("generation") >= 0) | (~in_transaction & client.is_in(clients)) | (in_transaction & pl.lit(alone))
    return foreign.filter(~also & linked & pl.Series(_owned(own, foreign["completed_ns"])))


def _owned(own: pl.DataFrame, times: pl.Series) -> npt.NDArray[np.bool_]:
    """Return for each time whether a member of the group owned the partition."""
    holders: set[int] = set()
    changes, states = [0], [False]
    for row in own.sort("time_ns", maintain_order=True).iter_rows(named=True):
        if row["kind"] == MEMBER_OWNS:
            holders.add(row["member"])
        else:
            holders.discard(row["member"])
        changes.append(row["time_ns"])
        states.append(bool(holders))
    at = np.searchsorted(np.array(changes), times.to_numpy(), side="right") - 1
    return np.array(states)[at]


def _describe(row: ForeignCommit) -> Description:
    group, owner = ClientNumber(row.group), ClientNumber(row.owner)
    text = (
        ClientNumber(row.client),
        f" committed offset {row.offset} for group ",
        group,
        ", of which no member owned the partition in this run, and which did not read its committed offset; group ",
        owner,
        " owned the partition, and got no offset from it: after a restart its members read these records again",
    )
    known = row.generation >= 0
    shown: OperationRow = {
        "operation": "commit",
        "group": row.group,
        "client": row.client,
        "member": row.member if known else None,
        "generation": row.generation if known else None,
        "offset": row.offset,
        "invoked_ns": row.invoked_ns,
        "completed_ns": row.completed_ns,
        "reading_group": row.owner,
    }
    if row.producer_id >= 0:
        shown["producer_id"] = row.producer_id
    return [row.offset], [shown], text
