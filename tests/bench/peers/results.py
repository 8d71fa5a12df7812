"""The lines of a comparison's runs: kept in a file, read again, and shown as a table.

A line is what a system has said of a run, with query, system and round.  A run that broke off is gone on with:
what is in the file is not run again.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.bench.figures import Table

#: CPU seconds per million input records that are aimed at on a quiet machine.
_ABSOLUTE = {
    "Q0": 4.5,
    "Q1": 4.5,
    "Q2": 2.3,
    "W1": 5.0,
    "W1-cached": 3.6,
    "W2": 14.0,
    "S1": 11.0,
    "J1": 11.0,
    "J2": 5.0,
}
#: CPU of ours against others': the most that is aimed at, by query.
_FUSED = 1.15
_KSTREAMS = {"Q2": 2 / 3, "W1-cached": 1.0}
_KSTREAMS_ELSE = 0.5
_QUIX = {"W1": 0.1, "W2": 0.1, "S1": 0.1, "J1": 0.1, "J2": 0.1}
#: Their hand-fused programs lose results: their cost says little of what the query costs.
_LOSSY = ("S1", "J1")

#: How systems are called in tables.
NAMES = {
    "ours": "streams",
    "kstreams": "Kafka Streams, warm half",
    "fused": "hand-fused",
    "native": "hand-fused, own sockets",
    "quix": "Quix",
    "bytewax": "Bytewax",
}


@define
class Results:
    """The runs of one comparison."""

    path: Path
    lines: list[dict[str, Any]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.lines = []
        if self.path.exists():
            self.lines = [json.loads(line) for line in self.path.read_text().splitlines()]

    def has(self, query: str, system: str, number: int) -> bool:
        return any((line["query"], line["system"], line["round"]) == (query, system, number) for line in self.of("run"))

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Lines of a kind: run, check or latency."""
        return [line for line in self.lines if line["kind"] == kind]

    def values(self, query: str, system: str, name: str) -> list[float]:
        return [
            line[name] for line in self.of("run") if (line["query"], line["system"]) == (query, system) and name in line
        ]

    def cpu(self, query: str, system: str) -> list[float]:
        """CPU seconds per million input records: Kafka Streams' warm half, of others all until the commit."""
        return self.values(query, system, "cpu_warm" if system == "kstreams" else "cpu")

    def ratio(self, query: str, system: str) -> float | None:
        """The median of ours over that of another system."""
        ours, theirs = self.cpu(query, "ours"), self.cpu(query, system)
        return statistics.median(ours) / statistics.median(theirs) if ours and theirs else None

    def queries(self) -> list[str]:
        found = {line["query"] for line in self.of("run")}
        return [query for query in _ABSOLUTE if query in found]


def normal(line: dict[str, Any], records: int) -> dict[str, Any]:
    """Return a system's line with its figures per input record of the query, whatever it has divided by."""
    # Some count the records of one input only, the windows of others are cut to a multiple of four.
    share = line["n"] / records
    figures = {"cpu": line["cpu_per_m_committed"] * share, "rate": line["rate_committed"] / share}
    if "cpu_per_m_2nd_half" in line:
        figures |= {"cpu_warm": line["cpu_per_m_2nd_half"] * share, "rate_warm": line["rate_2nd_half"] / share}
    return {**line, **{name: round(value, 3) for name, value in figures.items()}}


def _cell(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "-"
    middle = statistics.median(values)
    text = f"{middle:.{digits}f}"
    return text if len(values) == 1 else f"{text} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def _thousands(values: Sequence[float]) -> str:
    return f"{statistics.median(values) / 1000:,.0f} k" if values else "-"


def cost_tables(results: Results, conditions: str) -> list[Table]:
    """CPU seconds per million input records, median and range; records/s in a second table."""
    systems = [name for name in NAMES if any(line["system"] == name for line in results.of("run"))]
    names = [NAMES[name] for name in systems]
    costs = Table("peers-cpu", ["query", "goal", *names], conditions)
    rates = Table("peers-rate", ["query", *names], conditions)
    for query in results.queries():
        costs.rows.append([query, f"{_ABSOLUTE[query]:.1f}", *(_cell(results.cpu(query, name)) for name in systems)])
        found = [results.values(query, name, "rate_warm" if name == "kstreams" else "rate") for name in systems]
        rates.rows.append([query, *map(_thousands, found)])
    return [costs, rates]


def goals(query: str) -> list[tuple[str, float]]:
    """Systems against which a query has a goal, and the most that ours may cost of theirs."""
    fused = "native" if query == "W1" else "fused"
    found = [(fused, _FUSED), ("kstreams", _KSTREAMS.get(query, _KSTREAMS_ELSE))]
    return [*found, *([("quix", _QUIX[query])] if query in _QUIX else [])]


def ratio_table(results: Results, conditions: str) -> Table:
    """CPU of ours over that of others, with the goal; misses are marked."""
    table = Table("peers-ratio", ["query", "of hand-fused", "of Kafka Streams, warm half", "of Quix"], conditions)
    for query in results.queries():
        aims = dict(goals(query))
        cells = [query]
        for systems in (("fused", "native"), ("kstreams",), ("quix",)):
            system = next((name for name in systems if name in aims), systems[0])
            ratio = results.ratio(query, system)
            if ratio is None:
                cells.append("-")
                continue
            goal = aims.get(system)
            star = " *" if system == "fused" and query in _LOSSY else ""
            verdict = "" if goal is None else f" (goal {goal:.2f}{', missed' if ratio > goal else ''})"
            cells.append(f"{ratio:.2f}{verdict}{star}")
        table.rows.append(cells)
    return table


def check_table(results: Results, conditions: str) -> Table:
    """Outputs compared with those of Kafka Streams."""
    table = Table("peers-checks", ["query", "compared", "records of streams", "of Kafka Streams", "result"], conditions)
    for line in results.of("check"):
        verdict = "equal" if not line["difference"] else "**different**"
        table.rows.append([line["query"], line["what"], f"{line['ours']:,}", f"{line['theirs']:,}", verdict])
    return table


def latency_table(results: Results, conditions: str) -> Table:
    """Milliseconds from produce to consume."""
    table = Table("peers-latency", ["what", "system", "p50 ms", "p90 ms", "p99 ms", "runs"], conditions)
    lines = results.of("latency")
    for what, system in dict.fromkeys((line["what"], line["system"]) for line in lines):
        mine = [line for line in lines if (line["what"], line["system"]) == (what, system)]
        cells = [_cell([line[name] for line in mine]) for name in ("p50", "p90", "p99")]
        table.rows.append([what, system, *cells, str(len(mine))])
    return table


def tables(results: Results, conditions: str) -> list[Table]:
    """Every table that has a row."""
    found = [
        *cost_tables(results, conditions),
        ratio_table(results, conditions),
        check_table(results, conditions),
        latency_table(results, conditions),
    ]
    return [table for table in found if table.rows]
