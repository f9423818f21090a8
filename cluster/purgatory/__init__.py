"""Delayed operations: a hierarchical timing wheel and the purgatory on top of it (E1, E2).

Only `PurgatoryTimer` uses the host: it asks for a call at the expiry of the next bucket. The rest is sans-IO.
"""

from .purgatory import DelayedOperation as DelayedOperation
from .purgatory import Purgatory as Purgatory
from .timer import PurgatoryTimer as PurgatoryTimer
from .timing_wheel import TimerEntry as TimerEntry
from .timing_wheel import TimingWheel as TimingWheel
