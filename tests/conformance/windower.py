"""The windower of cases of our own: sessions whose gap is the value of the record."""

from collections.abc import Sequence
from datetime import timedelta

from attrs import frozen

from streams import Window, Windower
from tests.conformance.values import milliseconds


def touching_merged(windows: Sequence[Window]) -> list[Window]:
    """Merge windows that overlap or touch."""
    merged: list[Window] = []
    for window in windows:
        if merged and window.start_ms <= merged[-1].end_ms:
            last = merged.pop()
            merged.append(Window(last.start_ms, max(last.end_ms, window.end_ms)))
        else:
            merged.append(window)
    return merged


@frozen
class Gapped(Windower[str, str]):
    """A window from the record's time for as many ms as its value says; ``all`` are the open ones, ``none`` is none."""

    grace_ms: int
    retention_ms: int

    @property
    def retention(self) -> timedelta:
        return milliseconds(self.retention_ms)

    def assign(self, key: str, value: str, timestamp_ms: int, windows: Sequence[Window]) -> Sequence[Window]:
        if value == "all":
            return windows
        return [] if value == "none" else [Window(timestamp_ms, timestamp_ms + int(value))]

    def merge(self, windows: Sequence[Window]) -> list[Window]:
        return touching_merged(windows)

    def close(self, window: Window) -> int:
        return window.end_ms + 1 + self.grace_ms
