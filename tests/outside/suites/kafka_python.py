"""kafka-python's integration tests."""

from collections.abc import Iterator

from tests.outside.pytests import environment, run_pytest
from tests.outside.repositories import repository, work_tree
from tests.outside.suite import Outcome, Room, Suite

REPOSITORY = "https://github.com/dpkp/kafka-python.git"
COMMIT = "a3b3836ff3a4b34ebaa42fd93500bfcb16c1e9b7"
VERSION = "3.1.0.dev"


def run(room: Room) -> Iterator[Outcome]:
    """Run the integration tests with the client beside them."""
    folder = work_tree(room, repository(room, "KAFKA_PYTHON_GIT", REPOSITORY, COMMIT), COMMIT)
    codecs = ("crc32c", "lz4", "python-snappy", "zstandard", "xxhash")
    python = environment(room, "py", "pytest-mock", *codecs)
    # As in its own file of settings for Kafka.
    with room.broker("--partitions", "4", "--set", "group.min.session.timeout.ms=1000") as broker:
        env = {"KAFKA_VERSION": "4.1.0", "KAFKA_URI": f"kafka://{broker.address}", "KAFKA_ROOT": str(folder)}
        only = ["-k", room.only] if room.only else []
        yield from run_pytest(room, python, folder, "test/integration", *only, env=env)


SUITE = Suite(
    name="kafka-python",
    title="kafka-python (Python)",
    version=VERSION,
    origin=f"the integration tests of {REPOSITORY} (`KAFKA_PYTHON_GIT`: a git directory of it)",
    needs=("git",),
    limit_s=2_400.0,
    run=run,
)
