"""Conversion of settings such as "earliest" or "read_committed" to protocol values.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Mapping
from typing import Final

from streams.core.errors import ConfigError
from streams.core.settings.client_settings import ConsumerSettings
from streams.core.settings.offset_reset import EARLIEST, LATEST, duration_ms
from streams.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED

#: Longest text that all requests of a group can carry, in bytes of UTF-8.
_GROUP_ID_BYTES: Final = 32_767

_ISOLATION_LEVELS: Final[Mapping[str, int]] = {
    "read_uncommitted": READ_UNCOMMITTED,
    "read_committed": READ_COMMITTED,
}
_RESET_POLICIES: Final[Mapping[str, int]] = {EARLIEST: EARLIEST_TIMESTAMP, LATEST: LATEST_TIMESTAMP}
_REQUIRED_ACKS: Final[Mapping[str, int]] = {"all": -1, "1": 1, "0": 0}


def isolation_level_of(settings: ConsumerSettings) -> int:
    """Return the number that the protocol uses for the isolation level."""
    return _ISOLATION_LEVELS[settings.isolation_level]


def reset_timestamp(policy: str, now_ms: int) -> int | None:
    """Return the timestamp that a reset policy looks up at the time ``now_ms``, or None if a reset is an error."""
    back_ms = duration_ms(policy)
    return _RESET_POLICIES.get(policy) if back_ms is None else max(0, now_ms - back_ms)


def required_acks_of(acks: str) -> int:
    """Return how many replicas must acknowledge a record, or -1 for all in-sync replicas."""
    return _REQUIRED_ACKS[acks]


def check_group_id(group_id: object) -> None:
    """Check the ID of a consumer group.

    Raises:
        ConfigError: it is no text, empty, or too long.
    """
    if not isinstance(group_id, str) or not 0 < len(group_id.encode(errors="replace")) <= _GROUP_ID_BYTES:
        raise ConfigError(f"group_id: expected text of 1 to {_GROUP_ID_BYTES:,} bytes, not {group_id!r:.100}")
