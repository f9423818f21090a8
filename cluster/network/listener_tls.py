"""The TLS of the listeners of one broker, and how it changes while the broker runs.

Owns: the `TlsOptions` of each listener with TLS. Keystores and truststores are read again after each change of
settings, whatever changed: so a new file under the old path is seen, too. New links get the new keys, open ones keep
theirs. The other rules of a listener stay as they were when it began to serve, as in Kafka. Stores that cannot be used
change nothing, and a line of the log says why.

What may fail: ConfigError at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..config import BrokerConfig
from ..errors import ConfigError
from ..host.seam import Host, TlsOptions
from ..listeners import Listener
from ..security.tls import check_new_certificate, tls_options, with_stores


class ListenerTls:
    """Listener -> its TLS."""

    def __init__(self, host: Host, config: BrokerConfig, listeners: Iterable[Listener]) -> None:
        self._host = host
        self._config = config
        self._listeners = tuple(row for row in listeners if row.security_protocol.has_tls)
        self._options = {row.name: tls_options(config, row, host.disk.read) for row in self._listeners}
        self._served: set[str] = set()

    def of(self, listener: Listener) -> TlsOptions | None:
        """The TLS that a listener has now; None for a listener without."""
        return self._options.get(listener.name)

    def begin(self, listener: Listener) -> TlsOptions | None:
        """The TLS with which a listener begins to serve: from now on only its stores change."""
        self._served.add(listener.name)
        return self.of(listener)

    def read_again(self, renew: Callable[[Listener, TlsOptions], None]) -> None:
        """Read settings and files again, and give `renew` the listeners whose TLS has changed."""
        for listener in self._listeners:
            old = self._options[listener.name]
            try:
                new = self._read(listener, old)
                if new == old:
                    continue
                check_new_certificate(old, new, self._config)
                renew(listener, new)
            except ConfigError as error:
                self._host.trace.log("warning", f"TLS of listener {listener.name} stays as it is: {error}")
                continue
            self._options[listener.name] = new
            self._host.trace.log("info", f"new connections of listener {listener.name} have other TLS")

    def _read(self, listener: Listener, old: TlsOptions) -> TlsOptions:
        read = self._host.disk.read
        if listener.name in self._served:
            return with_stores(old, self._config, listener, read)
        return tls_options(self._config, listener, read)
