"""Repair of a replay whose history has late rows: which results are kept, and which are computed again.

A repair sorts late rows into the history, and continues from the newest stored state that is older than all late rows.
Outputs and states after this state are invalid, and are computed again.  The result is that of one replay over the
whole history.  The manifest of the inputs lists the repairs, and that of each slice has the number of repairs before
it.  So a repair takes effect atomically, when the manifest of the inputs is written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from streams.core.records import NO_TIMESTAMP, TopicPartition
from streams.replay.calls.state import ReplayState
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, ExtentReader
from streams.replay.times import time_text


@frozen
class Repair:
    """The extent of a repair: the results that are kept, and the results that are computed again.

    Times are epoch milliseconds.  ``kept_to_ms`` is the time of the newest record whose results are kept, -1 if all
    results are computed again.  ``because`` is the reason why a later state could not be used, or "".
    """

    #: The time of the oldest late row.
    late_from_ms: int
    kept_to_ms: int
    #: Number of slices that are kept, and of slices that became void.
    slices_kept: int
    slices_void: int
    because: str = ""

    def __str__(self) -> str:
        if self.slices_kept:
            text = f"repaired: all after {time_text(self.kept_to_ms)} is computed again"
        else:
            text = "repaired: the whole history is computed again"
        text += f", since the oldest late row is of {time_text(self.late_from_ms)}"
        return f"{text} ({self.because})" if self.because else text

    def to_json(self) -> dict[str, Any]:
        """Return the repair as JSON-compatible values, with times as ISO 8601 text."""
        return {
            "late_from": time_text(self.late_from_ms),
            "kept_to": time_text(self.kept_to_ms) if self.kept_to_ms >= 0 else None,
            "slices_kept": self.slices_kept,
            "slices_void": self.slices_void,
            "because": self.because,
        }


def is_valid(number: int, manifest: Mapping[str, Any], repairs: Sequence[int]) -> bool:
    """Return whether a slice is still valid after ``repairs``, which has the number of slices that each repair kept.

    >>> is_valid(3, {"repairs": 0}, []), is_valid(3, {"repairs": 0}, [3]), is_valid(3, {"repairs": 1}, [3])
    (True, False, True)
    """
    return all(number < kept for kept in repairs[manifest["repairs"] :])


def processed_up_to_ms(state: ReplayState, sources: Mapping[TopicPartition, Sequence[Extent]], root: Place) -> int:
    """Return the time of the newest source record that is included in a state, or -1 if there is none.

    Raises:
        ReplayError: a file is missing or damaged.
    """
    reader = ExtentReader(root)
    highest_ms = NO_TIMESTAMP
    try:
        for positions in state.positions.values():
            for partition, position in positions.items():
                for extent in sources.get(partition, ()):
                    if extent.last < position:
                        highest_ms = max(highest_ms, extent.highest_ms)
                    elif extent.first < position:
                        times = zip(*reader.timestamps(extent), strict=True)
                        highest_ms = max(highest_ms, *(time_ms for offset, time_ms in times if offset < position))
    finally:
        reader.close()
    return highest_ms
