"""kafka-go: all its packages' tests that talk to a broker."""

from collections.abc import Iterator

from tests.outside.gotests import built_tests, fetched_module, run_tests
from tests.outside.suite import Outcome, Room, Suite

MODULE = "github.com/segmentio/kafka-go"
VERSION = "0.4.51"


#: Subtests that panic in a function of the tests themselves, whatever the broker, which would end all the others.
GROUP = "TestReaderConsumerGroup"
PANICS = (
    "consumer_group_commits_on_close",
    "verify_offset_committed",
    "verify_offset_committed_when_using_interval_committer",
)


def run(room: Room) -> Iterator[Outcome]:
    """Run the tests on a broker at the address that is built into them."""
    folder = fetched_module(room, MODULE, VERSION)
    program = built_tests(room, folder)
    # Compaction is looked for as often as by Kafka: a test waits for it.  Tests have the broker's number built in.
    options = ("--maintenance-interval", "15000", "--set", "node.id=1")
    with room.broker(*options, port=9092, advertised="localhost:9092"):
        env = {"KAFKA_VERSION": "2.7.0", "KAFKA_SKIP_NETTEST": "1"}
        options = (f"-test.run={room.only or '.'}", f"-test.skip=^{GROUP}$/^({'|'.join(PANICS)})$")
        yield from run_tests(room, program, folder, *options, env=env)
    for name in PANICS:
        yield Outcome(f"{GROUP}/{name}", "left out")


SUITE = Suite(
    name="kafka-go",
    title="kafka-go (Go)",
    version=VERSION,
    origin=f"the root package of `{MODULE}` from the Go module proxy",
    needs=("go",),
    limit_s=2_400.0,
    run=run,
)
