"""The report of ``streams diff``, for a terminal, as text and as JSON."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from streams.cli.terminal import table, text
from streams.comparison import (
    LAST,
    ONLY_NEW,
    ONLY_OLD,
    ORDER,
    RETYPED,
    TIMES,
    UPDATES,
    Comparison,
    EntryDifference,
    Finding,
    KeyDifference,
    Level,
    Side,
    StoreComparison,
    StoreFate,
    TakeOver,
    TopicComparison,
)
from streams.core.blocks.records import Record
from streams.core.event_time.time_texts import time_text
from streams.core.serdes.display import key_text, plain_text, value_text

#: Maximum line width of sentences.
_WIDTH = 110
#: Texts for each kind of difference: for one key, and for several keys.
_KEYS = {
    LAST: ("key ends with another value", "keys end with another value"),
    ONLY_OLD: ("key is in OLD only", "keys are in OLD only"),
    ONLY_NEW: ("key is in NEW only", "keys are in NEW only"),
    UPDATES: ("key has other updates before the same last value", "keys have other updates before the same last value"),
    TIMES: ("key has the same values at other times", "keys have the same values at other times"),
    ORDER: ("key has the same updates in another order", "keys have the same updates in another order"),
    RETYPED: ("key has the same values, written as another type", "keys have the same values, written as another type"),
}
_ENTRIES = {
    LAST: ("entry has another value", "entries have another value"),
    ONLY_OLD: ("entry is in OLD only", "entries are in OLD only"),
    ONLY_NEW: ("entry is in NEW only", "entries are in NEW only"),
    TIMES: ("entry has the same value of another time", "entries have the same value of another time"),
    RETYPED: (
        "entry has the same value, written as another type",
        "entries have the same value, written as another type",
    ),
}
_LEVELS = {Level.CANNOT: "cannot", Level.BUT: "but", Level.NOTE: "note"}


@frozen
class Title:
    """The title of the report: the application, the compared versions, and whether only state is compared."""

    application_id: str
    old: str
    new: str
    only_state: bool


def as_view(comparison: Comparison, title: Title, width: int) -> Iterator[Any]:
    """Yield the report as parts for a terminal: first what differs in a line each, then examples in tables."""
    yield text(f"{title.application_id}: OLD {title.old}, NEW {title.new}", "bold")
    if not title.only_state:
        differing = ", ".join(_differing(comparison))
        yield text(f"Differing: {differing}" if differing else "No output and no store differs", "bold")
    yield text(f"Taking over: {comparison.take_over.verdict}", "bold")
    if not title.only_state:
        yield from differing_view(comparison, width)
    yield ""
    yield text("Taking over", "bold")
    yield from (text(line) for line in _taking_over(comparison.take_over, width - 1))


def _differing(comparison: Comparison) -> Iterator[str]:
    for topic in comparison.topics:
        if topic.keys_in_all and topic.keys:
            yield f"{sum(topic.keys.values()):,} of {topic.keys_in_all:,} keys of {topic.name}"
        elif not topic.is_same:
            yield f"the {'order' if topic.is_order_only else 'records'} of {topic.name}"
    for store in comparison.stores:
        if not store.is_same:
            yield f"store {_store_name(store)}"


def differing_view(comparison: Comparison, width: int) -> Iterator[Any]:
    """Yield what differs in outputs and stores as parts for a terminal."""
    same = [topic.name for topic in comparison.topics if topic.is_same]
    same += [f"store {_store_name(store)}" for store in comparison.stores if store.is_same]
    for topic in comparison.topics:
        if not topic.is_same:
            rows = [_key_cells(example) for example in topic.examples]
            yield from _part(_topic_lines(topic), rows, sum(topic.keys.values()), width)
    for store in comparison.stores:
        if not store.is_same:
            rows = [_entry_cells(example) for example in store.examples]
            head, *others = _store_lines(store)
            yield from _part([f"store {head}", *others], rows, sum(store.entries.values()), width)
    if same:
        yield ""
        yield text(f"The same: {', '.join(same)}", "green")


def _part(lines: Iterable[str], rows: Sequence[Sequence[str]], count: int, width: int) -> Iterator[Any]:
    from rich.padding import Padding

    head, *others = lines
    yield ""
    yield text(head, "bold yellow")
    yield from (text(f"  {line}") for line in others)
    if rows:
        heads = "key,OLD,NEW" if width < _WIDTH else "key,OLD,NEW,first differs at"
        yield Padding(table(heads, rows, width, styles=("", "red", "green", "dim")), (0, 0, 0, 4))
    yield from (text(line) for line in _left_out(count, len(rows)))


def _key_cells(example: KeyDifference) -> tuple[str, ...]:
    sides = (example.old, example.new)
    values = example.last if example.kind == LAST else [side and side.value for side in sides]
    first = min(side.timestamp_ms for side in sides if side is not None)
    return example.key, *map(_cell, values), time_text(first)


def _entry_cells(example: EntryDifference) -> tuple[str, ...]:
    first = min((time for time in example.times if time is not None), default=None)
    return example.key, _cell(example.old), _cell(example.new), "" if first is None else time_text(first)


def _cell(value: Any) -> str:
    return "–" if value is None else plain_text(value)


def as_text(comparison: Comparison, title: Title) -> str:
    """Return the report as text: outputs, stores, and whether the new version can take over the state."""
    lines = [f"{title.application_id}: OLD {title.old}, NEW {title.new}"]
    if not title.only_state:
        lines += ["", "OUTPUTS", *_topics(comparison), "", "STORES", *_stores(comparison)]
    return "\n".join(
        [*lines, "", "TAKING OVER", f"  {comparison.take_over.verdict}", *_taking_over(comparison.take_over)]
    )


def changes_text(comparison: Comparison) -> str:
    """Return the outputs and stores that differ as text, which is empty if none does."""
    topics = tuple(topic for topic in comparison.topics if not topic.is_same)
    stores = tuple(store for store in comparison.stores if not store.is_same)
    differing = attrs.evolve(comparison, topics=topics, stores=stores)
    outputs = ["OUTPUTS", *_topics(differing)] if topics else []
    return "\n".join([*outputs, *(["STORES", *_stores(differing)] if stores else [])])


def record_line(record: Record[Any, Any]) -> str:
    """Return a record as one line: its key, if it has one, its time and its value."""
    key = "" if record.key is None else f"{key_text(record.key)}: "
    return f"{key}{value_text(record.value)} at {time_text(record.timestamp_ms)}"


# --- outputs ------------------------------------------------------------------------------


def _topics(comparison: Comparison) -> Iterator[str]:
    if not comparison.topics:
        yield "  none"
    for topic in comparison.topics:
        yield from _indented(_topic_lines(topic))
        for example in topic.examples:
            yield from _key_lines(example)
        yield from _left_out(sum(topic.keys.values()), len(topic.examples))


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{'    ' if number else '  '}{line}" for number, line in enumerate(lines))


def _topic_lines(topic: TopicComparison) -> Iterator[str]:
    yield f"{topic.name}: {_counted(topic.counts, 'record', is_same=topic.is_same)}"
    yield from topic.notes
    if topic.is_order_only:
        yield "the same records of every key; only the order across keys differs"
    for kind, count in topic.keys.items():
        yield _worded(kind, count, topic)


def _worded(kind: str, count: int, topic: TopicComparison) -> str:
    if not topic.keys_in_all:
        return f"{count:,} {'record is' if count == 1 else 'records are'} {kind}"
    one, many = _KEYS[kind]
    of = f" (of {topic.keys_in_all:,})" if kind is next(iter(topic.keys)) else ""
    return f"{count:,} {one if count == 1 else many}{of}"


def _counted(counts: tuple[int | None, int | None], what: str, *, is_same: bool) -> str:
    old, new = counts
    many = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    if old is None or new is None:
        number, where = (new or 0, "NEW") if old is None else (old, "OLD")
        return f"in {where} only, {number:,} {what if number == 1 else many}"
    if old != new:
        return f"{old:,} {many} in OLD, {new:,} in NEW"
    return f"{old:,} {what if old == 1 else many}{', the same' if is_same else ' in both'}"


def _key_lines(example: KeyDifference) -> Iterator[str]:
    yield f"    {example.key}: {example.kind}"
    yield f"      OLD {_side(example.old, example.counts[0])}"
    yield f"      NEW {_side(example.new, example.counts[1])}"
    if example.kind == LAST and max(example.counts) > 1:
        yield f"      last: {value_text(example.last[0])} -> {value_text(example.last[1])}"


def _side(side: Side | None, count: int) -> str:
    if side is None:
        return "no record" if not count else f"no more records after {count:,}"
    return f"record {side.partition}-{side.number} {time_text(side.timestamp_ms)}: {value_text(side.value)}"


def _left_out(count: int, shown: int) -> Iterator[str]:
    if count > shown:
        yield f"    {'and ' if shown else ''}{count - shown:,} more; --limit shows more of them"


# --- stores -------------------------------------------------------------------------------


def _stores(comparison: Comparison) -> Iterator[str]:
    if not comparison.stores:
        yield "  none"
    for store in comparison.stores:
        yield from _indented(_store_lines(store))
        for example in store.examples:
            yield f"    {example.key}: {_entry(example)}"
        yield from _left_out(sum(store.entries.values()), len(store.examples))


def _store_lines(store: StoreComparison) -> Iterator[str]:
    yield f"{_store_name(store)}: {_counted(store.counts, 'entry', is_same=store.is_same)}"
    yield from store.notes
    for kind, count in store.entries.items():
        one, many = _ENTRIES[kind]
        yield f"{count:,} {one if count == 1 else many}"


def _store_name(store: StoreComparison) -> str:
    if store.old is not None and store.new is not None and store.old != store.new:
        return f"{store.old} -> {store.new}"
    return store.new or store.old or ""


def _entry(example: EntryDifference) -> str:
    if example.kind == ONLY_OLD:
        return f"{value_text(example.old)} in OLD only"
    if example.kind == ONLY_NEW:
        return f"{value_text(example.new)} in NEW only"
    if example.kind == TIMES:
        times = " -> ".join("" if time is None else time_text(time) for time in example.times)
        return f"{value_text(example.old)}, time {times}"
    return f"{value_text(example.old)} -> {value_text(example.new)}"


# --- takeover -----------------------------------------------------------------------------


def _taking_over(take_over: TakeOver, width: int = _WIDTH) -> Iterator[str]:
    fates: dict[str, list[str]] = {}
    for fate in take_over.stores:
        fates.setdefault(fate.fate, []).append(_fate_name(fate))
    for fate_name, names in fates.items():
        yield from _wrapped(f"{fate_name}: {', '.join(names)}", width, "  ", "      ")
    for finding in take_over.findings:
        yield from _finding_lines(finding, width)


def _fate_name(fate: StoreFate) -> str:
    if fate.old is not None and fate.new is not None and fate.old != fate.new:
        return f"{fate.new} (in OLD {fate.old})"
    return fate.new or fate.old or ""


def _finding_lines(finding: Finding, width: int) -> Iterator[str]:
    yield from _wrapped(f"{_LEVELS[finding.level]}: {finding.subject}: {finding.says}", width, "  ", "      ")
    if finding.do:
        yield from _wrapped(f"-> {finding.do}", width, "    ", "       ")


def _wrapped(sentence: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        sentence, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


# --- JSON ---------------------------------------------------------------------------------


def as_json(comparison: Comparison, title: Title) -> str:
    """Return the report as a JSON document; times are epoch milliseconds."""
    take_over = comparison.take_over
    document: dict[str, Any] = {
        "application_id": title.application_id,
        "old": title.old,
        "new": title.new,
        "same": comparison.is_same if not title.only_state else None,
        "take_over": {
            "verdict": take_over.verdict,
            "level": "ok" if take_over.level is None else _LEVELS[take_over.level],
            "stores": [attrs.asdict(fate) for fate in take_over.stores],
            "findings": [
                {"level": _LEVELS[item.level], "subject": item.subject, "says": item.says, "do": item.do or None}
                for item in take_over.findings
            ],
        },
    }
    if not title.only_state:
        document["topics"] = [_topic_json(topic) for topic in comparison.topics]
        document["stores"] = [_store_json(store) for store in comparison.stores]
    return json.dumps(document, indent=2, ensure_ascii=False)


def _topic_json(topic: TopicComparison) -> Mapping[str, Any]:
    return {
        "topic": topic.name,
        "same": topic.is_same,
        "records": {"old": topic.counts[0], "new": topic.counts[1]},
        "keys": topic.keys_in_all,
        "differences": dict(topic.keys),
        "order_only": topic.is_order_only,
        "notes": list(topic.notes),
        "examples": [
            {
                "key": example.key,
                "kind": example.kind,
                "old": None if example.old is None else attrs.asdict(example.old),
                "new": None if example.new is None else attrs.asdict(example.new),
                "last": {"old": example.last[0], "new": example.last[1]},
                "records": {"old": example.counts[0], "new": example.counts[1]},
            }
            for example in topic.examples
        ],
    }


def _store_json(store: StoreComparison) -> Mapping[str, Any]:
    return {
        "old": store.old,
        "new": store.new,
        "same": store.is_same,
        "entries": {"old": store.counts[0], "new": store.counts[1]},
        "differences": dict(store.entries),
        "notes": list(store.notes),
        "examples": [
            {
                "key": example.key,
                "kind": example.kind,
                "old": example.old,
                "new": example.new,
                "times": {"old": example.times[0], "new": example.times[1]},
            }
            for example in store.examples
        ],
    }
