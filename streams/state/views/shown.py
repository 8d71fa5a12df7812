"""What queries see of a store whose values are states of a summary: the results."""

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

#: Reads that return a single value; all others but counts return pairs with a value.
_SINGLE = frozenset({"get", "get_as_of", "fetch_session"})


def queried(store: Any) -> Any:
    """Return the object of a store that queries read: its view, or what that shows of its values."""
    return store.view if store.spec.show is None else ShownView(store.view, store.spec.show)


@frozen
class ShownView:
    """The read methods of a view, with each value as ``show`` returns it; the timestamps stay."""

    _view: Any
    _show: Callable[[Any], Any]

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._view, verb)
        if verb == "approximate_num_entries" or not callable(method):
            return method
        if verb == "history":
            return lambda *arguments: [self._shown(version) for version in method(*arguments)]
        return self._single(method) if verb in _SINGLE else self._pairs(method)

    def fetch(self, key: Any, *start_ms: int) -> Any:
        """Return the value of a window, or the sessions of a key."""
        answer = self._view.fetch(key, *start_ms)
        return self._shown(answer) if start_ms else ((session, self._shown(value)) for session, value in answer)

    def _single(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: self._shown(method(*arguments))

    def _pairs(self, method: Callable[..., Any]) -> Callable[..., Iterator[tuple[Any, Any]]]:
        return lambda *arguments: ((key, self._shown(value)) for key, value in method(*arguments))

    def _shown(self, value: Any) -> Any:
        if value is None:
            return None
        if hasattr(value, "timestamp_ms"):
            return value._replace(value=self._show(value.value))
        return self._show(value)
