"""Metrics of an instance, with the names, groups and tags of Kafka Streams.

``table`` declares the metrics, ``sensors`` has the classes that record them, and ``registry`` has all sensors of an
instance and the current values that are read when metrics are collected.
"""

from streams.core.metrics.declared import MetricSpec, RecordingLevel, Scope, SensorSpec, Stat
from streams.core.metrics.drops import Dropped, Tally, dropped, dropped_by_node
from streams.core.metrics.failures import Failure, LastFailures
from streams.core.metrics.registry import Metric, MetricPlace, Metrics, Reading
from streams.core.metrics.sensors import Amounts, Counter, Stopwatch
from streams.core.metrics.table import SENSORS

__all__ = [
    "Amounts",
    "Counter",
    "Dropped",
    "Failure",
    "LastFailures",
    "RecordingLevel",
    "Metric",
    "MetricSpec",
    "Metrics",
    "MetricPlace",
    "Reading",
    "SENSORS",
    "Scope",
    "SensorSpec",
    "Stat",
    "Tally",
    "Stopwatch",
    "dropped",
    "dropped_by_node",
]
