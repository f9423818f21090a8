"""Changes of passwords, ACLs and certificates of a running cluster, each made and undone by requests of an operator.

Owns: `PasswordChanged`, `AclRevoked`, `CertificateChanged` (`BegunChange` of the faults), and `Site`, what they need of
a cluster. A change sends its requests in a thread, again until the brokers accept them: the registry may be away, a
broker may be dead. Each can be sent twice with the effect of one. `status` asks every running broker what it decides
by; a change that was seen everywhere is not asked for again.

What may fail: a change that has nothing to change says so in its status (`failed`).
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.authorizer import USER_TYPE, Operation, ResourceType
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import HarrowError
from harrow.cluster.listeners import Address, Listener
from harrow.cluster.security.acls import ANYONE, WILDCARD, Acl, AclEntry, Permission, ResourcePattern
from harrow.cluster.security.fingerprints import of_certificate, of_secret
from harrow.cluster.security.sasl.jaas import jaas_text
from harrow.cluster.security.sasl.scram import ITERATIONS_LEAST, MECHANISMS
from harrow.cluster.security.standard_authorizer import ALLOWED_BY
from harrow.cluster.security.tls import tls_options
from harrow.faults.controls import AclRevocation, CertificateChange, ChangeStatus, PasswordChange

from ..requests.security_requests import alter_broker, alter_scram, create_acls, delete_acls, describe_acls
from ..security.owner import JAAS, PLAIN, USER, SecurityOwner, plain_entry

if TYPE_CHECKING:
    from ..security.certificates import Identity

AGAIN_S = 0.2
TURN_S = 60.0
"""How long the attempt in progress takes at most."""
ATTEMPTS_MOST = 600
"""Of one direction: two minutes."""


class RefusedError(HarrowError):
    """The change cannot be made, however often it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster whose credentials change."""

    config: BrokerConfig
    listeners: tuple[Listener, ...]
    owner: SecurityOwner
    addresses: Callable[[], Mapping[int, Address]]
    """By node id: where Harrow's own clients reach the brokers that run."""
    credentials: Callable[[int, str], Mapping[str, Any]]
    """The control operation `credentials` of a broker, for a user."""


