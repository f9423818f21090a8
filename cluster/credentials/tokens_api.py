"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48, KIP-373).

Owns: the handlers. Any broker serves them: it reads the registry's tokens first, and its writes are conditional.

A client that is not authenticated, or that logged in by a token, may not send these requests. A token is renewed and
expired by its owner and its renewers; it is described to these, to who asked for it, and to those whom the authorizer
allows DESCRIBE of the token or DESCRIBE_TOKENS of its owner.

May fail: nothing that a client does not see as an error. Source: Kafka's KafkaApis, DelegationTokenControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..authorizer import USER_TYPE, Operation, Principal, ResourceType
from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError, RegistryError
from ..host.seam import Host
from ..listeners import SecurityProtocol
from ..metadata.java_order import hash_order
from ..metadata.registry_retries import error_for_client
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import Request
from ..wire.topic_ids import draw_topic_id, text_of
from .tokens import CHANGED_SINCE, DelegationToken, TokenStore

__all__ = ["TokensApi"]

LONG_MAX = 2**63 - 1
NO_TIME = -1
_ATTEMPTS = 10
"""How often a change begins again because of concurrent changes of the token."""


class TokensApi:
    """Handlers about delegation tokens."""

    def __init__(self, host: Host, store: TokenStore, config: BrokerConfig) -> None:
        self._host = host
        self._store = store
        self._config = config

    def handlers(self) -> Iterable[ApiRow]:
        """The API table's entries."""
        return (
            ApiRow(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, self._create),
            ApiRow(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, self._renew),
            ApiRow(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, self._expire),
            ApiRow(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, self._describe),
        )

    # ----------------------------------------------------------------- create

    async def _create(self, request: Request) -> None:
        entity = request.decode()
        owner = request.principal
        if getattr(entity, "owner_principal_name", None):
            if entity.owner_principal_type is None:  # Kafka makes no principal of it
                self._respond_created(request, owner, ErrorCode.unknown_server_error)
                return
            owner = Principal(entity.owner_principal_type, entity.owner_principal_name)
        renewers = tuple(Principal(row.principal_type, row.principal_name) for row in entity.renewers)
        if not _may_ask(request):
            self._respond_created(request, owner, ErrorCode.delegation_token_request_not_allowed)
        elif owner != request.principal and not request.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            self._respond_created(request, owner, ErrorCode.delegation_token_authorization_failed)
        elif any(renewer.type != USER_TYPE for renewer in renewers):
            self._respond_created(request, owner, ErrorCode.invalid_principal_type)
        elif not self._store.enabled:
            self._respond_created(request, owner, ErrorCode.delegation_token_auth_disabled, no_time=0)
        else:
            await self._add(request, owner, renewers, messages.to_milliseconds(entity.max_lifetime))

    async def _add(self, request: Request, owner: Principal, renewers: tuple[Principal, ...], lifetime_ms: int) -> None:
        now_ms = self._host.clock.wall_ms()
        longest_ms = self._config.number("delegation.token.max.lifetime.ms")
        ends_ms = _sum(now_ms, min(longest_ms, lifetime_ms) if lifetime_ms > 0 else longest_ms)
        token = DelegationToken(
            token_id=text_of(draw_topic_id(self._host.random)),
            owner=owner,
            requester=request.principal,
            renewers=renewers,
            issued_ms=now_ms,
            expires_ms=min(ends_ms, _sum(now_ms, self._config.number("delegation.token.expiry.time.ms"))),
            ends_ms=ends_ms,
        )
        try:
            await self._store.add(token)
        except RegistryError as error:
            self._respond_created(request, owner, error_for_client(error).code)
            return
        self._respond_created(request, owner, ErrorCode.none, token)

    def _respond_created(
        self,
        request: Request,
        owner: Principal,
        code: ErrorCode,
        token: DelegationToken | None = None,
        *,
        no_time: int = NO_TIME,
    ) -> None:
        s = messages.response(request)
        times = (no_time,) * 3 if token is None else (token.issued_ms, token.expires_ms, token.ends_ms)
        issued, expires, ends = map(messages.wall_time, times)
        request.respond(
            s.CreateDelegationTokenResponse(
                error_code=code,
                principal_type=owner.type,
                principal_name=owner.name,
                token_requester_principal_type=request.principal.type,
                token_requester_principal_name=request.principal.name,
                issue_timestamp=issued,
                expiry_timestamp=expires,
                max_timestamp=ends,
                token_id="" if token is None else token.token_id,
                hmac=b"" if token is None else self._store.hmac_of(token.token_id),
            )
        )

    # ------------------------------------------------------- renew and expire

    async def _renew(self, request: Request) -> None:
        entity = request.decode()
        period_ms = messages.to_milliseconds(entity.renew_period)
        longest_ms = self._config.number("delegation.token.expiry.time.ms")
        period_ms = min(period_ms, longest_ms) if period_ms > 0 else longest_ms

        async def change(token: DelegationToken, now_ms: int) -> int:
            if token.is_expired(now_ms):
                raise KafkaError(ErrorCode.delegation_token_expired)
            _check_owner(token, request.principal)
            expires_ms = min(token.ends_ms, _sum(now_ms, period_ms))
            await self._store.renew(token, expires_ms)
            return expires_ms

        await self._changed(request, entity.hmac, change)

    async def _expire(self, request: Request) -> None:
        entity = request.decode()
        period_ms = messages.to_milliseconds(entity.expiry_time_period)

        async def change(token: DelegationToken, now_ms: int) -> int:
            _check_owner(token, request.principal)
            if period_ms < 0:
                await self._store.remove(token)
                return now_ms
            if token.is_expired(now_ms):
                raise KafkaError(ErrorCode.delegation_token_expired)
            expires_ms = min(token.ends_ms, _sum(now_ms, period_ms))
            await self._store.renew(token, expires_ms)
            return expires_ms

        await self._changed(request, entity.hmac, change)

    def _check_allowed(self, request: Request) -> None:
        if not _may_ask(request):
            raise KafkaError(ErrorCode.delegation_token_request_not_allowed)
        if not self._store.enabled:
            raise KafkaError(ErrorCode.delegation_token_auth_disabled)

    async def _changed(self, request: Request, hmac: bytes, change: Any) -> None:
        code, expires_ms = ErrorCode.none, 0 if _may_ask(request) else NO_TIME
        try:
            self._check_allowed(request)
            expires_ms = await self._change(bytes(hmac), change)
        except (KafkaError, RegistryError) as error:
            code = error_for_client(error).code
        s = messages.response(request)
        request.respond(s.root(error_code=code, expiry_timestamp=messages.wall_time(expires_ms)))

    async def _change(self, hmac: bytes, change: Any) -> int:
        for _ in range(_ATTEMPTS):
            await self._store.refresh()
            token = self._store.by_hmac(hmac)
            if token is None:
                raise KafkaError(ErrorCode.delegation_token_not_found)
            try:
                return int(await change(token, self._host.clock.wall_ms()))
            except CHANGED_SINCE:
                continue
        raise KafkaError(ErrorCode.request_timed_out)

    # --------------------------------------------------------------- describe

    async def _describe(self, request: Request) -> None:
        entity = request.decode()
        code, tokens = ErrorCode.none, list[DelegationToken]()
        owners: set[Principal] | None = None
        if entity.owners is not None:
            owners = {Principal(row.principal_type, row.principal_name) for row in entity.owners}
        try:
            self._check_allowed(request)
            if owners is None or owners:
                await self._store.refresh()
                tokens = [token for token in self._store.tokens() if _may_see(request, token, owners)]
        except (KafkaError, RegistryError) as error:
            code = error_for_client(error).code
        s = messages.response(request)
        by_id = {token.token_id: token for token in tokens}
        rows = tuple(self._described(s, by_id[token_id]) for token_id in hash_order(by_id))
        request.respond(s.DescribeDelegationTokenResponse(error_code=code, tokens=rows))

    def _described(self, s: messages.Schema, token: DelegationToken) -> Any:
        return s.DescribedDelegationToken(
            principal_type=token.owner.type,
            principal_name=token.owner.name,
            token_requester_principal_type=token.requester.type,
            token_requester_principal_name=token.requester.name,
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.ends_ms,
            token_id=token.token_id,
            hmac=self._store.hmac_of(token.token_id),
            renewers=tuple(
                s.DescribedDelegationTokenRenewer(principal_type=row.type, principal_name=row.name)
                for row in token.renewers
            ),
        )


def _may_ask(request: Request) -> bool:
    """False for a client that is not authenticated, or that logged in by a token."""
    context = request.context
    protocol = context.listener.security_protocol
    anonymous = protocol is SecurityProtocol.SSL and str(context.principal) == "User:ANONYMOUS"
    return not (context.by_token or anonymous or protocol is SecurityProtocol.PLAINTEXT)


def _may_see(request: Request, token: DelegationToken, owners: set[Principal] | None) -> bool:
    if owners is not None and not any(token.belongs_to(owner) for owner in owners):
        return False
    return (
        token.belongs_to(request.principal)
        or request.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or request.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _check_owner(token: DelegationToken, principal: Principal) -> None:
    if not token.may_renew(principal):
        raise KafkaError(ErrorCode.delegation_token_owner_mismatch)


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, LONG_MAX)
