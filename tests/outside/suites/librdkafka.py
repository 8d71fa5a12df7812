"""librdkafka's own tests, which npm has with the sources that its package for JavaScript is built from."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.outside.suite import Outcome, Room, Suite

PACKAGE = "@confluentinc/kafka-javascript"
PACKAGE_VERSION = "1.10.1"
VERSION = "2.15.1"
#: Without what needs libraries that few have; tests set options of TLS.
CONFIGURE = ("--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-lz4-ext")
#: Quick; without those that talk to no broker, and without those with known faults.
OPTIONS = ("-Q", "-L", "-K")
#: Tests that cut and slow their sockets: they close those of tests that run beside them.
SOCKETS = "0049,0068,0075,0076,0088,0094"
BEGUN = re.compile(r"=== Running test (\w+) ===")
#: A row of the table at the end: with the reasons, but for tests that the options leave out, or that ran before.
ENDED = re.compile(r"^\| ([0-9]\w+) +\| +(PASSED|FAILED|SKIPPED|RUNNING) \| +[\d.]+s +\|(?! Filtered| included)(.*)")
RESULTS = {"PASSED": "passed", "SKIPPED": "left out"}
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def run(room: Room) -> Iterator[Outcome]:
    """Run the tests with both protocols of groups."""
    folder = built(room)
    for prefix, protocol in (("", "classic"), ("consumer protocol: ", "consumer")):
        # Tests of partitions ask topics that nobody has created for a second one.
        with room.broker("--partitions", "4") as broker:
            config = room.logs / "test.conf"
            config.write_text(f"bootstrap.servers={broker.address}\n")
            env = {
                "RDKAFKA_TEST_CONF": str(config),
                "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
                "TEST_KAFKA_VERSION": "4.1.0",
                "LD_LIBRARY_PATH": os.pathsep.join(str(folder.parent / name) for name in ("src", "src-cpp")),
            }
            yield from run_tests(room, folder, env, prefix)


def built(room: Room) -> Path:
    """Return the folder of the tests, with their program in it.

    Raises:
        UnavailableError: the sources cannot be fetched or built.
    """
    sources = room.cache / f"package-{PACKAGE_VERSION}" / "deps" / "librdkafka"
    if not (sources / "tests" / "test-runner").exists():
        room.fetch("npm", "pack", "--silent", f"{PACKAGE}@{PACKAGE_VERSION}")
        archive = f"confluentinc-kafka-javascript-{PACKAGE_VERSION}.tgz"
        room.fetch("sh", "-c", f"tar xzf {archive} && rm -rf {sources.parents[1]} && mv package {sources.parents[1]}")
        room.fetch("./configure", *CONFIGURE, cwd=sources)
        room.fetch("make", "-j2", "libs", cwd=sources)
        room.fetch("make", "-j2", "-C", "tests", "build", cwd=sources)
    return sources / "tests"


def run_tests(room: Room, folder: Path, env: dict[str, str], prefix: str) -> Iterator[Outcome]:
    """Run the tests, and yield an outcome for each that was asked for."""
    seen: dict[str, tuple[str, str]] = {}
    chosen = {"TESTS": room.only} if room.only else {}
    for options, own in ((("-p3", "-E"), chosen), (("-p1",), chosen or {"TESTS": SOCKETS})):
        known, is_over = dict(seen), False
        while not is_over:
            begun = len(seen)
            skipped = {"TESTS_SKIP": ",".join(name[:4] for name in seen)} if seen else {}
            command = ("./test-runner", *OPTIONS, *options)
            with room.program(*command, cwd=folder, env=env | own | skipped, log=f"output{prefix}") as program:
                for line in map(str, program):
                    text = _COLOR.sub("", line)
                    rows = [*((name, "RUNNING", "") for name in BEGUN.findall(text)), *ENDED.findall(text)]
                    seen |= {name: (state, note.strip()) for name, state, note in rows if name not in known}
            # A test that takes too long ends them all: the others are run once more.
            known = dict(seen)
            is_over = program.status is None or program.status >= 0 or len(seen) == begun
    for test, (state, note) in seen.items():
        ending = f"no end: {program.ended_by or program.status}" if state == "RUNNING" else note
        yield Outcome(prefix + test, RESULTS.get(state, "failed"), ending)  # type: ignore[arg-type]


SUITE = Suite(
    name="librdkafka",
    title="librdkafka (C, C++)",
    version=VERSION,
    origin=f"the tests of librdkafka that need a broker, built from the sources in npm's `{PACKAGE}` {PACKAGE_VERSION}",
    needs=("npm", "make", "cc", "c++"),
    limit_s=3_600.0,
    run=run,
)
