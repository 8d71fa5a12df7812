"""Comparison of a run in blocks with what Kafka Streams gave record by record.

What the two must have in common is said by ``flow.agreement``.  Steps mean nothing in blocks;
what is compared is what each topic has in the end.  Pure.
"""

from collections.abc import Iterable
from typing import Any

from tests.conformance.blocks import BlockPlayer, OneBlock, Pace
from tests.conformance.compare import difference, dropped_difference, same_entries, shown
from tests.conformance.flow import Agreement, agreement
from tests.conformance.play import Observed, play
from tests.conformance.values import same

Entry = dict[str, Any]


def has_wall_clock(case: dict[str, Any]) -> bool:
    """Whether the script moves the wall clock, or looks at anything but records and stores."""
    return any("advance_wall_clock_ms" in step for step in case["script"])


def judged(case: dict[str, Any], pace: Pace | None = None) -> tuple[Agreement | None, str | None]:
    """Play a case in blocks; return what it must agree in (None: it is refused when built) and what differs."""
    player = BlockPlayer(case, pace or OneBlock())
    observed = player.play()
    expected = case["expected"]
    if player.flow is None:
        return None, difference(case, observed)
    wanted = agreement(case, player.flow, player.parts)
    error = expected.get("error")
    if bool(error) != (player.error is not None):
        return wanted, f"expected {'an error' if error else 'no error'}, got {player.error or 'none'}"
    if error and observed.message != (message := play(case).message):
        return wanted, f"expected {message}, got {observed.message}"
    return wanted, difference_of(case, observed, wanted, error["step"] if error else None)


def judged_singly(case: dict[str, Any]) -> tuple[int, str | None]:
    """Play a case that blocks would reorder a record at a time; return the widest block within, and what differs.

    A task that is given no more than one record at once by another has nothing to reorder.
    """
    player = BlockPlayer(case, is_single=True)
    observed = player.play()
    if player.widest <= 1:
        return player.widest, difference_of(case, observed, Agreement.EXACT)
    return player.widest, difference_of(case, observed, Agreement.CACHED) or _stores(case, observed)


def difference_of(case: dict[str, Any], observed: Observed, wanted: Agreement, before: int | None = None) -> str | None:
    """Return what differs from a case's answer, of what must not; ``before`` is the step that fails."""
    outputs = case["expected"].get("outputs", {})
    for name in sorted({*outputs, *observed.outputs}):
        if name.startswith("store:"):
            if wanted is Agreement.EXACT and (found := _reads(name, outputs, observed, before)):
                return found
            continue
        given = [_stepless(entry) for entry in observed.outputs.get(name, [])]
        there = [_stepless(entry) for entry in outputs.get(name, []) if before is None or entry["step"] < before]
        found = _compared(name, there, given, wanted, is_prefix=before is not None)
        if found is not None:
            return found
    if before is None and wanted in (Agreement.EXACT, Agreement.INTERLEAVED):
        return _stores(case, observed) or dropped_difference(case["expected"], observed)
    return None


def _reads(name: str, outputs: dict[str, list[Entry]], observed: Observed, before: int | None) -> str | None:
    """Compare what was read from a store on the way; up to a failure, those before it."""
    there = [entry for entry in outputs.get(name, []) if before is None or entry["step"] < before]
    given = observed.outputs.get(name, [])
    if len(there) != len(given):
        return f"{name}: expected {len(there)} reads, got {len(given)}"
    for one, two in zip(there, given, strict=True):
        if not same_entries(one["entries"], two["entries"]):
            return f"{name}: expected {shown(one)}, got {shown(two)}"
    return None


def _stepless(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "step"}


def _compared(name: str, there: list[Entry], given: list[Entry], wanted: Agreement, *, is_prefix: bool) -> str | None:
    if wanted is Agreement.EXACT:
        return _in_order(name, there, given[: len(there)] if is_prefix else given)
    if wanted is Agreement.INTERLEAVED:
        # Each writer keeps its order, so every key has at least the same records.
        return None if is_prefix else _as_many(name, there, given)
    if is_prefix:
        return None
    if wanted is Agreement.CACHED and not name.startswith("peek:"):
        return _in_order(f"last records of {name}", _last(there), _last(given))
    return None


def _in_order(name: str, there: list[Entry], given: list[Entry]) -> str | None:
    for position in range(max(len(there), len(given))):
        one = there[position] if position < len(there) else None
        two = given[position] if position < len(given) else None
        if one is None or two is None or not same(one, two):
            return f"{name}[{position}]: expected {shown(one)}, got {shown(two)}"
    return None


def _as_many(name: str, there: list[Entry], given: list[Entry]) -> str | None:
    left = list(given)
    for entry in there:
        place = next((index for index, other in enumerate(left) if same(entry, other)), None)
        if place is None:
            return f"{name}: {shown(entry)} is missing"
        del left[place]
    return f"{name}: {shown(left[0])} is not expected" if left else None


def _last(entries: Iterable[Entry]) -> list[Entry]:
    """Return key and value of the last record of each key, in the order of the keys."""
    last = {shown(entry["key"]): {"key": entry["key"], "value": entry["value"]} for entry in entries}
    return [last[key] for key in sorted(last)]


def _stores(case: dict[str, Any], observed: Observed) -> str | None:
    for name, wanted in case["expected"].get("stores", {}).items():
        found = _as_many(f"store {name}", [{"row": row} for row in wanted], _rows(observed.stores.get(name)))
        if found is not None:
            return found
    return None


def _rows(rows: Any) -> list[Entry]:
    return [{"row": row} for row in rows or ()]
