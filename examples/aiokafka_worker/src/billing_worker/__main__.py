"""`python -m billing_worker`: works until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal

from billing_worker.worker import work


async def main() -> None:
    """Work for the brokers of KAFKA_BOOTSTRAP_SERVERS."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await work(os.environ["KAFKA_BOOTSTRAP_SERVERS"], stop)


asyncio.run(main())
