"""Faults of credentials (A5): passwords, ACLs, certificates and tokens that are no longer accepted.

`rotate_credentials`      a user has another password for SCRAM and PLAIN. Healed: the former password
`revoke_acl`              a user may no longer do an operation to a topic, a group or a transactional id. Healed: the
                          same ACLs as before
`expire_certificate`      brokers show an expired certificate to new connections. Healed: the former certificate
`rotate_certificate`      brokers show a new certificate, of the same authority or of one that clients do not trust
`refuse_reauthentication` brokers refuse the logins by which a session is renewed (KIP-368)
`expire_token`            tokens of OAUTHBEARER of a user count as expired

The first four go the way of an operator: requests of the Kafka protocol, which brokers keep over restarts. The last two
are rules of the brokers. A broker decides for new logins and handshakes; open connections go on, as in Kafka, unless
the fault closes them (`close`). ACLs are asked for each request, so no connection has to end.

Evidence: every running broker decides by the change, and logins, handshakes or operations were refused since,
counted by the brokers (`cluster/host/knobs/access_rules.py`); `rotate_certificate(ca="same")` refuses nothing, and
counts handshakes. A fault that no client meets fails the run. Healed: every running broker decides as before.

A simulation has none of them: its clients are on PLAINTEXT listeners.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from harrow.cluster.argument_types import checked

from .client_faults import NamedFault, checked_name
from .controls import (
    RUNNING,
    AclRevocation,
    BegunChange,
    CertificateChange,
    ChangeStatus,
    CredentialChange,
    PasswordChange,
)
from .errors import ConfigError
from .evidence import Evidence
from .rule_kinds import DenialRule, HandshakeRule, LoginRule, Rule, TokenRule
from .rules import arm_once, disarm, disarmed, fired
from .spec import Fault, FaultState, Injection, Seconds
from .system import ClusterSnapshot, System
from .targets import Target, TopicLike, all_brokers, as_target, topic_name

DESCRIBING = ("READ", "WRITE", "DELETE", "ALTER")
"""Operations that allow DESCRIBE as well."""
SAME, NEW = "same", "new"
"""The authority of a rotated certificate."""


@dataclass(slots=True, kw_only=True)
class CredentialState(FaultState):
    """What was changed, and which connections were closed."""

    changes: list[BegunChange] = field(default_factory=list[BegunChange])
    closed: dict[str, int] = field(default_factory=dict[str, int])
    """By broker: how many connections the fault has closed there."""

    def status(self) -> ChangeStatus:
        """How far all changes together have come; without a change it is made and undone."""
        found = [change.status() for change in self.changes]
        facts: dict[str, Any] = {}
        for status in found:
            facts |= status.facts
        return ChangeStatus(
            made=all(status.made for status in found),
            undone=all(status.undone for status in found),
            failed=next((status.failed for status in found if status.failed), ""),
            facts=facts,
        )


class CredentialFault(Fault):
    """What all faults of credentials do: a change, a rule that counts, connections that are closed."""

    __slots__ = ()
    state_type: ClassVar[type[FaultState]] = CredentialState
    waits_for_traffic: ClassVar[bool] = True
    counts_at_once: ClassVar[bool] = False
    """Whether each broker counts from the injection on; else when the change is made: logins fail for other reasons."""
    effect: ClassVar[str]
    """The name of the count in the evidence."""

    @property
    def counted(self) -> str:
        """Which count of the rule is evidence."""
        return "fired"

    @property
    def closes(self) -> str | None:
        """Whose connections it closes when the change is made: a user's, all with TLS (empty), none's (None)."""
        return None

    def changes(self, injection: Injection) -> list[CredentialChange]:
        """Return what is changed."""
        del injection
        return []

    @abc.abstractmethod
    def rule(self) -> Rule:
        """Return what each broker counts."""

    def nodes(self, system: System, injection: Injection) -> Iterable[int]:
        """Return the brokers that count."""
        return injection.nodes or system.nodes

    def inject(self, system: System, injection: Injection) -> None:
        """Begin the changes once; `advance` does the rest."""
        state = CredentialState.of(injection)
        if self.counts_at_once:
            arm_once(system, injection, self.rule(), self.nodes(system, injection))
        if not state.changes:
            state.changes += [system.credentials.begin(change) for change in self.changes(injection)]

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """When the change is made, count what is refused from then on, and close connections once."""
        del now_ms
        state = CredentialState.of(injection)
        nodes = [node for node in self.nodes(system, injection) if system.broker(node).status().state == RUNNING]
        made, user = state.status().made, self.closes
        if made or self.counts_at_once:
            arm_once(system, injection, self.rule(), nodes)
        for node in nodes if made and user is not None else ():
            if str(node) not in state.closed:
                state.closed[str(node)] = system.credentials.close_connections(node, user or None)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the change is made, and something was refused since."""
        state = CredentialState.of(injection)
        status = state.status()
        facts = fired(system, injection, death_counts=False)
        count = sum(int(fact.get(self.counted, 0)) for fact in facts.values())
        closed = {} if self.closes is None else {"closed": sum(state.closed.values())}
        return Evidence(
            proved=status.made and count > 0,
            failed=status.failed,
            facts={self.effect: count, "made": status.made, **closed, **status.facts, "brokers": facts},
        )

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say that nothing was refused, or that the change was not made."""
        del injection
        if facts.get("made", True):
            return self.unmet()
        return f"not every running broker decides by it ({facts.get('trouble', 'no request was refused')})"

    @abc.abstractmethod
    def unmet(self) -> str:
        """Say what no client did."""

    def heal(self, system: System, injection: Injection) -> None:
        """Begin to undo the changes, and count no more."""
        for change in CredentialState.of(injection).changes:
            change.undo()
        disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether every running broker decides as before."""
        status = CredentialState.of(injection).status()
        evidence = Evidence(proved=True, facts={"as_before": status.undone})
        return disarmed(system, injection, evidence, over=status.undone)


