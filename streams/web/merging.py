"""Merges the status of several instances: counts and rates are summed, rows are concatenated."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from streams.web.samples import HISTORY, KEPT_SAMPLES, SAMPLE_MS

Document: TypeAlias = dict[str, Any]
#: Instance states by precedence: the state of the group is the first one that any instance has.
_STATES = ("ERROR", "PENDING_ERROR", "REBALANCING", "PENDING_SHUTDOWN", "CREATED", "RUNNING", "NOT_RUNNING")
_FAILURES = 50


def merged(documents: Sequence[Document]) -> Document:
    """Return the merged status; the first document is that of the instance that serves the request.

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
    return first | {
        "scope": "group",
        "state": next(state for state in _STATES if state in states),
        "is_paused": all(document["is_paused"] for document in documents),
        "nodes": _added_rows(document["nodes"] for document in same),
        "edges": [_added(rates) for rates in zip(*(document["edges"] for document in same), strict=True)],
        "drops": _drops(document["drops"] for document in documents),
        "subs": _subs([document["subs"] for document in same]),
        "tasks": first["tasks"] | {"rows": sorted(tasks, key=lambda row: [int(part) for part in row[0].split("_")])},
        "threads": first["threads"] | {"rows": threads},
        "restoring": [row for document in documents for row in document["restoring"]],
        "totals": {name: round(sum(document["totals"][name] for document in documents), 1) for name in first["totals"]},
        "failures": failures[:_FAILURES],
        "drop_examples": [[*place, text] for place, text in examples.items()],
        "history": first["history"] | {"rows": _history([document["history"]["rows"] for document in documents])},
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


def _drops(parts: Iterable[Mapping[str, Iterable[tuple[str, int]]]]) -> dict[str, list[tuple[str, int]]]:
    counts: dict[str, dict[str, int]] = {}
    for part in parts:
        for node, reasons in part.items():
            for reason, count in reasons:
                of_node = counts.setdefault(node, {})
                of_node[reason] = of_node.get(reason, 0) + count
    return {node: sorted(reasons.items()) for node, reasons in counts.items()}


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


def _history(parts: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """Return the samples of all instances, combined per interval of five seconds."""
    by_time: dict[int, list[Sequence[float]]] = {}
    for rows in parts:
        for row in rows:
            by_time.setdefault(int(row[0]) // SAMPLE_MS, []).append(row)
    times = sorted(by_time)[-KEPT_SAMPLES:]
    # Some instances may not have sampled the last interval yet.
    if len(times) > 1 and len(by_time[times[-1]]) < len(by_time[times[-2]]):
        times.pop()
    ways = list(HISTORY.values())
    return [
        [_combined(way, column) for way, column in zip(ways, zip(*by_time[at], strict=True), strict=True)]
        for at in times
    ]


def _combined(how: str, values: Sequence[float]) -> float:
    if how == "max":
        return max(values)
    return round(sum(values) / (len(values) if how == "mean" else 1), 3)
