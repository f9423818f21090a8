"""Which clients sent what while a rule was armed: what an error says of a rule that met no request.

Owns: `SeenClients`, one for each rule that was ever armed. It is bounded: of further clients and APIs only their
existence is noted. What may fail: nothing.
"""

from __future__ import annotations

from typing import Any

from ..seam import Peer

CLIENTS_MOST = 16
"""Names that are kept of the rule's API, and of others."""
APIS_MOST = 12
"""APIs that are kept of each client that did not use the rule's."""


class SeenClients:
    """The client ids of the requests, or responses, since a rule of `api_key` was armed."""

    __slots__ = ("_api_key", "_more", "_of_api", "_others")

    def __init__(self, api_key: int) -> None:
        self._api_key = api_key
        self._of_api: dict[str, int] = {}
        self._others: dict[str, list[int]] = {}
        self._more = False

    def note(self, peer: Peer, api_key: int) -> None:
        """Note one request or response; those of brokers are not noted."""
        if peer.kind != "client":
            return
        name = peer.name
        if api_key == self._api_key:
            if name in self._of_api or len(self._of_api) < CLIENTS_MOST:
                self._of_api[name] = self._of_api.get(name, 0) + 1
            else:
                self._more = True
            return
        apis = self._others.get(name)
        if apis is None:
            if len(self._others) < CLIENTS_MOST:
                self._others[name] = [api_key]
            else:
                self._more = True
        elif api_key not in apis and len(apis) < APIS_MOST:
            apis.append(api_key)

    def to_json(self) -> dict[str, Any]:
        """Return requests by client id of the rule's API, and the other APIs by client id."""
        return {
            "clients": dict(self._of_api),
            "others": {name: list(apis) for name, apis in self._others.items()},
            "more_clients": self._more,
        }
