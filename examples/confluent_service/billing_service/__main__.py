"""`python -m billing_service`: bills orders until SIGTERM."""

from __future__ import annotations

import os
import signal
from threading import Event

from .service import BillingService

stop = Event()


def end(*_: object) -> None:
    stop.set()


signal.signal(signal.SIGTERM, end)
session_ms = int(os.environ.get("BILLING_SESSION_TIMEOUT_MS", "45000"))
settings = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": session_ms // 5}
BillingService(os.environ["KAFKA_BOOTSTRAP_SERVERS"], **settings).run(stop)
