"""The time at which results are forwarded: ``Suppressed`` for tables, ``EmitStrategy`` for windowed aggregations.

The module is pure: it defines only the types of these arguments.
"""

from datetime import timedelta
from enum import Enum

from attrs import frozen

from streams.core.arguments import check_flag
from streams.core.errors import TopologyError
from streams.dsl.materialized import to_ms


class EmitStrategy(Enum):
    """Determines when a windowed aggregation forwards its results (KIP-825)."""

    #: Forward a result each time a window changes.
    ON_WINDOW_UPDATE = "update"
    #: Forward one result per window, when stream time has passed the window end and grace period.
    ON_WINDOW_CLOSE = "close"


@frozen
class Suppressed:
    """Determines how long the changes of a table are buffered before they are forwarded (KIP-328).

    Use ``until_window_closes`` or ``until_time_limit`` to create an instance.
    """

    #: Time limit in milliseconds, or None to buffer until the window closes.
    time_limit_ms: int | None
    max_records: int | None = None
    max_bytes: int | None = None
    shuts_down_when_full: bool = False
    has_changelog: bool = True

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None, logging: bool = True
    ) -> "Suppressed":
        """Forward one final result per window, when the window closes; a full buffer stops the application.

        >>> Suppressed.until_window_closes().shuts_down_when_full
        True
        """
        return cls(
            None,
            _limit(max_records, "max_records"),
            _limit(max_bytes, "max_bytes"),
            True,
            check_flag(logging, "logging= of Suppressed"),
        )

    @classmethod
    def until_time_limit(
        cls,
        time_limit: timedelta,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        shut_down_when_full: bool = False,
        logging: bool = True,
    ) -> "Suppressed":
        """Forward the last change of a key when stream time has passed its first buffered change by ``time_limit``.

        A full buffer forwards its oldest changes early; with ``shut_down_when_full``, it stops the application.

        >>> Suppressed.until_time_limit(timedelta(seconds=1), max_records=10).time_limit_ms
        1000

        Raises:
            TopologyError: a limit is negative, or ``logging`` is not True or False.
        """
        limit_ms = to_ms(time_limit, "time_limit")
        records = _limit(max_records, "max_records")
        size = _limit(max_bytes, "max_bytes")
        return cls(limit_ms, records, size, shut_down_when_full, check_flag(logging, "logging= of Suppressed"))


def _limit(limit: int | None, what: str) -> int | None:
    if limit is not None and limit < 0:
        raise TopologyError(f"{what} must not be negative, but is {limit}")
    return limit
