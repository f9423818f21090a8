"""Delegation tokens (KIP-48): who may log in by which token, and until when.

Owns: `DelegationToken` with its JSON in `/delegation_token/tokens/ID`, as Kafka 3.9's in ZooKeeper, and `TokenStore`,
which follows the notifications in `/delegation_token/token_changes` and removes expired tokens on the controller.

A token is an id that is known and its HMAC under `delegation.token.secret.key`, which only owners know: a client logs
in by SCRAM with the id as its name and the HMAC, in base64, as its password. Without the key a broker has no tokens.

Invariants: a write is conditional on the version that was read, and a notification follows it; `refresh` reads the
state of the registry, so that a token is known to each broker as soon as a request about it arrives.
May fail: RegistryError. Source: Kafka's DelegationTokenManagerZk, DelegationTokenControlManager.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..authorizer import Principal
from ..config import BrokerConfig
from ..errors import RegistryError
from ..host.seam import Host
from ..metadata.node_names import name_of_node, node_of_name
from ..metadata.registry_retries import RegistryRetries
from ..registry import BadVersionError, NoNodeError, RegistryClient
from ..registry.paths import DELEGATION_CHANGE, DELEGATION_CHANGES, DELEGATION_TOKENS, token_path
from ..security.sasl.exchange import Login
from ..security.sasl.scram import ITERATIONS_LEAST, FoundCredential, ScramCredential, ScramMechanism
from .change_feed import ChangeFollower

__all__ = ["DelegationToken", "TokenStore"]

JSON_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token without its HMAC; times are wall times in milliseconds."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    """After this no session lasts that began with it, unless it is renewed."""
    ends_ms: int
    """After this it cannot be renewed."""

    def belongs_to(self, principal: Principal) -> bool:
        """True for the owner, who asked for the token, and who may renew it."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_renew(self, principal: Principal) -> bool:
        """True for the owner and the renewers."""
        return principal in (self.owner, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        """True when it must be removed."""
        return min(self.expires_ms, self.ends_ms) < now_ms

    def to_json(self) -> str:
        """The data of its node."""
        row = {
            "version": JSON_VERSION,
            "owner": node_of_name(str(self.owner)),
            "tokenRequester": node_of_name(str(self.requester)),
            "renewers": [node_of_name(str(renewer)) for renewer in self.renewers],
            "issueTimestamp": self.issued_ms,
            "maxTimestamp": self.ends_ms,
            "expiryTimestamp": self.expires_ms,
            "tokenId": self.token_id,
        }
        return json.dumps(row, separators=(",", ":"))

    @classmethod
    def parse(cls, data: str) -> DelegationToken:
        """The inverse of `to_json`; ValueError, KeyError."""
        row = json.loads(data)
        return cls(
            token_id=row["tokenId"],
            owner=_principal(row["owner"]),
            requester=_principal(row.get("tokenRequester", row["owner"])),
            renewers=tuple(map(_principal, row["renewers"])),
            issued_ms=row["issueTimestamp"],
            expires_ms=row["expiryTimestamp"],
            ends_ms=row["maxTimestamp"],
        )


def _principal(written: str) -> Principal:
    kind, _, name = name_of_node(written).partition(":")
    return Principal(kind, name)


class TokenStore:
    """The tokens of the cluster, from one broker's side. `is_active`: this broker is the controller."""

    def __init__(
        self, host: Host, registry: RegistryClient, config: BrokerConfig, is_active: Callable[[], bool]
    ) -> None:
        self._host = host
        self._registry = registry
        self._retries = RegistryRetries(host, registry)
        self._config = config
        self._is_active = is_active
        self._secret = config.text("delegation.token.secret.key").encode()
        self._tokens: dict[str, DelegationToken] = {}
        self._versions: dict[str, int] = {}
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._follower = ChangeFollower(
            host, registry, (DELEGATION_CHANGES,), self._follow, what="delegation tokens", task="token-changes"
        )
        self.session_expired = self._follower.session_expired

    @property
    def enabled(self) -> bool:
        """True when there may be tokens."""
        return bool(self._secret)

    def tokens(self) -> list[DelegationToken]:
        """All tokens, as last read."""
        return list(self._tokens.values())

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def by_hmac(self, given: bytes) -> DelegationToken | None:
        """The token of an HMAC, as last read."""
        found = (token for token in self._tokens.values() if hmac.compare_digest(self.hmac_of(token.token_id), given))
        return next(found, None)

    def scram(self, mechanism: ScramMechanism, token_id: str) -> FoundCredential | None:
        """The credential of a token, and its owner; None for an unknown one."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        credential = self._credentials.get((token_id, mechanism))
        if credential is None:
            password = base64.b64encode(self.hmac_of(token_id)).decode()
            salt = hashlib.sha256(self._secret + token_id.encode()).digest()
            credential = mechanism.credential_of(password, salt, ITERATIONS_LEAST)
            self._credentials[token_id, mechanism] = credential
        return FoundCredential(credential, Login(user=token.owner.name, expires_ms=token.expires_ms, by_token=True))

    # -------------------------------------------------------------- following

    async def start(self) -> None:
        """Follow the tokens; returns when all were read, however long the registry is unreachable."""
        if self.enabled:
            await self._follower.start()
            self._check_later()

    async def _follow(self, news: list[str] | None) -> None:
        del news  # the tokens are few: all are read
        await self._read()

    async def refresh(self) -> None:
        """Read the tokens now; RegistryError when the registry cannot be reached in time."""
        await self._retries.until_reachable(self._read, self._config.number("request.timeout.ms"))

    async def _read(self) -> None:
        tree = await self._registry.read_tree(DELEGATION_TOKENS)
        tokens: dict[str, DelegationToken] = {}
        for path, (data, stat) in tree.items():
            if not data:
                continue
            try:
                token = DelegationToken.parse(data)
            except (ValueError, KeyError, TypeError) as error:
                self._host.trace.log("warning", f"{path} is no delegation token: {error!r}")
                continue
            tokens[token.token_id] = token
            self._versions[token.token_id] = stat.version
        self._tokens = tokens
        self._versions = {name: version for name, version in self._versions.items() if name in tokens}
        self._credentials = {key: row for key, row in self._credentials.items() if key[0] in tokens}

    # ---------------------------------------------------------------- writing

    async def add(self, token: DelegationToken) -> None:
        """Store a new token."""
        await self._retries.until_reachable(
            lambda: self._registry.create(token_path(token.token_id), token.to_json(), make_parents=True),
            self._config.number("request.timeout.ms"),
        )
        await self._announce(token.token_id)

    async def renew(self, token: DelegationToken, expires_ms: int) -> None:
        """Store when a token expires; BadVersionError or NoNodeError when it changed since it was read."""
        after = replace(token, expires_ms=expires_ms)
        await self._registry.set(token_path(token.token_id), after.to_json(), self._versions[token.token_id])
        await self._announce(token.token_id)

    async def remove(self, token: DelegationToken) -> None:
        """Remove a token, unless another broker was first."""
        try:
            await self._registry.delete(token_path(token.token_id))
        except NoNodeError:
            return
        await self._announce(token.token_id)

    async def _announce(self, token_id: str) -> None:
        await self._registry.create(DELEGATION_CHANGE, token_id, sequential=True, make_parents=True)
        await self.refresh()

    # ----------------------------------------------------------------- expiry

    def _check_later(self) -> None:
        self._host.tasks.call_later(self._config.number("delegation.token.expiry.check.interval.ms"), self._check)

    def _check(self) -> None:
        self._host.tasks.spawn(self._remove_expired(), name="expired-tokens")
        self._check_later()

    async def _remove_expired(self) -> None:
        now_ms = self._host.clock.wall_ms()
        for token in self.tokens() if self._is_active() else ():
            if token.is_expired(now_ms):
                self._host.trace.log("info", f"delegation token {token.token_id} of {token.owner} has expired")
                try:
                    await self.remove(token)
                except RegistryError:
                    return  # the next check removes it


CHANGED_SINCE = (BadVersionError, NoNodeError)
"""What `renew` raises for a token that another request changed."""
