"""Errors of the registry, each with the path that it is about.

    RegistryError (cluster/errors.py)
    └── NodeError                   the tree refused one operation; `path`, and its `index` in a multi
        ├── NoNodeError             no such node, or no parent to create below
        ├── NodeExistsError         create of a node that is there
        ├── BadVersionError         a conditional operation lost the race
        ├── NotEmptyError           delete of a node that has children
        └── BadRequestError         a child below an ephemeral node, a malformed path
    ├── SessionExpiredError         the server has ended this session; a new one begins by itself
    └── RegistryUnavailableError    not connected; `maybe_applied`: the operation may have taken effect

Names and meaning are ZooKeeper's KeeperException codes.
"""

from __future__ import annotations

from typing import ClassVar

from ..errors import RegistryError


class NodeError(RegistryError):
    """The tree refused one operation."""

    code: ClassVar[str] = "node"
    what: ClassVar[str] = "refused"

    def __init__(self, path: str, index: int = -1) -> None:
        where = path if index < 0 else f"{path} (operation {index} of a multi)"
        super().__init__(f"{where}: {self.what}")
        self.path = path
        self.index = index


class NoNodeError(NodeError):
    """No such node, or no parent to create below."""

    code = "no-node"
    what = "no such node"


class NodeExistsError(NodeError):
    """The node to create is there."""

    code = "node-exists"
    what = "the node exists"


class BadVersionError(NodeError):
    """The node's version is not the expected one: another client wrote it."""

    code = "bad-version"
    what = "its version is not the expected one"


class NotEmptyError(NodeError):
    """The node to delete has children."""

    code = "not-empty"
    what = "the node has children"


class BadRequestError(NodeError):
    """A child below an ephemeral node, or a malformed path."""

    code = "bad-request"
    what = "a malformed path, or a child below an ephemeral node"


class SessionExpiredError(RegistryError):
    """The server has ended this session: ephemeral nodes and watches are gone."""

    code = "session-expired"

    def __init__(self, message: str = "the registry has ended this session") -> None:
        super().__init__(message)


class RegistryUnavailableError(RegistryError):
    """Not connected. `maybe_applied`: the operation was in flight and may have taken effect."""

    code = "unavailable"

    def __init__(self, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


NODE_ERRORS: dict[str, type[NodeError]] = {
    kind.code: kind for kind in (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, BadRequestError)
}
"""By the code in a response."""
