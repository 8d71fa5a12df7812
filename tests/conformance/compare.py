"""Comparison of what a case gave with what Kafka Streams gave.

Returns the first difference as one line, or None.  Pure.
"""

import json
from typing import Any

from tests.conformance.play import Observed
from tests.conformance.values import same

_SHOWN = 300


def shown(value: Any) -> str:
    """Return a value as short JSON on one line."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True, default=repr)
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."


def difference(case: dict[str, Any], observed: Observed) -> str | None:
    """Return the first difference, None if there is none."""
    expected = case["expected"]
    error = expected.get("error")
    phase, step = (error["phase"], error["step"]) if error else (None, None)
    if (phase, step) != (observed.phase, observed.step):
        given = f"{_ending(observed.phase, observed.step)} {observed.message}"
        return f"expected {_ending(phase, step)}, got {given}".rstrip()
    if phase == "build":
        return None
    found = _outputs(case, observed, step)
    if found is None and phase is None:
        found = _stores(case, observed) or dropped_difference(expected, observed)
    return found or _description(expected, observed)


def _ending(phase: str | None, step: int | None) -> str:
    if phase is None:
        return "no error"
    return f"an error in {phase}" if step is None else f"an error in step {step}"


def _outputs(case: dict[str, Any], observed: Observed, before: int | None) -> str | None:
    expected = case["expected"].get("outputs", {})
    names = sorted({*expected, *observed.outputs})
    for name in names:
        wanted, given = (
            [entry for entry in outputs.get(name, []) if before is None or entry["step"] < before]
            for outputs in (expected, observed.outputs)
        )
        for position in range(max(len(wanted), len(given))):
            one = wanted[position] if position < len(wanted) else None
            two = given[position] if position < len(given) else None
            if not _same_entry(name, one, two):
                return f"{name}[{position}]: expected {shown(one)}, got {shown(two)}"
    return None


def _same_entry(name: str, wanted: Any, given: Any) -> bool:
    if wanted is None or given is None:
        return False
    if name.startswith("store:") and wanted["step"] == given["step"]:
        return same_entries(wanted["entries"], given["entries"])
    return same(wanted, given)


def same_entries(wanted: list[Any], given: list[Any]) -> bool:
    """Compare as multisets; the lists of versions are in the order of the queries anyway."""
    left = list(given)
    for entry in wanted:
        position = next((place for place, other in enumerate(left) if same(entry, other)), None)
        if position is None:
            return False
        del left[position]
    return not left


def _stores(case: dict[str, Any], observed: Observed) -> str | None:
    expected = case["expected"].get("stores", {})
    for name, wanted in expected.items():
        given = observed.stores.get(name)
        if given is None or not same_entries(wanted, given):
            return f"store {name}: expected {shown(wanted)}, got {shown(given)}"
    return None


def dropped_difference(expected: dict[str, Any], observed: Observed) -> str | None:
    if "dropped" in expected and expected["dropped"] != observed.dropped:
        return f"dropped: expected {expected['dropped']}, got {observed.dropped}"
    return None


def _description(expected: dict[str, Any], observed: Observed) -> str | None:
    if expected.get("describe") is None:
        return None
    wanted, given = expected["describe"], observed.describe or {}
    subs, others = wanted["subtopologies"], given.get("subtopologies", [])
    if len(subs) != len(others):
        return f"describe: expected {len(subs)} sub-topologies, got {len(others)}"
    for sub, other in zip(subs, others, strict=True):
        if found := _nodes(sub, other):
            return f"describe, sub-topology {sub['id']}: {found}"
    stores = given.get("global_stores")
    if not same(wanted["global_stores"], stores):
        return f"describe, global stores: expected {shown(wanted['global_stores'])}, got {shown(stores)}"
    return None


def _nodes(wanted: dict[str, Any], given: dict[str, Any]) -> str | None:
    if wanted["id"] != given["id"]:
        return f"its id is {given['id']}"
    names, others = [node["name"] for node in wanted["nodes"]], [node["name"] for node in given["nodes"]]
    if names != others:
        missing, extra = sorted(set(names) - set(others)), sorted(set(others) - set(names))
        return f"nodes missing {shown(missing)}, not expected {shown(extra)}"
    for node, other in zip(wanted["nodes"], given["nodes"], strict=True):
        if not same(node, other):
            return f"expected {shown(node)}, got {shown(other)}"
    return None