class RequestedChange(abc.ABC):
    """A change that a thread asks for: of the cluster at any broker, and of each broker's settings at this broker."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._failed = self._trouble = ""
        self._sent = self._unsent = self._was_made = False
        self._changed: set[int] = set()
        """The brokers whose settings were changed."""
        self._stopped, self._never = threading.Event(), threading.Event()
        self._undoing: threading.Thread | None = None
        self._making = self._thread(self._make)

    def begin(self) -> None:
        """Begin to make it."""
        self._making.start()

    def undo(self) -> None:
        """Begin to undo it, after the attempt in progress to make it."""
        if self._undoing is None:
            self._stopped.set()
            self._undoing = self._thread(self._unmake)
            self._undoing.start()

    def status(self) -> ChangeStatus:
        """How far it has come, by what the running brokers decide by now."""
        nodes = self._site.addresses()
        undone = self._unsent and all(self.is_as_before(node) for node in nodes)
        if not self._was_made:
            self._was_made = self._sent and all(self.is_made(node) for node in nodes)
        trouble = {"trouble": self._trouble} if self._trouble else {}
        return ChangeStatus(made=self._was_made, undone=undone, failed=self._failed, facts={**self.facts(), **trouble})

    def send(self, node: int, address: Address, *, undo: bool) -> None:  # noqa: B027 - some have nothing for the cluster
        """Make or undo, at this broker, the part that any broker takes; RefusedError where it has no effect."""

    def send_on(self, node: int, address: Address, *, undo: bool) -> None:  # noqa: B027 - some have no settings
        """Make or undo the change of the settings of one broker."""

    @abc.abstractmethod
    def is_made(self, node: int) -> bool:
        """Whether a broker decides by it."""

    @abc.abstractmethod
    def is_as_before(self, node: int) -> bool:
        """Whether a broker decides as before it."""

    def facts(self) -> Mapping[str, Any]:
        """What was changed, for reports."""
        return {}

    def _thread(self, target: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=target, name="harrow-credentials", daemon=True)

    def _make(self) -> None:
        """Make it until it is to be undone: a broker may start later."""
        while not self._stopped.is_set():
            addresses = self._site.addresses()
            try:
                self._sent = self._sent or self._at_any(addresses, undo=False)
                for node in addresses.keys() - self._changed if self._sent else ():
                    self.send_on(node, addresses[node], undo=False)
                    self._changed.add(node)
            except RefusedError as error:
                self._failed = str(error)
                return
            except (HarrowError, OSError) as error:
                self._trouble = str(error)
            self._stopped.wait(AGAIN_S)

    def _unmake(self) -> None:
        self._making.join(TURN_S)
        if self._failed:
            self._unsent = True  # nothing was sent
            return
        for _ in range(ATTEMPTS_MOST):
            addresses = self._site.addresses()
            try:
                self._unsent = self._unsent or self._at_any(addresses, undo=True)
                for node in addresses.keys() & self._changed if self._unsent else ():
                    self.send_on(node, addresses[node], undo=True)
                    self._changed.discard(node)
                if self._unsent and not self._changed:
                    return
            except (HarrowError, OSError) as error:
                self._trouble = str(error)
            self._never.wait(AGAIN_S)

    def _at_any(self, addresses: Mapping[int, Address], *, undo: bool) -> bool:
        """Send it to each broker in turn until one accepts it; False where no broker runs."""
        trouble: Exception | None = None
        for node, address in addresses.items():
            try:
                self.send(node, address, undo=undo)
            except RefusedError:
                raise
            except (HarrowError, OSError) as error:
                trouble = error
            else:
                return True
        if trouble is not None:
            raise trouble
        return False


class PasswordChanged(RequestedChange):
    """Another password of a user, for each mechanism of SCRAM and PLAIN by which the user can log in."""

    def __init__(self, site: Site, change: PasswordChange, salt: bytes) -> None:
        super().__init__(site)
        self._user, self._salt = change.user, salt
        self._former = site.owner.passwords()[change.user]
        self._password = change.password

    def send(self, node: int, address: Address, *, undo: bool) -> None:
        """Change the password of SCRAM."""
        found = self._found(node)
        if not found["scram"] and not self._of_plain(found):
            raise RefusedError(f"no broker has a password of {self._user}")
        password = self._former if undo else self._password
        salted = {
            mechanism: mechanism.salted_password(password, self._salt, ITERATIONS_LEAST)
            for name, mechanism in MECHANISMS.items()
            if name in found["scram"]
        }
        alter_scram(address, self._user, salted, self._salt, ITERATIONS_LEAST)

    def send_on(self, node: int, address: Address, *, undo: bool) -> None:
        """Change the password of PLAIN."""
        settings = dict(self._jaas(self._found(node), self._former if undo else self._password))
        if settings:
            alter_broker(address, node, settings)

    def _found(self, node: int) -> Mapping[str, Any]:
        return self._site.credentials(node, self._user)

    def _of_plain(self, found: Mapping[str, Any]) -> dict[str, str]:
        """The fingerprint of the user's password by listener with PLAIN."""
        return {name: users[self._user] for name, users in found["plain"].items() if self._user in users}

    def _jaas(self, found: Mapping[str, Any], password: str) -> Iterator[tuple[str, str | None]]:
        """The setting of each listener with the user; None where the broker has started with these users."""
        known = self._site.owner.passwords()
        for listener in self._of_plain(found):
            start = plain_entry(self._site.config, listener)
            first = start.users()
            users = {name: known.get(name, first.get(name, "")) for name in found["plain"][listener]}
            users[self._user] = password
            others = {name: value for name, value in start.options.items() if not name.startswith(USER)}
            options = {**others, **{f"{USER}{name}": secret for name, secret in users.items()}}
            name = f"listener.name.{listener.lower()}.{PLAIN.lower()}.{JAAS}"
            yield name, None if users == first else jaas_text(start.module, options)

    def is_made(self, node: int) -> bool:
        """Whether a broker has the new password."""
        return self._has(node, self._password)

    def is_as_before(self, node: int) -> bool:
        """Whether a broker has the former password."""
        return self._has(node, self._former)

    def _has(self, node: int, password: str) -> bool:
        found = self._found(node)
        scram = {
            name: of_secret(MECHANISMS[name].credential_of(password, self._salt, ITERATIONS_LEAST).stored_key)
            for name in found["scram"]
        }
        plain = self._of_plain(found)
        return found["scram"] == scram and plain == dict.fromkeys(plain, of_secret(password.encode()))


