"""Conversion of settings such as "earliest" or "read_committed" to protocol values.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping
from typing import Final

from streams.core.client_settings import ConsumerSettings
from streams.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED

_ISOLATION_LEVELS: Final[Mapping[str, int]] = {
    "read_uncommitted": READ_UNCOMMITTED,
    "read_committed": READ_COMMITTED,
}
_RESET_POLICIES: Final[Mapping[str, int | None]] = {
    "earliest": EARLIEST_TIMESTAMP,
    "latest": LATEST_TIMESTAMP,
    "none": None,
}
_REQUIRED_ACKS: Final[Mapping[str, int]] = {"all": -1, "1": 1, "0": 0}


def isolation_level_of(settings: ConsumerSettings) -> int:
    """Return the number that the protocol uses for the isolation level."""
    return _ISOLATION_LEVELS[settings.isolation_level]


def reset_policy_of(settings: ConsumerSettings) -> int | None:
    """Return the timestamp to look up if no offset is committed, or None if that is an error."""
    return _RESET_POLICIES[settings.auto_offset_reset]


def required_acks_of(acks: str) -> int:
    """Return how many replicas must acknowledge a record, or -1 for all in-sync replicas."""
    return _REQUIRED_ACKS[acks]
