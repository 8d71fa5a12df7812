"""Writes ``conformance.md`` from the results of the last ``make outside-test``: ``python docs/conformance.py``."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("conformance.md")
RESULTS = Path(__file__).with_name("conformance.json")

HEAD = """\
# Suites of others

What nobody of this project wrote, and what it says of `streams broker` and the runtime. Anyone can run it:

```sh
make outside-test                   # all suites
make outside-test SUITES="kgo ksql"  # some
```

Each suite is fetched from its registry as it was published, and nothing in it is changed. A test that fails is listed
with its reason in `tests/outside/expected`; one that is not listed and fails, or is listed and passes, ends the command
with status 1. This page is made from the last run of each suite (`docs/conformance.json`); what it says of the two
suites of Kafka Streams' integration tests is put together from runs of their classes, one by one.
"""
#: So many names are shown as they are, more of them folded.
FEW = 5


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _row(name: str, entry: Mapping[str, Any]) -> str:
    if "unavailable" in entry:
        counts = ["", "", "", f"all: {_cell(entry['unavailable'])}"]
    else:
        counts = [f"{entry['passed']:,}", *(f"{len(entry[part]):,}" for part in ("failed", "expected", "left_out"))]
    minutes = "under a minute" if entry["seconds"] < 60 else f"{entry['seconds'] / 60:.0f} min"
    needs = ", ".join(f"`{program}`" for program in entry["needs"])
    cells = [f"[{entry['title']}](#{name})", entry["version"], *counts, minutes, needs, entry["date"]]
    return f"| {' | '.join(cells)} |"


def _sums(entries: Collection[Mapping[str, Any]]) -> str:
    """Return how many tests there are, how long they take, and the programs that they need."""
    has_run = [entry for entry in entries if "unavailable" not in entry]
    passed = sum(entry["passed"] for entry in has_run)
    listed, others = (sum(len(entry[part]) for entry in has_run) for part in ("expected", "failed"))
    minutes = round(sum(entry["seconds"] for entry in entries) / 60)
    *programs, last = (f"`{program}`" for program in sorted({name for entry in entries for name in entry["needs"]}))
    return (
        f"All together {passed:,} tests passed, {listed:,} failed as listed and {others:,} otherwise, in"
        f" {minutes // 60} h {minutes % 60} min on two cores. They need {', '.join(programs)} and {last} on the PATH,"
        " and access to the registries; a suite that lacks something is left out, with what it lacks."
    )


def _by_reason(tests: Mapping[str, str]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for test, why in tests.items():
        groups[why].append(f"`{test}`")
    lines = ["| reason | tests | |", "|---|---|---|"]
    for why, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(_cell(name) for name in names)
        if len(names) > FEW:
            shown = f"<details><summary>show</summary>{shown}</details>"
        lines.append(f"| {_cell(why)} | {len(names)} | {shown} |")
    return lines


def page() -> str:
    """Return the page of the recorded results."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [HEAD]
    lines += ["| suite | version | passed | failed | failed as listed | left out | time | needs | last run |"]
    lines += ["|---|---|---|---|---|---|---|---|---|", *(_row(*item) for item in results.items())]
    lines += ["", _sums(results.values())]
    for name, entry in results.items():
        lines += [
            "",
            f"## {entry['title']} {{ #{name} }}",
            "",
            f"`make outside-test SUITES={name}`: {entry['origin']}.",
        ]
        for part, title in (("failed", "Failed"), ("expected", "Failed as listed"), ("left_out", "Left out")):
            if tests := entry.get(part):
                lines += ["", f"### {title}", "", *_by_reason(tests)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