class AclRevoked(RequestedChange):
    """An operation that a user may no longer do: ACLs that are removed, and one that denies where others allow."""

    def __init__(self, site: Site, change: AclRevocation) -> None:
        super().__init__(site)
        self._change = change
        self._who = f"{USER_TYPE}:{change.user}"
        self._operation = Operation[change.operation]
        self._pattern = ResourcePattern(ResourceType[change.type], change.name)
        self._removed: list[Acl] | None = None
        self._added: list[Acl] = []

    def send(self, node: int, address: Address, *, undo: bool) -> None:
        """Add, then remove ACLs: first the one that denies, where others allow; undone in the same order."""
        del node
        if self._removed is None:
            self._removed, self._added = ([], []) if undo else self._planned(self._acls(address))
        added, removed = (self._removed, self._added) if undo else (self._added, self._removed)
        create_acls(address, added)
        delete_acls(address, removed)

    def _acls(self, address: Address) -> list[Acl]:
        return describe_acls(address, self._pattern.type, self._pattern.name)

    def _planned(self, acls: list[Acl]) -> tuple[list[Acl], list[Acl]]:
        """Which ACLs to remove, and which to add."""
        giving = {self._operation, Operation.ALL, *ALLOWED_BY.get(self._operation, ())}
        allowing = [
            acl
            for acl in acls
            if acl.entry.permission is Permission.ALLOW
            and acl.entry.principal in (self._who, ANYONE)
            and acl.entry.operation in giving
        ]
        own = [
            acl
            for acl in allowing
            if acl.pattern == self._pattern
            and acl.entry.principal == self._who
            and acl.entry.operation is self._operation
        ]
        by_default = self._site.config.flag("allow.everyone.if.no.acl.found")
        if not allowing and (acls or not by_default):
            change = self._change
            raise RefusedError(f"{change.user} has no {change.operation} on {change.type.lower()} {change.name}")
        added: list[Acl] = []
        if len(own) < len(allowing) or by_default:
            added.append(Acl(self._pattern, AclEntry(self._who, WILDCARD, self._operation, Permission.DENY)))
        if not acls:  # with an ACL the resource is closed to others
            added.append(Acl(self._pattern, AclEntry(ANYONE, WILDCARD, Operation.ALL, Permission.ALLOW)))
        return own, added

    def is_made(self, node: int) -> bool:
        """Whether a broker has what was added and lacks what was removed."""
        acls = self._acls(self._site.addresses()[node])
        return set(self._added) <= set(acls) and not set(self._removed or ()) & set(acls)

    def is_as_before(self, node: int) -> bool:
        """Whether a broker has what was removed and lacks what was added."""
        acls = self._acls(self._site.addresses()[node])
        return set(self._removed or ()) <= set(acls) and not set(self._added) & set(acls)

    def facts(self) -> Mapping[str, Any]:
        """How many ACLs were removed and added."""
        return {"acls_removed": len(self._removed or ()), "acls_added": len(self._added)}


class CertificateChanged(RequestedChange):
    """Another certificate of one broker on its listeners with TLS: dynamic settings, which a restart keeps."""

    def __init__(self, site: Site, change: CertificateChange) -> None:
        super().__init__(site)
        self.node = change.node
        self.identities: dict[str, Identity] = {}
        """By listener: the new key and certificates."""
        self._settings: dict[str, str] = {}
        self._former: dict[str, str] = {}
        self._new: dict[str, str] = {}
        for listener in site.listeners:
            if listener.security_protocol.has_tls:
                self._issue(listener, change)

    def _issue(self, listener: Listener, change: CertificateChange) -> None:
        from cryptography import x509

        from ..security.certificates import DAYS, CertificateAuthority

        chain = tls_options(self._site.config, listener, lambda path: Path(path).read_bytes()).chain
        own = x509.load_pem_x509_certificates(chain.encode())[0]
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority = self._site.owner.authority
        if authority is None or not change.trusted:
            authority = CertificateAuthority("another authority")
        identity = authority.issue(
            own.subject, hosts=[str(name.value) for name in names], days=-1 if change.expired else DAYS
        )
        self.identities[listener.name] = identity
        prefix = f"listener.name.{listener.name.lower()}.ssl.keystore"
        self._settings |= {
            f"{prefix}.type": "PEM",
            f"{prefix}.key": identity.key,
            f"{prefix}.certificate.chain": identity.chain,
        }
        self._former[listener.name] = of_certificate(chain)
        self._new[listener.name] = of_certificate(identity.chain)

    def send_on(self, node: int, address: Address, *, undo: bool) -> None:
        """Set key and certificates, or remove these settings."""
        if node == self.node:
            alter_broker(address, node, dict.fromkeys(self._settings) if undo else self._settings)

    def is_made(self, node: int) -> bool:
        """Whether the broker shows the new certificates."""
        return node != self.node or self._site.credentials(node, "")["certificates"] == self._new

    def is_as_before(self, node: int) -> bool:
        """Whether the broker shows the former certificates."""
        return node != self.node or self._site.credentials(node, "")["certificates"] == self._former
