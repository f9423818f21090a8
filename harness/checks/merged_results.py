"""The results of all jobs of a verdict as one: counts, anomalies, traffic and facts, with those of the promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .facts import Fact
from .fault_windows import Traffic
from .promise_findings import PromiseFindings
from .rows import AnomalyRow, PartitionResult


@dataclass(slots=True, kw_only=True)
class MergedResults:
    """What the kernels found in all partitions."""

    counts: Counter[str] = field(default_factory=Counter[str])
    """Operations, records and batches by what they are."""
    anomaly_counts: Counter[str] = field(default_factory=Counter[str])
    """Records by kind of anomaly."""
    anomalies: list[AnomalyRow] = field(default_factory=list[AnomalyRow])
    """The first anomalies of each kind and partition."""
    traffic: Traffic = field(default_factory=Traffic)
    facts: list[Fact] = field(default_factory=list[Fact])

    def add(self, result: PartitionResult) -> None:
        """Add what the kernels found in one partition."""
        self.counts.update(result.operation_counts)
        self.anomaly_counts.update(result.anomaly_counts)
        self.anomalies += result.anomalies
        if result.traffic is not None:
            self.traffic.add(result.traffic)
        self.facts += result.evidence

    def add_promises(self, promised: PromiseFindings) -> None:
        """Add what the checks of promises found, in place of the anomalies that they judge better."""
        for name in promised.replaces:
            self.anomaly_counts.pop(name, None)
        self.anomalies = [row for row in self.anomalies if row.name not in promised.replaces]
        self.counts.update(promised.operation_counts)
        self.anomaly_counts.update(promised.anomaly_counts)
        self.anomalies += promised.anomalies


def merged(
    results: Sequence[PartitionResult], claims: Sequence[AnomalyRow], promised: PromiseFindings
) -> MergedResults:
    """Merge the results of all jobs, the leadership claims of the traces, and what the checks of promises found."""
    whole = MergedResults(anomalies=list(claims), anomaly_counts=Counter(row.name for row in claims))
    for result in results:
        whole.add(result)
    places = Counter((result.topic, result.partition) for result in results if result.topic)
    assert all(count == 1 for count in places.values()), f"judged twice: {places.most_common(1)}"
    uncounted = {row.name for row in whole.anomalies} - whole.anomaly_counts.keys()
    assert not uncounted, f"{sorted(uncounted)} are shown and not counted: {dict(whole.anomaly_counts)}"
    whole.add_promises(promised)
    return whole
