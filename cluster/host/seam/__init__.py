"""The seam: everything that broker code may ask of the machine it runs on.

Broker code (every room except `host/`, `network/` and the supervisor) uses these protocols and nothing else: no
asyncio, no threads, no sockets, no files, no `time`. Therefore the same code runs on the real host
(`host/real/host.py`), under faults (the real host with rules set over the control socket), and on simulated machines
with a virtual clock (`host/simulated/`).

    clock         monotonic and wall time
    tasks         timers, coroutines, promises, blocking calls on threads
    buffers       bytes in memory and regions of files
    disk          files, mapped files, locks
    network       links that carry frames, acceptors, peers
    raw_links     links that carry any bytes, for relays
    tls           keys and rules of TLS on links
    observation   trace, tap
    failpoints    named places where faults may act
    host          all of these in one object
"""

from .buffers import Buffer, FileRegion, Part, bytes_of
from .clock import Clock
from .disk import Disk, DiskFile, Lock, MappedFile
from .failpoints import Failpoints
from .host import Control, Host, ProcessHost
from .network import (
    CLOSED_BY_PEER,
    HOLD_RESPONSE,
    LOSE_RESPONSE,
    Acceptor,
    AccessFaults,
    FactsReader,
    FrameHandler,
    Link,
    Network,
    Peer,
    RequestBody,
    RequestFacts,
    RequestFault,
    ResponseFault,
)
from .observation import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    CONNECTION_CLOSED,
    CONNECTION_OPENED,
    END_UNKNOWN,
    GROUP_STATES,
    OFFSET_COMMITTED,
    OFFSET_READ,
    OFFSET_SENT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    REQUEST_HIT,
    REQUEST_LOST,
    REQUEST_UNANSWERED,
    SHARE_ACCEPTED,
    SHARE_ACQUIRED,
    SHARE_ARCHIVED,
    SHARE_COPIED,
    SHARE_EXPIRED,
    SHARE_LOADED,
    SHARE_REJECTED,
    SHARE_RELEASED,
    SHARE_RENEWED,
    TRANSACTION_ONGOING,
    UNKNOWN_COMMITTER,
    Committer,
    NoTap,
    SharedRecords,
    Tap,
    TappedGroup,
    TappedRequest,
    Trace,
    Watermarks,
)
from .raw_links import MakeRawHandler, RawHandler, RawLink, RawNetwork
from .tasks import Promise, T, Task, Tasks, Timer
from .tls import TLS_VERSIONS, TlsOptions

__all__ = [
    "CLOSED_BY_PEER",
    "COMPLETE_ABORT",
    "COMPLETE_COMMIT",
    "CONNECTION_CLOSED",
    "CONNECTION_OPENED",
    "END_UNKNOWN",
    "GROUP_STATES",
    "HOLD_RESPONSE",
    "LOSE_RESPONSE",
    "OFFSET_COMMITTED",
    "OFFSET_READ",
    "OFFSET_SENT",
    "PREPARE_ABORT",
    "PREPARE_COMMIT",
    "REQUEST_HIT",
    "REQUEST_LOST",
    "REQUEST_UNANSWERED",
    "SHARE_ACCEPTED",
    "SHARE_ACQUIRED",
    "SHARE_ARCHIVED",
    "SHARE_COPIED",
    "SHARE_EXPIRED",
    "SHARE_LOADED",
    "SHARE_REJECTED",
    "SHARE_RELEASED",
    "SHARE_RENEWED",
    "TLS_VERSIONS",
    "TRANSACTION_ONGOING",
    "UNKNOWN_COMMITTER",
    "Acceptor",
    "AccessFaults",
    "Buffer",
    "Clock",
    "Committer",
    "Control",
    "Disk",
    "DiskFile",
    "FactsReader",
    "Failpoints",
    "FileRegion",
    "FrameHandler",
    "Host",
    "Link",
    "Lock",
    "MakeRawHandler",
    "MappedFile",
    "Network",
    "NoTap",
    "Part",
    "Peer",
    "ProcessHost",
    "Promise",
    "RawHandler",
    "RawLink",
    "RawNetwork",
    "RequestBody",
    "RequestFacts",
    "RequestFault",
    "ResponseFault",
    "SharedRecords",
    "T",
    "Tap",
    "TappedGroup",
    "TappedRequest",
    "Task",
    "Tasks",
    "Timer",
    "TlsOptions",
    "Trace",
    "Watermarks",
    "bytes_of",
]
