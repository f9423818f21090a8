"""Delayed operations: a hierarchical timing wheel and the purgatory on top of it (E1, E2).

Sans-IO but for `PurgatoryTimer`, which asks the host for one call at the next bucket's expiry.
"""

from .purgatory import DelayedOperation as DelayedOperation
from .purgatory import Purgatory as Purgatory
from .timer import PurgatoryTimer as PurgatoryTimer
from .timing_wheel import TimerEntry as TimerEntry
from .timing_wheel import TimingWheel as TimingWheel
