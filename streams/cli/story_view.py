"""The story of ``streams why`` on a terminal: a tree with the records as all commands show them."""

import linecache
import os
import re
from pathlib import Path
from typing import Any

from streams.cli.terminal import text
from streams.core.blocks.records import Windowed
from streams.core.event_time.time_texts import time_text
from streams.core.serdes.display import RecordTable
from streams.why import End, Fact, Story

#: The place of a function in a text.
_PLACE = re.compile(r"\(([^()]+):(\d+)\)")


def parts_of(story: Story) -> list[Any]:
    """Return the parts of a story, to be shown one below the other."""
    from rich.tree import Tree

    here = f"{Path.cwd()}{os.sep}"
    parts = [text(story.heading, "bold")]
    for fact in story.outputs:
        parts.append(tree := Tree(_record(fact), guide_style="dim"))
        _add_causes(tree, fact)
    groups: dict[tuple[str, str], list[End]] = {}
    for end in story.ends:
        groups.setdefault((end.node, end.reason), []).append(end)
    if groups:
        of_what = "other records of its window" if story.outputs else "records of the key"
        parts.append(text(f"where {of_what} ended:"))
    for (node, reason), ends in groups.items():
        many = f", {len(ends):,} records" if len(ends) > 1 else ""
        parts.append(tree := Tree(text(f"{node}: {reason}{many}", "bold red"), guide_style="dim"))
        shown = ends[: story.limit]
        is_shared = len({end.text for end in shown}) == 1
        for end in shown:
            branch = tree if end.record is None else tree.add(_record(end.record))
            if end.record is not None:
                _add_causes(branch, end.record)
            if not is_shared:
                branch.add(_reason(end.text, here))
        if len(ends) > len(shown):
            tree.add(text(f"and {len(ends) - len(shown):,} more; --limit shows more of them", "dim"))
        if is_shared:
            tree.add(_reason(shown[0].text, here))
    return [*parts, *(text(f"{note.reason}: {note.text}".replace(here, "")) for note in story.notes)]


def _add_causes(tree: Any, fact: Fact) -> None:
    for cause in fact.causes:
        _add_causes(
            tree.add(text(cause.text) if cause.node is not None or cause.topic is None else _record(cause)), cause
        )
    if fact.more:
        tree.add(text(f"and {fact.more:,} earlier ones; --limit shows more of them", "dim"))


def _record(fact: Fact) -> Any:
    """Return the time, place, key, window and value of a record, as in the tables of ``run`` and ``consume``."""
    if fact.is_counted or fact.timestamp_ms is None:
        return text(fact.text)
    place = "" if fact.topic is None else f"{fact.topic}-{fact.partition} offset {fact.offset}  "
    time = "" if isinstance(fact.key, Windowed) else f"{time_text(fact.timestamp_ms)}  "
    return text(f"{time}{place}", "dim").append_text(
        text(RecordTable(None).lines([(fact.key, fact.value)])[0], "not dim")
    )


def _reason(words: str, here: str) -> Any:
    """Return why a record ended, and below it the line of the lambda that it names, which has no other name."""
    place = _PLACE.search(words)
    line = linecache.getline(place[1], int(place[2])).strip() if place and "<lambda>" in words else ""
    reason = text(words.replace(here, ""))
    return reason.append("\n").append_text(text(line, "cyan")) if line else reason
