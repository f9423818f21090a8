"""What goes wrong.

    RetryQueueError
    ├── UnavailableError   Kafka or the store does not respond: the program begins again from what was committed
    └── TooLargeError      a topic of the retry queue takes no record of this size: an operator must change it
PoisonError                a handler says that an input will never succeed
"""

from __future__ import annotations


class RetryQueueError(Exception):
    """The root."""


class UnavailableError(RetryQueueError):
    """What was not confirmed may have happened all the same."""


class TooLargeError(RetryQueueError):
    """Nothing of it is lost: its offset is not committed."""


class PoisonError(Exception):
    """The input is a dead letter at once: a further attempt would fail, too."""
