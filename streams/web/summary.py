"""How an application or its group is, in a word and a sentence, for the web page and ``streams top``."""

from collections.abc import Iterator, Mapping
from typing import Any

from streams.core.event_time.time_texts import span_text


def summary(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state as people name it, and the parts of the sentence about health."""
    # The group rebalances, but what one waits for is the restore.
    word = "RESTORING" if status["restoring"] and status["state"] == "REBALANCING" else status["state"]
    return {
        "state_text": f"{word}, paused" if status["is_paused"] else word,
        "health": list(_sentence(status)),
    }


def _sentence(status: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield whether it is well, since when, whether it is behind, and what was lost: (kind, words, place on the page).

    The kind is ``bad``, ``warn`` or empty.
    """
    totals = status["totals"]
    instances = status["instances"]
    tasks = status["tasks"]["rows"]
    since = [at_ms for at_ms, _, text in status["events"] if text == status["state"]]
    if since:
        yield "", f"for {span_text((status['now_ms'] - since[-1]) // 1000 * 1000)}", ""
    yield "", f"{_counted(len(instances), 'instance')}, {_counted(len(tasks), 'task')}", ""
    if away := sum(bool(row["error"]) for row in instances):
        yield (
            "bad",
            f"{away:,} of {_counted(len(instances), 'instance')} are left out of all numbers",
            "#group",
        )
    if left := sum(row["remaining"] for row in status["restoring"]):
        yield "warn", f"{_counted(left, 'record')} to restore", ""
    place = status["tasks"]["columns"].index("lag")
    lag = sum(row[place] or 0 for row in tasks)
    if status["state"] != "RUNNING":
        yield "", "how far behind is unknown", ""
    else:
        yield "", f"{_counted(lag, 'record')} behind" if lag else "up to date", ""
    if totals["lost"]:
        yield "bad", f"{_counted(totals['lost'], 'record')} lost", "#problems"
    if totals["dead_letters"]:
        yield "warn", _counted(totals["dead_letters"], "dead letter"), "#letters"


def _counted(number: float, what: str) -> str:
    return f"{number:,.0f} {what}{'' if number == 1 else 's'}"
