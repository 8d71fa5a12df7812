"""``python -m tests.bench.peers [--rounds 3] [--queries ...] [--systems ...] [--latency] [--report]``.

Runs all systems query by query and round by round on one real Kafka broker, compares the outputs of streams with
those of Kafka Streams, and shows what ours costs of what the others cost.  A run that broke off is gone on with;
``--fresh`` begins anew.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from streams import Admin
from tests.bench.figures import add_write_option
from tests.bench.harness import machine
from tests.bench.peers import compare, latency
from tests.bench.peers.lab import PEERS, PROJECT, SCRATCH, Lab, LabError, checked_bids
from tests.bench.peers.results import NAMES, Results, normal, tables
from tests.bench.peers.systems import QUERIES, SYSTEMS, Case, case
from tests.bench.plots import Bars, draw_bars

_TIMEOUT_S = 600
_COMPARED = ("ours", "kstreams")
#: Compared over one partition.
_ALONE = ("S1",)
_LATENCY_RATE, _LATENCY_S = 1000, 15
IMAGE = PROJECT / "docs" / "images" / "peers.svg"


@define
class Comparison:
    """The work of one call: runs, comparisons and latencies, each said to the results as it is done."""

    lab: Lab
    admin: Admin
    results: Results
    bids: int
    failures: list[str] = field(factory=list)
    #: Queries and systems whose output was kept in this call.
    kept: set[tuple[str, str]] = field(factory=set)

    def rounds(self, count: int, queries: Sequence[str], systems: Sequence[str], *, checks: bool) -> None:
        for number in range(1, count + 1):
            for query in queries:
                for system in systems:
                    planned = case(self.lab, query, system, self.bids)
                    if planned is None or self.results.has(query, system, number):
                        continue
                    if self.run(planned, number) and checks and system in _COMPARED and not self.is_checked(query):
                        self.keep(query, system)
                if checks and not self.is_checked(query):
                    self.check(query)

    def run(self, planned: Case, number: int) -> bool:
        """Run a system and note what it says; return whether it has said something."""
        said = self.called(planned)
        if said is None:
            return False
        facts = {"kind": "run", "query": planned.query, "system": planned.system, "round": number, "at": _now()}
        line = {**facts, **normal(said, planned.records)}
        self.results.add(line)
        cost = line["cpu_warm"] if planned.system == "kstreams" else line["cpu"]
        print(f"{number} {planned.query:9} {planned.system:9} {cost:7.2f} CPU s/M {line['rate']:9,.0f}/s", flush=True)
        return True

    def called(self, planned: Case) -> dict[str, Any] | None:
        """Return the line of JSON that a system says at its end; None, and a failure, if it says none."""
        try:
            done = subprocess.run(
                planned.command,
                env=self.lab.environment(planned.variables),
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            self.fail(f"{planned.query} by {planned.system} has not ended after {_TIMEOUT_S} s")
            return None
        for line in reversed(done.stdout.splitlines()):
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        tail = "\n".join(done.stderr.splitlines()[-10:])
        self.fail(f"{planned.query} by {planned.system} ended with status {done.returncode} and said nothing:\n{tail}")
        return None

    def keep(self, query: str, system: str) -> None:
        """Keep what the system that has just run has written, for the comparison."""
        if query not in _ALONE:
            path = self.dumped(query, system)
            path.parent.mkdir(exist_ok=True)
            compare.dump(self.lab.servers, query, path)
            self.kept.add((query, system))

    def dumped(self, query: str, system: str) -> Path:
        return self.lab.scratch / "outputs" / f"{query}-{system}.tsv"

    def is_checked(self, query: str) -> bool:
        return any(line["query"] == query for line in self.results.of("check"))

    def check(self, query: str) -> None:
        """Compare a query's outputs; a system that has not run it just now does so once more."""
        for system in _COMPARED:
            if (query, system) not in self.kept and not self.run_again(query, system):
                return
        ours, theirs = paths = [self.dumped(query, system) for system in _COMPARED]
        found = compare.difference(ours, theirs)
        counts = [_lines(path) for path in paths]
        facts = {"kind": "check", "query": query, "what": compare.extent(query), "at": _now()}
        self.results.add({**facts, "ours": counts[0], "theirs": counts[1], "difference": found})
        verdict = "DIFFERENT" if found else "equal"
        print(f"  {query}: {compare.extent(query)}: {verdict}\n{found}".rstrip(), flush=True)
        for path in paths:
            path.unlink()

    def run_again(self, query: str, system: str) -> bool:
        """Run a query for its output only; return whether there is one.

        Sessions over one partition: behind a repartition topic of several writers it depends on their speed
        what is late.
        """
        is_alone = query in _ALONE
        planned = case(self.lab, query, system, checked_bids(self.bids) if is_alone else self.bids)
        assert planned is not None
        if self.called(evolve(planned, variables={"IN": "one-"} if is_alone else {})) is None:
            return False
        path = self.dumped(query, system)
        path.parent.mkdir(exist_ok=True)
        compare.dump(self.lab.servers, query, path)
        return True

    def latencies(self, count: int) -> None:
        """Measure the latency of each system, in rounds."""
        for number in range(1, count + 1):
            for probe in latency.probes(self.lab):
                done = [(line["what"], line["system"], line["round"]) for line in self.results.of("latency")]
                if (probe.what, probe.system, number) in done:
                    continue
                try:
                    found = latency.measure(self.lab, self.admin, probe, _LATENCY_RATE, _LATENCY_S)
                except RuntimeError as error:
                    self.fail(str(error))
                    continue
                self.results.add({"kind": "latency", "round": number, "at": _now(), **found})
                print(
                    f"{number} {probe.what:14} {probe.system:24} p50 {found['p50']} p99 {found['p99']} ms", flush=True
                )

    def fail(self, what: str) -> None:
        self.failures.append(what)
        print(f"FAILED: {what}", file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def draw(results: Results) -> None:
    """Draw records/s by query and system."""
    queries = results.queries()
    systems = [name for name in NAMES if any(line["system"] == name for line in results.of("run"))]
    series = []
    for name in systems:
        rates = [results.values(query, name, "rate_warm" if name == "kstreams" else "rate") for query in queries]
        series.append(Bars(NAMES[name], rates))
    IMAGE.parent.mkdir(exist_ok=True)
    draw_bars(IMAGE, "Records per second, one process, one real Kafka broker", "records/s", queries, series)


def _chosen(text: str, known: Iterable[str]) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise LabError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def show(results: Results, conditions: str, *, write: bool) -> None:
    """Print every table and draw the plot; with `write` keep the tables for the documentation."""
    for table in tables(results, conditions):
        print()
        table.show()
        if write:
            table.write()
    draw(results)


def work(options: argparse.Namespace) -> int:
    results = Results(options.results)
    conditions = f"{machine()}; {options.bids:,} bids, 4 partitions; {options.rounds} rounds"
    if options.report:
        show(results, conditions, write=options.write)
        return 0
    queries, systems = _chosen(options.queries, QUERIES), _chosen(options.systems, SYSTEMS)
    lab = Lab(options.peers.resolve(), SCRATCH)
    lab.prepare()
    print(conditions, flush=True)
    with lab.node() as node:
        lab.found(node.bootstrap_servers)
        with Admin(bootstrap_servers=lab.servers) as admin:
            lab.fill(admin, options.bids)
            comparison = Comparison(lab, admin, results, options.bids)
            comparison.rounds(options.rounds, queries, systems, checks=not options.no_checks)
            if options.latency:
                comparison.latencies(options.rounds)
    show(results, conditions, write=options.write)
    differing = [line["query"] for line in results.of("check") if line["difference"]]
    for query in differing:
        print(f"FAILED: {query} has other results than Kafka Streams", file=sys.stderr)
    return 1 if comparison.failures or differing else 0


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.bench.peers", description=(__doc__ or "").partition("\n")[2]
    )
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--queries", default=",".join(QUERIES))
    options.add_argument("--systems", default=",".join(SYSTEMS))
    options.add_argument("--bids", type=int, default=920_000)
    options.add_argument("--peers", type=Path, default=PEERS, help="folder of the peers' programs")
    options.add_argument("--results", type=Path, default=SCRATCH / "results.jsonl")
    options.add_argument("--latency", action="store_true", help="measure latency too")
    options.add_argument("--no-checks", action="store_true", help="do not compare the outputs")
    options.add_argument("--fresh", action="store_true", help="do not go on with earlier results")
    add_write_option(options)
    options.add_argument("--report", action="store_true", help="show earlier results, run nothing")
    chosen = options.parse_args()
    if chosen.fresh:
        chosen.results.unlink(missing_ok=True)
    try:
        sys.exit(work(chosen))
    except LabError as error:
        sys.exit(f"bench-peers: {error}")


if __name__ == "__main__":
    main()
