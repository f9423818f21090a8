"""Clients of Harrow's that disturb the user's clients: they cause the faults of `faults/client_faults.py`.

    group_view.py       what the coordinator says of a group: its protocol, subscriptions, members
    classic_member.py   a member of a classic group
    consumer_member.py  a member of a group of KIP-848
    background.py       a client in a thread, as an armed rule of the fault layer
    hijack.py           InitProducerId for the user's transactional id
    share_member.py     a member of a share group that holds records
    group_clients.py    a member that comes and goes, and one that does nothing

A member never leads a classic group: a leader must assign partitions, so that it leaves at once and joins again. All
requests go to the addresses that clients use, so that the brokers may be any. ClusterError when none responds.
"""

from .group_clients import RebalancingClient as RebalancingClient
from .group_clients import StuckMember as StuckMember
from .hijack import HijackingProducer as HijackingProducer
from .share_member import StuckShareMember as StuckShareMember
