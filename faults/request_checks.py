"""What a fault of requests is given, checked before anything is broken: the API, the error code, which requests count.

Owns: `api_key`, `error_code`, `check_choice`, `check_where`. Which codes Kafka gives for an API is in
`cluster/wire/api_errors.py`. Each raises ConfigError, which names what was given and what is possible.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from harrow.cluster.errors import ConfigError as ClusterConfigError
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.knobs.request_rules import COUNT_MOST
from harrow.cluster.host.knobs.request_where import Where
from harrow.cluster.wire.api_errors import errors_after, errors_of
from harrow.cluster.wire.api_keys import ApiKey

from .errors import ConfigError

STUBBORN = "any_error=True injects it all the same"


def api_key(api: str | int, kind: str) -> ApiKey:
    """Return the API by number or by Kafka's name ("Produce", "ListOffsets"); ConfigError else."""
    words = {key.name.replace("_", "").lower(): key for key in ApiKey}
    if isinstance(api, str):
        found = words.get(api.replace("_", "").replace(" ", "").lower())
        if found is not None:
            return found
    elif not isinstance(api, bool) and api in ApiKey.__members__.values():
        return ApiKey(api)
    raise ConfigError(f"{kind}({api!r}): no such API; such as 'Produce', 'Fetch' or 0, 1")


def error_code(name: str, kind: str) -> ErrorCode:
    """Return one of Kafka's error codes by its name, such as "NOT_ENOUGH_REPLICAS"; ConfigError else."""
    code = ErrorCode.__members__.get(name.lower())
    if code is None or code is ErrorCode.none:
        near = difflib.get_close_matches(name.lower(), list(ErrorCode.__members__), n=1)
        hint = f"; did you mean {near[0].upper()}?" if near else ""
        raise ConfigError(f"{kind}(error={name!r}): Kafka has no such error code{hint}")
    return code


def check_refusal(api: str | int, error: str, kind: str) -> None:
    """Raise ConfigError for a code that Kafka never gives for an API."""
    key, code = api_key(api, kind), error_code(error, kind)
    given = errors_of(key)
    if code.name.upper() not in given:
        raise ConfigError(
            f"{kind}({api!r}, {error!r}): Kafka never gives this error for this API. "
            f"It gives {_listed(given)}; {STUBBORN}"
        )


def check_failure(api: str | int, error: str, kind: str) -> None:
    """Raise ConfigError for an API without effect, and for a code that Kafka never gives after the effect of an API."""
    key, code = api_key(api, kind), error_code(error, kind)
    after = errors_after(key)
    if not after:
        raise ConfigError(
            f"{kind}({api!r}): its requests have no effect that an error could follow; write refuse_request({api!r}, "
            f"{error!r}), or {STUBBORN}"
        )
    if code.name.upper() not in after:
        raise ConfigError(
            f"{kind}({api!r}, {error!r}): Kafka never gives this error for this API after the request took effect. "
            f"It gives {_listed(after)}; {STUBBORN}"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def check_choice(kind: str, *, nth: Any, count: Any, probability: Any) -> None:
    """Raise ConfigError for numbers that choose no request."""
    if not _is_number(nth, int) or nth < 1:
        raise ConfigError(f"{kind}(nth={nth!r}): expected a number from 1 up")
    if not _is_number(count, int) or not 1 <= count <= COUNT_MOST:
        raise ConfigError(f"{kind}(count={count!r}): expected a number from 1 to {COUNT_MOST}")
    if not _is_number(probability, int, float) or not 0 < probability <= 1:
        raise ConfigError(f"{kind}(probability={probability!r}): expected more than 0, and at most 1")


def _is_number(value: Any, *types: type) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def check_where(api: str | int, given: Mapping[str, Any], kind: str) -> dict[str, str | int]:
    """Return the predicate as plain data; ConfigError for one that no request to `api` can fulfil."""
    from harrow.cluster.wire.request_facts import facts_of_api

    key = api_key(api, kind)
    try:
        where = Where.parse(given).to_json()
    except ClusterConfigError as error:
        raise ConfigError(f"{kind}({api!r}): {error}") from None
    possible = facts_of_api(key)
    for name in where:
        if name not in possible:
            known = f"it names {', '.join(sorted(possible))}" if possible else "it names nothing"
            raise ConfigError(f"{kind}({api!r}, where={dict(given)!r}): a request to this API names no {name}; {known}")
    return where
