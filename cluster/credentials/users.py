"""The users that log in by SCRAM, as every broker has them in memory (A5).

Owns: `ScramUsers`; the text of a credential in `/config/users/U`, under the name of its mechanism, beside quotas; the
users of a new cluster (`harrow.scram.users`), which the first broker stores before any client may log in.

The metadata room reads the nodes and follows their changes (`ConfigChanges`). A user who is deleted keeps the
connections that are open, as in Kafka.

May fail: ConfigError for users at the start that cannot be read; RegistryError.
Source: Kafka's ScramCredentialUtils, CredentialCache, ScramParser (kafka-storage format --add-scram).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from ..errors import ConfigError
from ..host.seam import Host
from ..metadata.config_store import config_json
from ..metadata.node_names import node_of_name
from ..registry import NodeExistsError, RegistryClient
from ..registry.paths import USERS_MADE, entity_config_path
from ..security.fingerprints import of_secret
from ..security.sasl.exchange import Login
from ..security.sasl.scram import (
    ITERATIONS_LEAST,
    ITERATIONS_MOST,
    MECHANISMS,
    FoundCredential,
    ScramCredential,
    ScramMechanism,
    nonce_of,
)
from .tokens import TokenStore

__all__ = ["ScramUsers", "credentials_of", "make_users", "parse_users"]

_USER = re.compile(r"\s*(?P<mechanism>[A-Z0-9-]+)=\[(?P<options>[^\]]*)\]\s*(?:;|$)")
_OPTION = re.compile(r"\s*(name|password|salt|iterations|saltedpassword)=(?:\"([^\"]*)\"|([^,\"]*))\s*(?:,|$)")
_ITERATIONS = ITERATIONS_LEAST
_SETTING = "harrow.scram.users"


def credentials_of(settings: Mapping[str, str]) -> dict[ScramMechanism, ScramCredential]:
    """The credentials in the settings of a user; one that cannot be read is left out."""
    found: dict[ScramMechanism, ScramCredential] = {}
    for name, mechanism in MECHANISMS.items():
        try:
            found[mechanism] = ScramCredential.parse(settings.get(name, ""))
        except ValueError:
            continue
    return found


class ScramUsers:
    """The credentials of all users."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens
        self._users: dict[str, dict[ScramMechanism, ScramCredential]] = {}

    def changed(self, user: str, settings: Mapping[str, str]) -> None:
        """The registry has these settings of a user now; none for a user that it does not have."""
        found = credentials_of(settings)
        if found:
            self._users[user] = found
        else:
            self._users.pop(user, None)

    def fingerprints(self, user: str) -> dict[str, str]:
        """What an observer may know of the credentials of a user, by mechanism."""
        found = self._users.get(user, {})
        return {mechanism.text: of_secret(credential.stored_key) for mechanism, credential in found.items()}

    def scram(self, mechanism: ScramMechanism, name: str, by_token: bool) -> FoundCredential | None:
        """The credential of a user, or of a delegation token; None for an unknown name."""
        if by_token:
            return self._tokens.scram(mechanism, name)
        found = self._users.get(name, {}).get(mechanism)
        return None if found is None else FoundCredential(found, Login(user=name))


class NewUser(NamedTuple):
    """A user of a new cluster."""

    name: str
    mechanism: ScramMechanism
    password: str
    salt: bytes
    salted: bytes
    iterations: int

    def credential(self, random: Random) -> ScramCredential:
        """What the registry has of the user."""
        salt = self.salt or nonce_of(random).encode()
        if self.salted:
            return self.mechanism.credential(self.salted, salt, self.iterations)
        return self.mechanism.credential_of(self.password, salt, self.iterations)


def parse_users(text: str) -> Iterator[NewUser]:
    """The users in the setting; ConfigError, which names no password."""
    at = 0
    while at < len(text.rstrip()):
        found = _USER.match(text, at)
        if found is None or found["mechanism"] not in MECHANISMS:
            raise ConfigError(
                f"{_SETTING}: expected SCRAM-SHA-256=[name=alice,password=secret] or SCRAM-SHA-512=[…], and ; between"
            )
        yield _user_of(MECHANISMS[found["mechanism"]], found["options"])
        at = found.end()


def _user_of(mechanism: ScramMechanism, text: str) -> NewUser:
    options: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _OPTION.match(text, at)
        if found is None:
            raise ConfigError(f"{_SETTING}: an option that is none of name, password, salt, iterations, saltedpassword")
        options[found[1]] = found[3] if found[2] is None else found[2]
        at = found.end()
    try:
        iterations = int(options.get("iterations", _ITERATIONS))
        salt, salted = (base64.b64decode(options.get(name, ""), validate=True) for name in ("salt", "saltedpassword"))
    except ValueError as error:
        raise ConfigError(f"{_SETTING}: {error}") from None
    if not options.get("name") or ("password" in options) == bool(salted) or bool(salted) > bool(salt):
        raise ConfigError(f"{_SETTING}: a user needs a name, and a password or a salt with a salted password")
    if not ITERATIONS_LEAST <= iterations <= ITERATIONS_MOST:
        raise ConfigError(f"{_SETTING}: iterations={iterations}: expected {ITERATIONS_LEAST} to {ITERATIONS_MOST}")
    return NewUser(options["name"], mechanism, options.get("password", ""), salt, salted, iterations)


async def make_users(host: Host, registry: RegistryClient, text: str) -> None:
    """Store the users of a new cluster, unless a broker has done so; RegistryError, ConfigError."""
    users = tuple(parse_users(text))
    if not users or await registry.exists(USERS_MADE) is not None:
        return
    settings: dict[str, dict[str, str]] = {}
    for user in users:
        settings.setdefault(user.name, {})[user.mechanism.text] = str(user.credential(host.random))
    for name, own in settings.items():
        try:
            path = entity_config_path(f"users/{node_of_name(name)}")
            await registry.create(path, config_json(own), make_parents=True)
        except NodeExistsError:
            continue  # another broker was first, or it has quotas from an earlier life
    await registry.ensure(USERS_MADE)
