"""Types and functions that every package uses; imports none of them.

Modules: records, serdes, topic, windows, timestamps, partitioning, clock, config, metrics, errors.
"""

from streams.core.clock import Clock, SystemClock, VirtualClock
from streams.core.config import StreamsConfig
from streams.core.metrics import Metrics
from streams.core.records import Block, Headers, Record, TaskId, TopicPartition, Window, Windowed
from streams.core.serdes import PinnedSerde, Serde, serde_for, session_windowed, time_windowed
from streams.core.topic import Sink, Topic
from streams.core.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = [
    "Block",
    "Clock",
    "Headers",
    "JoinWindows",
    "Metrics",
    "PinnedSerde",
    "Record",
    "Serde",
    "SessionWindows",
    "Sink",
    "SlidingWindows",
    "StreamsConfig",
    "SystemClock",
    "TaskId",
    "TimeWindows",
    "Topic",
    "TopicPartition",
    "UnlimitedWindows",
    "VirtualClock",
    "Window",
    "Windowed",
    "serde_for",
    "session_windowed",
    "time_windowed",
]
