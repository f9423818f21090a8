"""Whether new keys of a listener with TLS can be used, before they become settings of a running broker (KIP-226).

The keys are tried where the request is served. The files must be there, and the new certificate must have the names of
the old one (`security/tls.py`).

May fail: KafkaError(invalid_request) says what cannot be used. Source: Kafka's `SslFactory.validateReconfiguration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..config import LISTENER_PREFIX, BrokerConfig, Change, setting_of
from ..errors import ConfigError, ErrorCode, KafkaError
from ..host.seam import TlsOptions
from ..listeners import parse_listeners
from ..security.tls import check_new_certificate, with_stores


def check_listener_keys(texts: Mapping[str, str], config: BrokerConfig, read: Callable[[str], bytes]) -> None:
    """Try the stores of every listener with TLS for which `texts`, all dynamic settings of a broker, have one."""
    rows = {name: setting_of(name) for name in texts if name.startswith(LISTENER_PREFIX)}
    of_stores = [name for name, row in rows.items() if row is not None and row.change is Change.LISTENER]
    if not of_stores:
        return
    after = BrokerConfig(config.overrides())
    after.dynamic = {name: row.parse(texts[name]) for name, row in rows.items() if row is not None}
    for listener in parse_listeners(config):
        prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
        if listener.security_protocol.has_tls and any(name.startswith(prefix) for name in of_stores):
            try:
                old, new = (with_stores(TlsOptions(), settings, listener, read) for settings in (config, after))
                check_new_certificate(old, new, config)
            except ConfigError as error:
                raise KafkaError(ErrorCode.invalid_request, str(error)) from error