# ------------------------------------------------------------------------------------------ users


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFault(NamedFault, CredentialFault):
    """A fault of one user."""

    named_by: ClassVar[str] = "user"
    drawable: ClassVar[bool] = False
    user: str

    def __post_init__(self) -> None:
        NamedFault.__post_init__(self)
        checked_name(self.user, self.kind, "user")

    def check_system(self, system: System) -> None:
        """ConfigError where its change cannot have an effect."""
        injection = Injection(id="0", fault=self, nodes=(), duration_ms=0)
        for change in self.changes(injection):
            system.credentials.check(change)

    def unmet(self) -> str:
        """Say that the user did not log in."""
        return f"no login of {self.user} was refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateCredentials(UserFault):
    """Another password of a user."""

    kind: ClassVar[str] = "rotate_credentials"
    words: ClassVar[str] = "had another password of a user"
    needs: ClassVar[frozenset[str]] = frozenset({"passwords", "logins"})
    effect: ClassVar[str] = "refused_logins"
    password: str = ""
    close: bool = True

    @property
    def closes(self) -> str | None:
        """The user's connections."""
        return self.user if self.close else None

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the password, where none is given."""
        del snapshot
        return {} if self.password else {"password": f"rotated-{rng.getrandbits(64):016x}"}

    def changes(self, injection: Injection) -> list[CredentialChange]:
        """Return the other password."""
        password = self.password or str(injection.details.get("password", ""))
        return [PasswordChange(user=self.user, password=password)]

    def rule(self) -> Rule:
        """Count logins that fail."""
        return LoginRule(user=self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeAcl(UserFault):
    """An operation on a resource that a user may no longer do."""

    kind: ClassVar[str] = "revoke_acl"
    words: ClassVar[str] = "denied a user an operation"
    needs: ClassVar[frozenset[str]] = frozenset({"acls"})
    effect: ClassVar[str] = "denied_operations"
    counts_at_once: ClassVar[bool] = True
    operation: str
    topic: str = ""
    group: str = ""
    transactional_id: str = ""

    def __post_init__(self) -> None:
        UserFault.__post_init__(self)
        checked_name(self.operation, self.kind, "operation")
        object.__setattr__(self, "operation", self.operation.upper())
        if len(self._named()) != 1:
            raise ConfigError(f"{self}: expected a topic, a group or a transactional_id, and one of these")

    def _named(self) -> list[tuple[str, str]]:
        given = {"TOPIC": self.topic, "GROUP": self.group, "TRANSACTIONAL_ID": self.transactional_id}
        return [(kind, name) for kind, name in given.items() if name]

    def changes(self, injection: Injection) -> list[CredentialChange]:
        """Return the operation that is revoked."""
        del injection
        [(kind, name)] = self._named()
        return [AclRevocation(user=self.user, operation=self.operation, type=kind, name=name)]

    def rule(self) -> Rule:
        """Count denied operations; a client that may not describe a topic asks for no more."""
        [(kind, name)] = self._named()
        operations = (self.operation, "DESCRIBE") if self.operation in DESCRIBING else (self.operation,)
        return DenialRule(user=self.user, operations=operations, type=kind, name=name)

    def unmet(self) -> str:
        """Say that the operation was not asked for."""
        [(kind, name)] = self._named()
        return f"{self.user} was not denied {self.operation} on {kind.lower()} {name!r}: no request asked for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseReauthentication(UserFault):
    """Sessions of a user that cannot be renewed."""

    kind: ClassVar[str] = "refuse_reauthentication"
    words: ClassVar[str] = "renewed no session of a user"
    needs: ClassVar[frozenset[str]] = frozenset({"logins"})
    effect: ClassVar[str] = "refused_logins"
    counts_at_once: ClassVar[bool] = True
    first_logins: bool = True

    def rule(self) -> Rule:
        """Refuse re-authentications, or every login."""
        return LoginRule(user=self.user, refuse="again" if self.first_logins else "all")

    def unmet(self) -> str:
        """Say that no session was renewed."""
        return f"no session of {self.user} was renewed: brokers need connections.max.reauth.ms, clients KIP-368"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireToken(UserFault):
    """Tokens of OAUTHBEARER that count as expired."""

    kind: ClassVar[str] = "expire_token"
    words: ClassVar[str] = "refused the tokens of a user"
    needs: ClassVar[frozenset[str]] = frozenset({"tokens"})
    effect: ClassVar[str] = "refused_tokens"
    counts_at_once: ClassVar[bool] = True
    close: bool = True

    @property
    def closes(self) -> str | None:
        """The user's connections."""
        return self.user if self.close else None

    def rule(self) -> Rule:
        """Refuse tokens."""
        return TokenRule(user=self.user)


