"""A view of a store that measures each call (KIP-444), for the recording level ``debug``."""

from collections.abc import Callable, Mapping
from typing import Any

from streams.core.metrics import Stopwatch

#: The methods of all views, by the names of their metrics.
_METHODS: Mapping[str, tuple[str, ...]] = {
    "put": ("put", "put_pair", "put_at", "append"),
    "put-if-absent": ("put_if_absent",),
    "put-all": ("put_all",),
    "get": ("get", "get_pair", "take_pair", "undeleted_pair", "get_as_of"),
    "fetch": (
        *(
            "fetch",
            "fetch_pair",
            "fetch_range",
            "rows_in_range",
            "last_in",
            "first_in",
            "pairs_in_range",
            "fetch_keys",
            "fetch_session",
        ),
        *("find_sessions", "sessions_of", "sessions_between", "windows_between"),
    ),
    "all": ("all",),
    "range": ("range",),
    "prefix-scan": ("prefix_scan",),
    "delete": ("delete",),
    "remove": ("remove", "remove_at"),
}
#: Calls of a method that are counted but not timed, after each one that is.
_UNTIMED = 15
_CALL_OF = {method: call for call, methods in _METHODS.items() for method in methods}


class MeasuredStore:
    """A view that measures each call to a store and passes everything else on unchanged.

    ``stopwatch_of`` returns the stopwatch for a call, given the name of its metrics. All calls are counted; the first
    and then every 16th call of a method is timed, because timing costs more than most calls. Entries are not updated in
    place, so that each read and write is a call. For an iterator, only the call that creates it is measured.
    """

    def __init__(self, view: Any, stopwatch_of: Callable[[str], Stopwatch]) -> None:
        self._view = view
        self._stopwatch_of = stopwatch_of

    def __getattr__(self, method: str) -> Any:
        operation = getattr(self._view, method)
        if method not in _CALL_OF:
            return operation
        stopwatch = self._stopwatch_of(_CALL_OF[method])
        untimed = stopwatch.amounts.untimed
        left = 0

        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            if left:
                left -= 1
                untimed.value += 1
                return operation(*arguments, **named)
            left = _UNTIMED
            with stopwatch:
                return operation(*arguments, **named)

        return called

    def in_place(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return ``find`` and ``replace`` functions that never find an entry, so that no entry is updated in place."""
        return _nothing, _nothing


def _nothing(*_: Any) -> None:
    """Do nothing, and return None."""
