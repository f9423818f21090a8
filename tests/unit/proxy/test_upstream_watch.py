"""When the proxy opens and closes the port of a foreign broker (`cluster/proxy/upstream_watch.py`)."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from harrow.cluster.host.seam import Peer
from harrow.cluster.listeners import Address
from harrow.cluster.proxy.upstream_watch import PROBE_MS, watch_upstream
from manual_host import ManualHost


class Answers:
    """A network that answers each connection with the next error, and then for good with the last one."""

    def __init__(self, *errors: OSError | None) -> None:
        self._errors = list(errors)

    async def connect(self, _peer: Peer, _host: str, _port: int, make_handler: Any, *, timeout_ms: int) -> None:
        assert timeout_ms > 0
        error = self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]
        if error is not None:
            raise error
        make_handler(None).link_closed("the broker has closed it")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL])
def test_an_error_of_this_machine_says_nothing_about_the_broker(number: int) -> None:
    host, said = ManualHost(), list[str]()

    async def up() -> None:
        said.append("up")

    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    host.network = Answers(None, OSError(number, "no room"), OSError(number, "no room"), refused)  # type: ignore[assignment]
    watched = host.tasks.promise()
    host.start(
        watch_upstream(  # pyright: ignore[reportArgumentType] - it never ends
            host,
            Peer("upstream", "1"),
            lambda: Address("127.0.0.1", 9092),
            on_up=up,
            on_down=lambda: said.append("down"),
            watched=watched,
        )
    )
    host.run_due()
    assert said == ["up"]
    host.advance(PROBE_MS * 2)
    assert said == ["up"], "two connections could not be tried"
    host.advance(PROBE_MS)
    assert said == ["up", "down"]
