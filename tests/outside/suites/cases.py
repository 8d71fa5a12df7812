"""Recorded results of Kafka Streams itself, record for record: the cases of ``tests/conformance``."""

import sys
from collections.abc import Iterator

from tests.outside.suite import ROOT, Outcome, Room, Suite

CASES = ROOT / "tests" / "conformance" / "cases"


def run(room: Room) -> Iterator[Outcome]:
    """Run all cases of Kafka Streams; our own operators have cases too, which say nothing about others."""
    files = [str(path) for path in sorted(CASES.iterdir())]
    options = ["--only", room.only] if room.only else []
    with room.program(sys.executable, "-m", "tests.conformance", *options, *files, cwd=ROOT) as program:
        for line in program:
            verdict, _, rest = line.partition(" ")
            name, _, why = rest.partition(": ")
            if verdict in ("ok", "FAIL"):
                yield Outcome(name, "passed" if verdict == "ok" else "failed", why)
    if program.status is None:
        yield Outcome("the rest", "failed", program.ended_by)


SUITE = Suite(
    name="cases",
    title="Recorded cases of Kafka Streams",
    version="4.2.0",
    origin="topologies whose inputs and outputs were recorded on Apache Kafka Streams, in `tests/conformance/cases`",
    run=run,
)
