"""Settings of clients that are words, and which of them fit each other.  Imports core and protocol."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from streams.core.errors import ConfigError
from streams.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]

_ISOLATION_LEVELS: Final[Mapping[str, int]] = {
    "read_uncommitted": READ_UNCOMMITTED,
    "read_committed": READ_COMMITTED,
}
_RESET_POLICIES: Final[Mapping[str, int | None]] = {
    "earliest": EARLIEST_TIMESTAMP,
    "latest": LATEST_TIMESTAMP,
    "none": None,
}

# With more requests of a partition under way a broker could not tell a repeated one (KIP-98).
_MAX_IDEMPOTENT_IN_FLIGHT: Final = 5


def isolation_level_of(name: str) -> int:
    """Return an isolation level as requests have it.

    Raises:
        ConfigError: there is no such level.
    """
    if name not in _ISOLATION_LEVELS:
        raise ConfigError(f"isolation_level={name!r}: choose 'read_uncommitted' or 'read_committed'")
    return _ISOLATION_LEVELS[name]


def reset_policy_of(name: str) -> int | None:
    """Return where to begin without a committed offset, None = nowhere.

    Raises:
        ConfigError: there is no such policy.
    """
    if name not in _RESET_POLICIES:
        raise ConfigError(f"auto_offset_reset={name!r}: choose 'earliest', 'latest' or 'none'")
    return _RESET_POLICIES[name]


def check_consumer(
    group_id: str | None, heartbeat_interval_ms: int, session_timeout_ms: int, max_poll_records: int, max_fetch: int
) -> None:
    """Refuse what does not fit.

    Raises:
        ConfigError: it does not.
    """
    if group_id is not None and heartbeat_interval_ms >= session_timeout_ms:
        raise ConfigError(
            f"heartbeat_interval_ms={heartbeat_interval_ms} must be below session_timeout_ms={session_timeout_ms}; "
            "a third of it is usual"
        )
    if max_poll_records < 1 or max_fetch < 1:
        raise ConfigError("max_poll_records and fetch_max_records must be at least 1")


def is_idempotent(wanted: bool | None, transactional_id: str | None, acks: int, max_in_flight: int) -> bool:
    """Return whether a producer is idempotent; None = where the rest allows it.

    Raises:
        ConfigError: it is asked for, and the rest does not allow it.
    """
    fits = acks == -1 and max_in_flight <= _MAX_IDEMPOTENT_IN_FLIGHT
    is_asked = wanted is True or transactional_id is not None
    if transactional_id is not None and wanted is False:
        raise ConfigError(f"transactional_id={transactional_id!r} needs an idempotent producer: leave idempotence on")
    if is_asked and not fits:
        raise ConfigError(
            f"an idempotent or transactional producer needs acks=-1 and max_in_flight up to "
            f"{_MAX_IDEMPOTENT_IN_FLIGHT}, not acks={acks} and max_in_flight={max_in_flight}"
        )
    return is_asked or (wanted is None and fits)
