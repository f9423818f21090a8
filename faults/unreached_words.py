"""Why a fault that waits in a broker was not reached: which requests, calls and places the brokers counted instead.

Only the words: that a fault gave up is decided in `Nemesis._gave_up` (`nemesis.py`). `brokers` has the facts of each
broker's rule by node id, as `rules.fired` returns them; a broker whose incarnation ended has none, and its rule is
gone. What may fail: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harrow.cluster.wire.api_keys import ApiKey

from .errors import listed

NAMED_MOST = 6
"""Client ids that one error names."""

Facts = Mapping[str, Mapping[str, Any]]


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as "OffsetCommit"; its number where Harrow does not know it."""
    if api_key not in ApiKey.__members__.values():
        return str(api_key)
    return "".join(part.title() for part in ApiKey(api_key).name.split("_"))


def progress(facts: object) -> int:
    """Return how often what a fault waits for was seen so far: the counts `seen` and `hits` of its facts."""
    if isinstance(facts, Mapping):
        rows: Mapping[str, Any] = facts  # pyright: ignore[reportUnknownVariableType] - facts are plain values
        own = sum(value for name, value in rows.items() if name in ("seen", "hits") and isinstance(value, int))
        return own + sum(progress(value) for value in rows.values())
    if isinstance(facts, list | tuple):
        return sum(progress(value) for value in facts)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - plain values
    return 0


def no_request(api_key: int, client: str, nth: int, brokers: Facts, *, where: Mapping[str, Any] | None = None) -> str:
    """Say which requests of the API arrived, when the `nth` of a client like `client`, with `where`, did not."""
    what = f"request {api_name(api_key)}"
    if where:
        what += f" with where={dict(where)!r}"
    who = "" if client == "*" else f" of a client that matches {client!r}"
    seen = _counts(brokers, "seen")
    if any(seen.values()):
        said = f"{what}{who} number {nth} did not arrive on any broker; arrived: {_by_broker(seen)}"
        return f"{said}{_ended(brokers)}"
    said = f"no {what}{who} arrived"
    users = _clients(brokers)
    if users:
        said += f"; client ids seen for this API: {listed(users, NAMED_MOST)}"
    elif seen:
        said += "; no client used this API"
    others = {name: apis for name, apis in _others(brokers).items() if name not in users}
    if others:
        said += f"; others: {listed((f'{name} ({_apis(apis)})' for name, apis in others.items()), NAMED_MOST)}"
    elif seen and not users:
        said += ", and no client sent another request"
    return f"{said}{_ended(brokers)}"


def no_call(what: str, nth: int, count: str, brokers: Facts) -> str:
    """Say how often `what` happened, by the count `count` of each rule, when the `nth` time did not come."""
    seen = _counts(brokers, count)
    if not any(seen.values()):
        where = f" on {_nodes(seen)}" if seen else ""
        return f"{what} did not happen{where}{_ended(brokers)}"
    return f"{what} did not happen {nth} times on any broker; it happened: {_by_broker(seen)}{_ended(brokers)}"


def _counts(brokers: Facts, count: str) -> dict[str, int]:
    return {node: int(row[count]) for node, row in brokers.items() if count in row}


def _clients(brokers: Facts) -> list[str]:
    return sorted({_shown(name) for row in brokers.values() for name in row.get("clients", ())})


def _others(brokers: Facts) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for row in brokers.values():
        for name, apis in row.get("others", {}).items():
            found.setdefault(_shown(name), set()).update(apis)
    return found


def _shown(client: str) -> str:
    return client or "(empty client id)"


def _apis(apis: Iterable[int]) -> str:
    return ", ".join(api_name(key) for key in sorted(apis))


def _by_broker(seen: Mapping[str, int]) -> str:
    return ", ".join(f"{count} on broker {node}" for node, count in seen.items())


def _nodes(rows: Mapping[str, object]) -> str:
    return f"broker{'s' if len(rows) > 1 else ''} {', '.join(rows)}"


def _ended(brokers: Facts) -> str:
    gone = {node: row for node, row in brokers.items() if "state" in row and "fired" in row}
    return f"; {_nodes(gone)} ended meanwhile, and the rule there with it" if gone else ""
