"""Every error that `harrow` raises on purpose. The tree:

    HarrowError                     root; a message says what was tried, on what, and the remedy
    ├── ConfigError                 a setting or an argument that cannot be used
    ├── ClusterError                a process did not start, stop or answer
    ├── KafkaError                  a protocol error code on its way to a client; never leaves a broker
    │   └── RecordsRefusedError     the same for a batch, with what is wrong with each of its records
    ├── StorageError                a log folder or one of its files cannot be used
    │   ├── CorruptLogError         bytes on disk that cannot be what a broker wrote
    │   └── OpenFilesError          the process may open no more files; what it has open can be used
    ├── WireError                   bytes from the network that are not the protocol; closes one connection
    └── RegistryError               see `harrow.cluster.registry` for its kinds

`faults` and `harness` add theirs below `HarrowError` in their own `errors.py`.

`ErrorCode` is kio's, imported at its first use: a process that only supervises a cluster (a command, a user's test)
does not need kio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import kio_types

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

__all__ = [
    "ClusterError",
    "ConfigError",
    "CorruptLogError",
    "ErrorCode",
    "HarrowError",
    "KafkaError",
    "OpenFilesError",
    "RecordsRefusedError",
    "RegistryError",
    "StorageError",
    "WireError",
    "error_name",
]


def __getattr__(name: str) -> Any:
    if name != "ErrorCode":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kio_types.load()
    from kio.schema.errors import ErrorCode

    globals()[name] = ErrorCode
    return ErrorCode


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, "NOT_ENOUGH_REPLICAS"; "error 999" for an unknown number."""
    kio_types.load()
    from kio.schema.errors import ErrorCode

    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


class HarrowError(Exception):
    """Root of every error that Harrow raises on purpose."""


class ConfigError(HarrowError):
    """A setting or an argument that cannot be used."""


class ClusterError(HarrowError):
    """A process of the cluster did not start, stop or answer."""


class KafkaError(HarrowError):
    """A protocol error code, raised in a handler and answered to the client; never leaves a broker."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class RecordsRefusedError(KafkaError):
    """A batch is refused because of some of its records (KIP-467): `record_errors` has their indexes and faults."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class StorageError(HarrowError):
    """A log folder or one of its files cannot be used; the folder goes offline."""


class CorruptLogError(StorageError):
    """Bytes on disk that cannot be what a broker wrote; names the file and the position."""


class OpenFilesError(StorageError):
    """The process may open no more files: nothing was done, and what it has open can be used."""


class WireError(HarrowError):
    """Bytes from the network that are not the protocol; closes that one connection."""


class IsrMemberChangedError(HarrowError):
    """An ISR was not written: a member is not registered as it was when the leader last had a fetch of it (KIP-903)."""


class RegistryError(HarrowError):
    """The registry refused or could not be reached."""
