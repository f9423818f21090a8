"""Whether a log can be used: open, closed, or offline after an I/O error.

After the first I/O error `failed` is set: the log refuses every append and read until the broker restarts
(KAFKA-10778), and the log's data folder is reported as offline.
What may fail: KafkaError(kafka_storage_error) for a call on a log that cannot be used; StorageError for the call that
met the I/O error.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator

from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Host, Tasks
from ..ids import TopicPartition


class LogAvailability:
    """The state of one log; `Log` adds the records."""

    def __init__(self, host: Host, folder: str, topic_partition: TopicPartition) -> None:
        self._host = host
        self.folder = folder
        self.topic_partition = topic_partition
        self.closed = False
        """True after the log was closed, or while it is deleted."""
        self.failed: StorageError | None = None
        """The first I/O error; None while the log is not offline."""
        self._on_failure: Callable[[StorageError], None] | None = None

    def check_usable(self) -> None:
        """KafkaError(kafka_storage_error) when the log is closed or offline."""
        if self.failed is not None or self.closed:
            why = str(self.failed) if self.failed else "the log is closed"
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.topic_partition}: {why}")

    @contextlib.contextmanager
    def refusals(self, action: str, *, beside: bool = False) -> Generator[None]:
        """Around disk calls: an OSError takes the log offline and is raised as StorageError.

        `beside`: the calls run on a thread beside the loop, which may have closed or renamed a file under them; such an
        error is raised as KafkaError and the log stays available.
        """
        try:
            yield
        except OSError as error:
            if beside and file_was_closed_under_thread(error):
                raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
            raise self.fail(action, error) from error

    def fail(self, action: str, error: Exception) -> StorageError:
        """Take the log offline after an I/O error (of the log or of its cleaner); returns the error to raise."""
        failure = StorageError(
            f"could not {action} {self.folder}: {error}; its log is offline until the broker restarts"
        )
        if self.failed is None:
            self.fence(failure)
        return failure

    def fence(self, failure: StorageError) -> None:
        """Refuse every call from now on, and report the data folder. Any thread."""
        self.failed = failure
        self._host.trace.log("error", str(failure), partition=str(self.topic_partition))
        if self._on_failure is not None:
            self._on_failure(failure)

    @property
    def tasks(self) -> Tasks:
        """The tasks of this broker's host."""
        return self._host.tasks


def file_was_closed_under_thread(error: Exception) -> bool:
    """True for an error of a call on a thread whose file the loop has closed or renamed: not an error of the disk."""
    return not isinstance(error, OSError) or error.errno in (errno.EBADF, errno.ENOENT)
