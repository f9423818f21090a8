"""A predicate on requests as plain data: `{"topic": "orders"}`, `{"group": "billing"}`.

Owns: `Where`. It has the fields of `WHERE_FIELDS`; names are patterns as in `client=` (`orders-*`). All that are given
must hold, and topic and partition must hold for one partition of the request. A request holds what it names itself, or
its fetch session names.

May fail: ConfigError for a field that does not exist, and for a value of another type.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...errors import ConfigError
from ..seam import RequestFacts

TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID = "topic", "partition", "group", "transactional_id"
WHERE_FIELDS = (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which requests count; None: any."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Where:
        """Read the predicate; ConfigError names what is wrong."""
        if not given:
            raise ConfigError(f"where={{}}: expected one of {', '.join(WHERE_FIELDS)}")
        for name, value in given.items():
            if name not in WHERE_FIELDS:
                near = difflib.get_close_matches(str(name), WHERE_FIELDS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"where={{{name!r}: …}}: expected one of {', '.join(WHERE_FIELDS)}{hint}")
            if name == PARTITION:
                if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                    raise ConfigError(f"where={{'partition': {value!r}}}: expected a number from 0 up")
            elif not isinstance(value, str) or not value:
                raise ConfigError(f"where={{{name!r}: {value!r}}}: expected a name or a pattern")
        return cls(**given)

    def accepts(self, facts: RequestFacts) -> bool:
        """Whether a request is one of these."""
        return (
            self._accepts_partition(facts)
            and _any(self.group, facts.groups)
            and _any(self.transactional_id, facts.transactional_ids)
        )

    def _accepts_partition(self, facts: RequestFacts) -> bool:
        if self.partition is None:
            return _any(self.topic, facts.topics)
        return any(index == self.partition and _any(self.topic, (topic,)) for topic, index in facts.partitions)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are given."""
        fields = ((name, getattr(self, name)) for name in WHERE_FIELDS)
        return {name: value for name, value in fields if value is not None}


def _any(pattern: str | None, names: Iterable[str]) -> bool:
    return pattern is None or any(fnmatchcase(name, pattern) for name in names)
