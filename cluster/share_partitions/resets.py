"""Where a share group begins to consume a partition for which nothing is stored (`share.auto.offset.reset`).

Owns: `starting_offset`. `latest` (the default) is the high watermark, `earliest` the log start, and `by_duration:` with
an ISO 8601 duration the first record that is not older than this.

Source: Kafka's ShareGroupAutoOffsetResetStrategy, SharePartition.startOffsetDuringInitialization.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..config.group_table import SHARE_RESET, group_text
from ..host.seam import Host
from ..ids import Offset

if TYPE_CHECKING:
    from ..replication.partition import Partition

BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d+)?)S)?)?",
    re.IGNORECASE,
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration such as P1DT2H30M; the setting was checked when it was stored."""
    found = _DURATION.fullmatch(text)
    assert found is not None, f"{text!r} is not an ISO 8601 duration"
    parts = {name: value for name, value in found.groupdict().items() if value is not None}
    return round(1000 * sum(float(value.replace(",", ".")) * _SECONDS[name] for name, value in parts.items()))


async def starting_offset(host: Host, config: BrokerConfig, group_id: str, partition: Partition) -> Offset:
    """The first offset that the group consumes."""
    strategy = group_text(config, group_id, SHARE_RESET)
    if strategy == "earliest":
        return partition.log.log_start_offset
    if strategy.startswith(BY_DURATION):
        since_ms = host.clock.wall_ms() - duration_ms(strategy.removeprefix(BY_DURATION))
        found = await host.tasks.run_blocking(partition.log.offset_for_timestamp, since_ms)
        if found is not None:
            return Offset(min(found[1], partition.high_watermark))
    return partition.high_watermark
