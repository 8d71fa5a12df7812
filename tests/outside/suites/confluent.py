"""confluent-kafka-python's integration tests, which are those of librdkafka's binding too."""

from collections.abc import Iterator

from tests.outside.pytests import environment, run_pytest
from tests.outside.repositories import repository, work_tree
from tests.outside.suite import Outcome, Room, Suite

REPOSITORY = "https://github.com/confluentinc/confluent-kafka-python.git"
COMMIT = "8b1c7a613434eee3d0e1287d624d7af04932f410"
VERSION = "2.15.0"
#: Tests of one binding, which bring a cluster, Docker or a registry of their own.
WITHOUT = ("schema_registry", "serialization", "integration_test.py")
#: Share groups are not served.
SHARE = ("share_consumer", "share_consumer_sasl", "share_consumer_oauth")


def run(room: Room) -> Iterator[Outcome]:
    """Run the tests with both protocols of groups."""
    folder = work_tree(room, repository(room, "CONFLUENT_KAFKA_PYTHON_GIT", REPOSITORY, COMMIT), COMMIT)
    python = environment(
        room,
        f"confluent-kafka[avro,json,protobuf,schemaregistry]=={VERSION}",
        *("trivup", "pytest-asyncio", "requests-mock", "respx", "async-timeout"),
    )
    tests = [f"--ignore=tests/integration/{name}" for name in (*WITHOUT, *SHARE)]
    only = ["-k", room.only] if room.only else []
    for name in SHARE:
        yield Outcome(f"tests/integration/{name}", "left out")
    with room.broker() as broker:
        for prefix, protocol in (("", {}), ("consumer protocol: ", {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"})):
            env = {"BROKERS": broker.address, **protocol}
            options = ("tests/integration", *tests, *only)
            yield from run_pytest(room, python, folder, *options, env=env, prefix=prefix)


SUITE = Suite(
    name="confluent-kafka-python",
    title="confluent-kafka-python (librdkafka)",
    version=VERSION,
    origin=f"the integration tests of {REPOSITORY} (`CONFLUENT_KAFKA_PYTHON_GIT`: a git directory of it),"
    " with the client from PyPI",
    needs=("git",),
    limit_s=3_600.0,
    run=run,
)
