"""``emit(early_every=...)``: a windowed table that has early results, and the final result of each window.

The module imports only ``core`` and ``state`` from outside ``dsl``.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from streams.core.errors import TopologyError
from streams.dsl.building.windowing import Windowing
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import to_ms
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import EARLY_RESULT, EarlyEvery, EarlyResults, SuppressedValues, buffer_spec
from streams.dsl.ref import TableRef
from streams.dsl.table_state import DerivedState
from streams.state import StoreSpec

_PREFIX = "KTABLE-EARLY-"


def early_every(every: Any, owner: object) -> EarlyEvery:
    """Return the interval of early results: a ``timedelta`` of stream time, or a number of records.

    Raises:
        TopologyError: the interval is not a ``timedelta`` or a number, or is less than 1 ms or 1 record.
    """
    what = f"early_every= of emit of {owner!r}"
    if isinstance(every, timedelta):
        interval = EarlyEvery(ms=to_ms(every, what))
    elif isinstance(every, int) and not isinstance(every, bool):
        interval = EarlyEvery(records=every)
    else:
        raise TopologyError(f"{what} must be a timedelta or a number of records, not {every!r}")
    if (interval.ms or interval.records or 0) < 1:
        raise TopologyError(f"{what} must be at least 1 ms or 1 record, not {every!r}")
    return interval


def with_early_results(table: TableRef, windowing: Windowing, name: str | None) -> TableRef:
    """Return the table of early and final results, given the table of all updates; ``name`` is the aggregation's."""
    names = table.graph.names
    every = windowing.early
    assert every is not None, "the aggregation has early results"
    full_name = names.suffixed(name, "-early", _PREFIX)
    store = names.store(_PREFIX) if name is None else f"{name}-early-store"
    key = table.key
    value = table.value
    has_changelog = all(spec.has_changelog for spec in table.state.specs())
    numbers = windowing.numbers(table.state.store or "")
    state = DerivedState(
        (table.state,), None, lambda parent: SuppressedValues(parent, store, key.resolve()), is_held=True
    )

    def operator() -> EarlyResults:
        serdes = (key.resolve(), value.resolve())
        behind_ms = windowing.final_behind_ms
        return EarlyResults(store, *serdes, every, windowing.closes(), behind_ms, numbers, windowing.has_merges)

    def specs() -> Iterable[StoreSpec]:
        return (buffer_spec(store, EARLY_RESULT, key.resolve(), value.resolve(), has_changelog=has_changelog),)

    content = LogicalOperator(operator, specs, None if numbers is None else lambda: (numbers,))
    node = LogicalNode(full_name, content, is_output_versioned=False)
    return table.derived(node, key, value, state)
