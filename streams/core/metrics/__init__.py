"""Metrics of an instance, with the names, groups and tags of Kafka Streams.

``table`` declares the metrics, ``sensors`` has the classes that record them, and ``registry`` has all sensors of an
instance and the current values that are read when metrics are collected.
"""

from streams.core.metrics.declared import MetricSpec as MetricSpec
from streams.core.metrics.declared import RecordingLevel as RecordingLevel
from streams.core.metrics.declared import Scope as Scope
from streams.core.metrics.declared import SensorSpec as SensorSpec
from streams.core.metrics.declared import Stat as Stat
from streams.core.metrics.declared import telemetry_name as telemetry_name
from streams.core.metrics.drops import Dropped as Dropped
from streams.core.metrics.drops import Misplaced as Misplaced
from streams.core.metrics.drops import Tally as Tally
from streams.core.metrics.drops import dropped as dropped
from streams.core.metrics.drops import dropped_by_node as dropped_by_node
from streams.core.metrics.drops import late_bound as late_bound
from streams.core.metrics.drops import misplaced as misplaced
from streams.core.metrics.failures import Failure as Failure
from streams.core.metrics.failures import LastFailures as LastFailures
from streams.core.metrics.reasons import INTENDED_REASONS as INTENDED_REASONS
from streams.core.metrics.reasons import LATE_REASONS as LATE_REASONS
from streams.core.metrics.reasons import USUAL_LIMIT as USUAL_LIMIT
from streams.core.metrics.reasons import DropReason as DropReason
from streams.core.metrics.registry import Metric as Metric
from streams.core.metrics.registry import MetricPlace as MetricPlace
from streams.core.metrics.registry import Metrics as Metrics
from streams.core.metrics.registry import Reading as Reading
from streams.core.metrics.sensors import Amounts as Amounts
from streams.core.metrics.sensors import Counter as Counter
from streams.core.metrics.sensors import Stopwatch as Stopwatch
from streams.core.metrics.sizes import bytes_in as bytes_in
from streams.core.metrics.sizes import sample as sample
from streams.core.metrics.table import SENSORS as SENSORS
