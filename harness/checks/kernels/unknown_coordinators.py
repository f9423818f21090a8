"""What is not known because a broker has no tap of its coordinators: a doubt instead of a silent "nothing found".

Transactions are in the log of the partition, and groups in the commits that recorders and the other coordinators have.
Where there are none of either, nothing is missing.
"""

from __future__ import annotations

from ...wording import counted
from .findings import PartitionFindings
from .inputs import PartitionInputs
from .log_transactions import transactional_batches


def without_tap(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Doubts about the checks of transactions and of groups."""
    nodes = inputs.job.untapped
    if not nodes:
        return
    place = f"{findings.topic}-{findings.partition}"
    who = ", ".join(map(str, nodes))
    missing = f"the run folder has no tap of the coordinators of {counted(len(nodes), 'broker')} ({who})"
    batches = transactional_batches(inputs)
    if len(batches):
        text = f"{missing}: whether the transactions in {place} were decided as its log has them is not known"
        findings.doubt("torn-transaction", text)
    if len(batches) and batches["marker"].null_count():
        text = f"{missing}: whether a transaction in {place} is stuck is not known"
        findings.doubt("stuck-transaction", text)
    if len(inputs.commits) or len(inputs.coordinators.offsets) or len(inputs.coordinators.members):
        text = f"{missing}: whether groups that read {place} kept their offsets and owners is not known"
        findings.doubt("committed-offset-regression", text)
