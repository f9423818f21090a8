"""What the containers of one cluster have in common: their image, their labels, and the guard that removes them."""

from __future__ import annotations

import contextlib

from .daemon import CLUSTER, OWNER, check_image, connect, labels, require_image, sweep
from .guard import Guard


class ClusterContainers:
    """The containers of one cluster of `image`."""

    def __init__(self, image: str) -> None:
        mine = labels()
        self.image = image
        self.labels = {**mine, CLUSTER: f"{mine[OWNER]}.{id(self)}"}
        self._guard: Guard | None = None

    def begin(self) -> None:
        """Start the guard; CapabilityError without a daemon, or without an image that can be started."""
        with contextlib.closing(connect()) as client:
            sweep(client)
            require_image(client, self.image)
            check_image(client, self.image)
        self._guard = Guard(f"{CLUSTER}={self.labels[CLUSTER]}")

    def end(self) -> None:
        """Let the guard remove what is left."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()
