"""Kafka Streams' integration tests as Apache Kafka publishes them, with ``streams broker`` as their cluster.

Maven fetches the jar of the tests, and runs them class by class (``tests/outside/kafka_streams/pom.xml``); one class of
Java starts the broker where the tests start theirs.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.outside.suite import ROOT, STREAMS, Outcome, Room, Suite

_PACKAGE = "org.apache.kafka.streams.integration."
_FOLDER = ROOT / "tests" / "outside" / "kafka_streams"
#: A class that does not end in this time is killed.  The longest (HeadersStoreUpgradeIntegrationTest) needs 19
#: minutes on any broker: 20 of its tests close an application, which does not leave its group, and start it again; each
#: waits until the session of the first run has ended, 45 seconds later.
_CLASS_LIMIT_S = 1_800


def run(room: Room, protocol: str = "") -> Iterator[Outcome]:
    """Run the classes one after the other; the tests of each are known when it has ended.

    ``protocol`` is the ``group.protocol`` of applications that do not name one, or "" for that of Kafka Streams.
    """
    build = room.cache / "build"
    left_out = room.listed.left_out
    # Maven's pattern: classes, or class#method; those behind ! are not run.
    selected = [room.only.replace(".", "#") or "*Test", *(f"!{test.replace('.', '#')}" for test in left_out)]
    maven = (
        "mvn",
        "-B",
        f"-Dbuild.folder={build}",
        f"-Dclass.limit.s={_CLASS_LIMIT_S}",
        f"-Dgroup.protocol={protocol}",
    )
    room.fetch(*maven, "clean", "test-compile", cwd=_FOLDER)
    if not room.only:
        yield from (Outcome(test, "left out") for test in left_out)
    running = ""
    with room.program(
        *maven,
        "test",
        f"-Dtest={','.join(selected)}",
        cwd=_FOLDER,
        env={"STREAMS": "\n".join(STREAMS), "PYTHONPATH": str(ROOT)},
        quiet_s=_CLASS_LIMIT_S + 120,
    ) as program:
        for line in program:
            if match := re.search(rf" Running {re.escape(_PACKAGE)}(\S+)", line):
                yield from _unended(running)
                running = match[1]
            elif "Tests run: " in line and line.endswith(f" in {_PACKAGE}{running}"):
                yield from _outcomes(build / "surefire-reports" / f"TEST-{_PACKAGE}{running}.xml")
                running = ""
    yield from _unended(running)


def _unended(name: str) -> Iterator[Outcome]:
    if name:
        yield Outcome(name, "failed", f"no end in {_CLASS_LIMIT_S} s")


def _outcomes(report: Path) -> Iterator[Outcome]:
    """Yield what a report of a class says; a test with parameters is named by their number."""
    for case in ElementTree.parse(report).iter("testcase"):
        name = re.sub(r"\(.*\)", "", case.get("name", ""))
        test = f"{case.get('classname', '').removeprefix(_PACKAGE)}.{name}".rstrip(".")
        if (skipped := case.find("skipped")) is not None:
            # JUnit's message of a test without a reason is the whole name of its method.
            why = re.sub(r".* is @Disabled", "disabled by Kafka itself", skipped.get("message", ""))
            yield Outcome(test, "left out", why)
            continue
        faults = [part for part in case if part.tag in ("failure", "error")]
        said = " ".join((part.get("message") or part.text or "") for part in faults)
        yield Outcome(test, "failed" if faults else "passed", " ".join(said.split())[:300])


SUITE = Suite(
    name="kafka_streams",
    title="Kafka Streams' integration tests",
    version="4.3.1",
    origin="https://central.sonatype.com/artifact/org.apache.kafka/kafka-streams-integration-tests",
    run=run,
    needs=("java", "mvn"),
    limit_s=4 * 3_600.0,
)