# ----------------------------------------------------------------------------------- certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFault(CredentialFault):
    """Another certificate of brokers on all their listeners with TLS."""

    needs: ClassVar[frozenset[str]] = frozenset({"certificates"})
    effect: ClassVar[str] = "handshakes"
    target: Target = all_brokers
    close: bool = True

    @classmethod
    def drawn(cls, role: Target, seconds: Seconds | None = None) -> Self:
        """Return a fault of all brokers: a client may know no other one."""
        del role
        return cls(seconds=seconds)

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False

    @property
    def closes(self) -> str | None:
        """All connections with TLS."""
        return "" if self.close else None

    def rule(self) -> Rule:
        """Count handshakes."""
        return HandshakeRule()

    def unmet(self) -> str:
        """Say that no client opened a connection."""
        return "no handshake met the certificate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireCertificate(CertificateFault):
    """Brokers show an expired certificate."""

    kind: ClassVar[str] = "expire_certificate"
    words: ClassVar[str] = "had an expired certificate"

    def changes(self, injection: Injection) -> list[CredentialChange]:
        """Return the certificate of each broker."""
        return [CertificateChange(node=node, expired=True) for node in injection.nodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateCertificate(CertificateFault):
    """Brokers show a new certificate."""

    kind: ClassVar[str] = "rotate_certificate"
    words: ClassVar[str] = "had another certificate"
    ca: str = SAME

    def __post_init__(self) -> None:
        CertificateFault.__post_init__(self)
        if self.ca not in (SAME, NEW):
            raise ConfigError(f"rotate_certificate(ca={self.ca!r}): expected 'same' or 'new'")

    @property
    def counted(self) -> str:
        """Handshakes; those that fail where the authority is another one."""
        return "seen" if self.ca == SAME else "fired"

    def changes(self, injection: Injection) -> list[CredentialChange]:
        """Return the certificate of each broker."""
        return [CertificateChange(node=node, trusted=self.ca == SAME) for node in injection.nodes]


@checked
def rotate_credentials(
    user: str, *, password: str = "", close: bool = True, seconds: Seconds | None = None
) -> RotateCredentials:
    """Give a user another password (SCRAM and PLAIN) for `seconds`: a client with the former one cannot log in.

    `password`: the new one, such as for an application that reads it again; empty: drawn from the seed. The brokers
    close the user's connections; with `close=False` these go on until they log in again, as in Kafka.
    """
    return RotateCredentials(user=user, password=password, close=close, seconds=seconds)


@checked
def revoke_acl(
    user: str,
    operation: str,
    topic: TopicLike | None = None,
    *,
    group: str = "",
    transactional_id: str = "",
    seconds: Seconds | None = None,
) -> RevokeAcl:
    """Take an operation such as `"WRITE"` on a topic, a group or a transactional id from a user for `seconds`.

    The user's own ACLs for just this are removed. Where others allow it too (a wildcard, a prefix, `ALL`, `User:*`, or
    `allow.everyone.if.no.acl.found`), an ACL that denies it is added. No ACL applies to a super user: ConfigError.
    """
    name = "" if topic is None else topic_name(topic, RevokeAcl.kind)
    return RevokeAcl(
        user=user, operation=operation, topic=name, group=group, transactional_id=transactional_id, seconds=seconds
    )


@checked
def refuse_reauthentication(
    user: str, *, first_logins: bool = True, seconds: Seconds | None = None
) -> RefuseReauthentication:
    """Refuse the logins by which a user's sessions are renewed (`connections.max.reauth.ms`), for `seconds`.

    First logins succeed, so that a client which opens a new connection goes on; with `first_logins=False` none does.
    """
    return RefuseReauthentication(user=user, first_logins=first_logins, seconds=seconds)


@checked
def expire_token(user: str, *, close: bool = True, seconds: Seconds | None = None) -> ExpireToken:
    """Let the tokens of OAUTHBEARER of a user count as expired for `seconds`, new ones too.

    The brokers close the user's connections; with `close=False` these go on until they log in again.
    """
    return ExpireToken(user=user, close=close, seconds=seconds)


@checked
def expire_certificate(
    target: Target | int = all_brokers, *, close: bool = True, seconds: Seconds | None = None
) -> ExpireCertificate:
    """Let brokers show an expired certificate to new connections for `seconds`.

    The brokers close the connections with TLS of clients; with `close=False` these go on, as in Kafka.
    """
    return ExpireCertificate(target=as_target(target, ExpireCertificate.kind), close=close, seconds=seconds)


@checked
def rotate_certificate(
    target: Target | int = all_brokers, *, ca: str = SAME, close: bool = True, seconds: Seconds | None = None
) -> RotateCertificate:
    """Let brokers show a new certificate to new connections for `seconds`; connections as in `expire_certificate`.

    `ca="same"`: the same authority has signed it, so that only a client which pins a certificate fails. `ca="new"`: an
    authority that clients do not trust.
    """
    return RotateCertificate(target=as_target(target, RotateCertificate.kind), ca=ca, close=close, seconds=seconds)
