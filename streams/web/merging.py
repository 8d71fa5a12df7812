"""Merges the status of several instances: counts and rates are summed, rows are concatenated."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from streams.web.samples import HISTORY, KEPT_SAMPLES, SAMPLE_MS

Document: TypeAlias = dict[str, Any]
#: Instance states by precedence: the state of the group is the first one that any instance has.
_STATES = ("ERROR", "PENDING_ERROR", "REBALANCING", "PENDING_SHUTDOWN", "CREATED", "RUNNING", "NOT_RUNNING")
_FAILURES = 50


def has_fields_of(document: Document, own: Document) -> bool:
    """Return whether a status has the fields and columns of this version of the library, so that it can be merged."""
    return document.keys() == own.keys() and all(
        [*document[name].get("columns", document[name])] == [*own[name].get("columns", own[name])]
        for name in ("tasks", "threads", "history", "totals")
    )


def merged(documents: Sequence[Document], since_ms: int) -> Document:
    """Return the merged status, with the history after ``since_ms``.

    The first document is that of the instance that serves the request.
    Instances that run a different topology contribute rows, but no counts in the graph.
    """
    first = documents[0]
    same = [document for document in documents if document["graph_id"] == first["graph_id"]]
    states = {document["state"] for document in documents}
    threads: list[Any] = []
    tasks: list[Any] = []
    for document in documents:
        tasks += [[row[0], row[1] + len(threads), *row[2:]] for row in document["tasks"]["rows"]]
        threads += document["threads"]["rows"]
    failures = sorted(
        (failure for document in documents for failure in document["failures"]), key=lambda failure: -failure["at_ms"]
    )
    examples = {(node, reason): text for document in documents for node, reason, text in document["drop_examples"]}
    histories = [document["history"]["rows"] for document in documents]
    return first | {
        "scope": "group",
        "state": next(state for state in _STATES if state in states),
        "is_paused": all(document["is_paused"] for document in documents),
        "nodes": _added_rows(document["nodes"] for document in same),
        "edges": [_added(rates) for rates in zip(*(document["edges"] for document in same), strict=True)],
        "drops": _drops(document["drops"] for document in documents),
        "late": _drops(document["late"] for document in documents),
        "subs": _subs([document["subs"] for document in same]),
        "tasks": first["tasks"] | {"rows": sorted(tasks, key=lambda row: [int(part) for part in row[0].split("_")])},
        "threads": first["threads"] | {"rows": threads},
        "restoring": [row for document in documents for row in document["restoring"]],
        "totals": {name: _added(document["totals"][name] for document in documents) for name in first["totals"]},
        "events": sorted(event for document in documents for event in document["events"]),
        "failures": failures[:_FAILURES],
        "drop_examples": [[*place, text] for place, text in examples.items()],
        "history": first["history"] | {"rows": _history(histories, since_ms)},
    }


def _added(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(sum(numbers), 1) if numbers else None


def _added_rows(parts: Iterable[Mapping[str, Sequence[float | None]]]) -> dict[str, list[float | None]]:
    rows: dict[str, list[Sequence[float | None]]] = {}
    for part in parts:
        for name, row in part.items():
            rows.setdefault(name, []).append(row)
    return {name: [_added(column) for column in zip(*of_node, strict=True)] for name, of_node in rows.items()}


def _drops(parts: Iterable[Mapping[str, Mapping[str, Sequence[int]]]]) -> dict[str, dict[str, list[float | None]]]:
    by_node: dict[str, list[Mapping[str, Sequence[int]]]] = {}
    for part in parts:
        for node, reasons in part.items():
            by_node.setdefault(node, []).append(reasons)
    return {node: _added_rows(of_node) for node, of_node in by_node.items()}


def _subs(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for sub in dict.fromkeys(sub for part in parts for sub in part):
        of_sub = [part[sub] for part in parts if sub in part]
        times = [one["ns"] for one in of_sub if one["ns"] is not None]
        result[sub] = {
            "tasks": sum(one["tasks"] for one in of_sub),
            "busy": round(sum(one["busy"] for one in of_sub) / len(parts), 3),
            "ns": sum(times) // len(times) if times else None,
            "waiting": sum(one["waiting"] for one in of_sub),
        }
    return result


def after_interval(since_ms: int) -> int:
    """Return the time after which samples are of later intervals of the merged history than ``since_ms``."""
    return since_ms if since_ms <= 0 else since_ms // SAMPLE_MS * SAMPLE_MS + SAMPLE_MS - 1


def _history(parts: Sequence[Sequence[Sequence[float | None]]], since_ms: int) -> list[list[float | None]]:
    """Return the samples of all instances, combined per interval of five seconds, whose start is the time of a row.

    The last intervals are left out until each instance has sampled them: a part of the group is never shown as all.
    """
    by_part = [_by_interval(rows, since_ms) for rows in parts]
    last = min((max(rows, default=-1) for rows in by_part), default=-1)
    intervals = sorted({interval for rows in by_part for interval in rows if interval <= last})[-KEPT_SAMPLES:]
    ways = list(HISTORY.values())[1:]
    history: list[list[float | None]] = []
    for interval in intervals:
        columns = list(zip(*(rows[interval] for rows in by_part if interval in rows), strict=True))[1:]
        history.append([interval * SAMPLE_MS, *map(_combined, ways, columns)])
    return history


def _by_interval(rows: Sequence[Sequence[float | None]], since_ms: int) -> dict[int, Sequence[float | None]]:
    """Return for each interval the sample that is taken in it or after it: it is of the time before it."""
    result: dict[int, Sequence[float | None]] = {}
    before = since_ms // SAMPLE_MS if since_ms > 0 else -1
    for row in rows:
        interval = int(row[0] or 0) // SAMPLE_MS
        # The first sample of all is of five seconds. A page that slept, or a clock that was set, leaves any gap.
        first = max(before + 1, interval + 1 - KEPT_SAMPLES) if before >= 0 else interval - 1
        result |= dict.fromkeys(range(first, interval + 1), row)
        before = interval
    return result


def _combined(how: str, values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    if how == "max":
        return max(numbers)
    return round(sum(numbers) / (len(numbers) if how == "mean" else 1), 3)
