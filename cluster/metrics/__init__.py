"""Metrics as Kafka names them (C10). Owns: the register of what can be read, request times, the text form.

Rooms keep plain numbers where they are; everything here is read when somebody asks, and costs nothing before.
"""

from .broker_metrics import broker_metrics
from .register import Metric, Metrics, Sample
from .request_times import RequestTimes

__all__ = ["Metric", "Metrics", "RequestTimes", "Sample", "broker_metrics"]
