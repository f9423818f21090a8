"""The security of one run's cluster: settings of its brokers, users that are made when a test names them, rights (A5).

`Harrow.client_config` and `Harrow.allow` end here. Files are in `security/` of the run folder; runs that share a
cluster share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError, HarrowError
from harrow.faults.controls import RUNNING
from harrow.faults.errors import CapabilityError

from .. import run_folder
from ..backends.choice import APACHE, EXTERNAL, LOCAL
from ..backends.credentials import Owned
from ..security.choice import INSECURE, Security, check_user
from ..security.client_settings import Access, client_settings

if TYPE_CHECKING:
    from pathlib import Path

    from harrow.cluster.listeners import Address
    from harrow.faults.system import System

    from ..running_cluster import RunningCluster
    from ..security.cluster_security import ClusterSecurity

SHARED = "shared-security"
"""The folder of the files of clusters that several runs share, beside the folders of the runs."""


class RunCredentials:
    """Who the clients of a run are, and what they may do; `cluster` starts it."""

    def __init__(
        self, security: Security, folder: Path, cluster: Callable[[], RunningCluster], *, backend: str, shared: bool
    ) -> None:
        self.security = security
        self._folder = folder
        self._cluster = cluster
        self._backend = backend
        self._shared = shared
        self._of_cluster: ClusterSecurity | None = None
        self._made: set[str] = set()
        """Users of this run that every running broker knows."""

    @property
    def of_cluster(self) -> ClusterSecurity:
        """The certificates, users and files; ConfigError for a cluster without security."""
        if self._of_cluster is None:
            raise ConfigError(
                'the clients of this cluster have no credentials: give it security="sasl_ssl", or another protocol'
            )
        return self._of_cluster

    def settings(self, config: Mapping[str, object]) -> dict[str, object]:
        """Make the files, and return the settings of the brokers with those of the test.

        ConfigError for a setting of both; CapabilityError for a backend that cannot have them.
        """
        if self.security == INSECURE:
            return dict(config)
        refusal = _refusal(self.security, self._backend)
        if refusal:
            raise CapabilityError(refusal)
        self._of_cluster = self._files()
        added = self._of_cluster.broker_settings
        for name in added.keys() & config.keys():
            raise ConfigError(f"security={self.security} sets {name}: leave it out of config")
        return {**added, **config}

    def hand_over(self, system: System) -> None:
        """Let the faults of a block change the users and certificates of this run."""
        if self._of_cluster is not None and isinstance(system, Owned):
            system.owned_by(self._of_cluster)

    def without_own(self, config: Mapping[str, object]) -> dict[str, object]:
        """Return the settings of brokers without those that name this run's files and users."""
        own = {} if self._of_cluster is None else self._of_cluster.broker_settings
        return {name: value for name, value in config.items() if name not in own}

    def _files(self) -> ClusterSecurity:
        from ..security.cluster_security import ClusterSecurity, security_of

        home = self._folder / run_folder.SECURITY
        if not self._shared:
            return ClusterSecurity(self.security, home)
        shared = self._folder.parent / SHARED
        shared.mkdir(parents=True, exist_ok=True)
        home.symlink_to(shared, target_is_directory=True)
        return security_of(self.security, shared)

    # ------------------------------------------------------------------ users

    def access(self, user: object) -> Access:
        """What a client of a user needs; a user who is not there is made."""
        user = check_user(user)
        servers = self._cluster().bootstrap_servers
        if self.security == INSECURE:
            return Access(servers=servers, protocol=INSECURE.kafka_protocol)
        found = self.of_cluster.access(user, servers)
        if user not in self._made:
            if self._shared or user not in self.of_cluster.first_users:
                self.store(user)
            self._made.add(user)
        return found

    def client_config(self, user: object, library: str) -> dict[str, Any]:
        """The settings of a client; `Harrow.client_config`."""
        return client_settings(self.access(user), library)

    def store(self, user: str) -> None:
        """Give a user the password that `of_cluster` has; returns when every running broker lets the user log in."""
        mechanism = self.security.mechanism
        if not mechanism or mechanism == "OAUTHBEARER":
            return  # a certificate, or a token, says who it is
        import ssl

        from ..requests import credentials

        files = self.of_cluster
        files.users[user] = None
        own = self._addresses(self._cluster().own_servers)
        if mechanism == "PLAIN":
            if self._backend == APACHE:
                raise CapabilityError(
                    f"user {user!r}: Apache Kafka takes new users of PLAIN when a listener starts only; name the user "
                    f"in Security({str(self.security)!r}, users=…), or choose SCRAM"
                )
            self._check_all_run(user)
            credentials.store_plain_users(own, files.plain_setting, files.plain_module(tuple(files.users)))
        else:
            credentials.store_scram_user([*own.values()], mechanism, user, files.password(user))
        context = ssl.create_default_context(cafile=files.ca_file) if self.security.has_tls else None

        login = credentials.login_of(mechanism, user, files.password(user))

        def refused(address: Address) -> str:
            return credentials.refusal(address, login, context)

        credentials.await_everywhere(lambda: self._running(self._cluster().bootstrap_servers), refused)

    def _check_all_run(self, user: str) -> None:
        """A broker that does not run would not know a new user of PLAIN when it is back."""
        for node, broker in self._cluster().brokers.items():
            if broker.state != RUNNING:
                raise HarrowError(
                    f"user {user!r} cannot be made while broker {node} is {broker.state}: name it in "
                    f"Security({str(self.security)!r}, users=…), or call client_config before the chaos block"
                )

    def _addresses(self, servers: str) -> dict[int, Address]:
        from ..requests.operator import addresses_of

        return dict(zip(self._cluster().brokers, addresses_of(servers), strict=True))

    def _running(self, servers: str) -> list[Address]:
        brokers = self._cluster().brokers
        return [address for node, address in self._addresses(servers).items() if brokers[node].state == RUNNING]

    # ----------------------------------------------------------------- rights

    def allow(
        self, user: str, operation: str, *, topic: str | None, group: str | None, transactional_id: str | None
    ) -> None:
        """Add an ACL; `Harrow.allow`."""
        if not self.security.acls:
            raise ConfigError(f"security={self.security} has no ACLs: every user may do everything; give it acls=True")
        from ..requests.credentials import create_acl
        from ..security.rights import acl_of

        acl = acl_of(user, operation, topic=topic, group=group, transactional_id=transactional_id)
        servers = self._cluster().own_servers
        create_acl([*self._addresses(servers).values()], lambda: self._running(servers), acl)


def _refusal(security: Security, backend: str) -> str:
    """Why the brokers of a backend cannot have this security; empty where they can."""
    if backend == LOCAL:
        return ""
    if backend == EXTERNAL:
        return (
            f"security={security}: the brokers of the backend {backend} have the security that they have; give your "
            "clients their own settings, and Harrow a PLAINTEXT listener in bootstrap"
        )
    if backend != APACHE:
        return (
            f"security={security}: clients reach the brokers of the backend {backend} in another way, such as through "
            f"a proxy that reads what they send; choose the backend {LOCAL} or {APACHE}, or leave security out"
        )
    return ""
