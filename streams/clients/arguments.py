"""Checks of the partitions, offsets and times that a program gives to a client.

Of the other packages, this module imports only ``core``.
"""

import operator
from collections.abc import Iterable, Mapping
from typing import SupportsIndex

from streams.core.arguments import checked_time
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError


def checked_partitions(partitions: object, what: str) -> list[TopicPartition]:
    """Return the partitions that a program has given to the method ``what``.

    Raises:
        ConfigError: they are no TopicPartitions.
    """
    # A TopicPartition is a tuple, so it can be iterated over itself.
    if isinstance(partitions, Iterable) and not isinstance(partitions, str | TopicPartition):
        partitions = list(partitions)
        if all(isinstance(partition, TopicPartition) for partition in partitions):
            return partitions
    raise ConfigError(f"{what} needs partitions, as in [TopicPartition('orders', 0)], got {partitions!r:.100}")


def checked_offset(offset: object, what: str) -> int:
    """Return an offset that a program has given; ``what`` names its use.

    Raises:
        ConfigError: it is negative or no int.
    """
    if isinstance(offset, bool) or not isinstance(offset, SupportsIndex):
        raise ConfigError(f"{what} to {offset!r} of type {type(offset).__qualname__}: an offset is an int")
    number = operator.index(offset)
    if number < 0:
        raise ConfigError(f"{what} to {number}: offsets are not negative")
    return number


def checked_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the times in epoch milliseconds for which a program looks up offsets.

    Raises:
        ConfigError: a key is no TopicPartition, or a time is negative or no int.
    """
    # In requests, negative numbers are the ends of the log.
    return {
        partition: checked_time(time_ms, f"time for an offset of {partition}", ConfigError)
        for partition, time_ms in zip(checked_partitions(times, "offsets_for_times()"), times.values(), strict=True)
    }
