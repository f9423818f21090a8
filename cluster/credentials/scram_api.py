"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554).

Owns: the handlers of both. Any broker serves them: a write is conditional on the version of the node that was read.
Each user has a result of its own, and the results have the order of Kafka's maps.

May fail: nothing that a client does not see in its result. Source: Kafka's ScramControlManager, ScramImage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError, RegistryError
from ..metadata import TopicAdmin
from ..metadata.config_store import config_of_json
from ..metadata.java_order import hash_order
from ..metadata.node_names import name_of_node
from ..metadata.registry_retries import error_for_client
from ..registry.paths import USER_QUOTAS
from ..security.sasl.scram import ITERATIONS_LEAST, ITERATIONS_MOST, ScramCredential, ScramMechanism
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import Request
from .users import credentials_of

__all__ = ["ScramApi"]

Credentials = dict[ScramMechanism, ScramCredential]
_BY_NUMBER = {mechanism.value: mechanism for mechanism in ScramMechanism}
_TWICE = "A user credential cannot be altered twice in the same request"


class ScramApi:
    """Handlers that read and change the credentials of users."""

    def __init__(self, admin: TopicAdmin, config: BrokerConfig) -> None:
        self._admin = admin
        self._config = config

    def handlers(self) -> Iterable[ApiRow]:
        """The API table's entries."""
        return (
            ApiRow(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, self._describe),
            ApiRow(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, self._alter),
        )

    async def _users(self) -> dict[str, Credentials]:
        tree = await self._admin.registry.read_tree(USER_QUOTAS)
        found: dict[str, Credentials] = {}
        for path, (data, _) in tree.items():
            node = path.removeprefix(f"{USER_QUOTAS}/")
            credentials = credentials_of(config_of_json(data)) if "/" not in node else {}
            if credentials:
                found[name_of_node(node)] = credentials
        return found

    # -------------------------------------------------------------- describe

    async def _describe(self, request: Request) -> None:
        entity = request.decode()
        s = messages.response(request)
        try:
            timeout_ms = self._config.number("request.timeout.ms")
            users = await self._admin.retries.until_reachable(self._users, timeout_ms)
        except RegistryError as error:
            refused = error_for_client(error)
            request.fail(refused.code, refused.message)
            return
        named = Counter(row.name for row in entity.users or ()) or Counter(users.keys())
        results = tuple(_described(s, name, users.get(name), named[name]) for name in hash_order(named))
        request.respond(
            s.DescribeUserScramCredentialsResponse(error_code=ErrorCode.none, error_message="", results=results)
        )

    # ----------------------------------------------------------------- alter

    async def _alter(self, request: Request) -> None:
        entity = request.decode()
        changes: dict[str, Any] = {}
        errors: dict[str, KafkaError] = {}
        for row in (*entity.deletions, *entity.upsertions):
            if row.name in errors:
                continue
            if changes.pop(row.name, None) is not None:
                errors[row.name] = KafkaError(ErrorCode.duplicate_resource, _TWICE)
                continue
            try:
                changes[row.name] = _checked(row)
            except KafkaError as error:
                errors[row.name] = error
        deleted = {row.name for row in entity.deletions} & changes.keys()
        done: list[str] = []
        for name in (*hash_order(deleted), *hash_order(changes.keys() - deleted)):
            try:
                await self._change(name, changes[name], delete=name in deleted)
                done.append(name)
            except (KafkaError, RegistryError) as error:
                errors[name] = error_for_client(error)
        s = messages.response(request)
        results = [_result(s, name, ErrorCode.none, None) for name in done]
        results += [_result(s, name, errors[name].code, errors[name].message) for name in hash_order(errors)]
        request.respond(s.AlterUserScramCredentialsResponse(results=tuple(results)))

    async def _change(self, name: str, row: Any, *, delete: bool) -> None:
        mechanism = _BY_NUMBER[row.mechanism]
        if not delete and not row.salted_password:
            raise KafkaError(ErrorCode.unknown_server_error, "Empty key")  # an exception of Java's in Kafka

        def changed(before: dict[str, str]) -> Mapping[str, str]:
            after = dict(before)
            if not delete:
                after[mechanism.text] = str(mechanism.credential(row.salted_password, row.salt, row.iterations))
            elif after.pop(mechanism.text, None) is None:
                text = "Attempt to delete a user credential that does not exist"
                raise KafkaError(ErrorCode.resource_not_found, text)
            return after

        await self._admin.configs.alter_user_config(name, changed)


def _checked(row: Any) -> Any:
    """A row of the request; KafkaError for one that breaks a rule by itself."""
    if not row.name:
        raise KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if row.mechanism not in _BY_NUMBER:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    iterations = getattr(row, "iterations", ITERATIONS_LEAST)
    if not ITERATIONS_LEAST <= iterations <= ITERATIONS_MOST:
        text = f"Too {'few' if iterations < ITERATIONS_LEAST else 'many'} iterations"
        raise KafkaError(ErrorCode.unacceptable_credential, text)
    return row


def _described(s: messages.Schema, name: str, found: Credentials | None, times: int) -> Any:
    code, text = ErrorCode.none, ""
    if times > 1:
        code = ErrorCode.duplicate_resource
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif found is None:
        code = ErrorCode.resource_not_found
        text = f"Attempt to describe a user credential that does not exist: {name}"
    infos = tuple(
        s.CredentialInfo(mechanism=mechanism.value, iterations=credential.iterations)
        for mechanism, credential in (found or {}).items()
        if code is ErrorCode.none
    )
    return s.DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text, credential_infos=infos)


def _result(s: messages.Schema, name: str, code: ErrorCode, text: str | None) -> Any:
    return s.AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text)
