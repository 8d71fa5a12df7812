"""kafka-go: all its packages' tests that talk to a broker."""

from collections.abc import Iterator

from tests.outside.gotests import built_tests, fetched_module, run_tests
from tests.outside.suite import Outcome, Room, Suite

MODULE = "github.com/segmentio/kafka-go"
VERSION = "0.4.51"


def run(room: Room) -> Iterator[Outcome]:
    """Run the tests on a broker at the address that is built into them."""
    folder = fetched_module(room, MODULE, VERSION)
    program = built_tests(room, folder)
    with room.broker(port=9092, advertised="localhost:9092"):
        env = {"KAFKA_VERSION": "2.7.0", "KAFKA_SKIP_NETTEST": "1"}
        yield from run_tests(room, program, folder, f"-test.run={room.only or '.'}", env=env)


SUITE = Suite(
    name="kafka-go",
    title="kafka-go (Go)",
    version=VERSION,
    origin=f"the root package of `{MODULE}` from the Go module proxy",
    needs=("go",),
    limit_s=2_400.0,
    run=run,
)
