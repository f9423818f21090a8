"""Metrics under Kafka's names (C10). Owns: the register of metrics, request times, and the text format.

The other rooms keep their numbers as plain attributes. A reading of the metrics collects them; between two readings
they cost nothing.
"""

from .broker_metrics import broker_metrics
from .register import Metric, Metrics, Sample
from .request_times import RequestTimes

__all__ = ["Metric", "Metrics", "RequestTimes", "Sample", "broker_metrics"]
