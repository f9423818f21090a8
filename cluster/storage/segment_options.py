"""The options of a segment: a topic's settings, its time of creation, its roll jitter (B3, B6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config import TopicConfig
from ..host.seam import Host
from .indexes.sparse_index import IndexMaps


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """The options of a segment."""

    index_interval: int = 4096
    index_bytes_max: int = 10 * 1024 * 1024
    created_ms: int = 0
    """Its age counts from here while its records have no timestamp."""
    roll_jitter_ms: int = 0
    """It rolls so much earlier, so that not all logs roll at once."""
    maps: IndexMaps = field(default_factory=IndexMaps)


def segment_options(config: TopicConfig, host: Host, maps: IndexMaps) -> SegmentOptions:
    """The options of a segment that is created now."""
    jitter_ms = min(config.number("segment.jitter.ms"), config.number("segment.ms"))
    return SegmentOptions(
        index_interval=config.number("index.interval.bytes"),
        index_bytes_max=config.number("segment.index.bytes"),
        created_ms=host.clock.wall_ms(),
        roll_jitter_ms=host.random.randrange(jitter_ms) if jitter_ms else 0,
        maps=maps,
    )
