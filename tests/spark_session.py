"""One Spark for all tests that need it: a session with a Connect server in it, so both ways lead to one JVM.

``tests/conftest.py`` has these fixtures: in two folders they would be two, and the end of one the end of both.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ports import free_ports


@pytest.fixture(scope="session")
def short_lived_java() -> Iterator[None]:
    """Have Java compile quickly rather than well: no JVM of the tests lives long enough for the rest to pay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="session")
def _spark_and_port(short_lived_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, int]]:
    from streams.replay.spark.sessions import start_session

    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("spark")
    session = start_session(
        "local[4,3]",
        settings={
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.memory": "512m",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        # An example of the guide stops the session that it has got, which is that of all tests of this process.
        patch.setattr(type(session), "stop", lambda session: None)
        yield session, port
    session.stop()


@pytest.fixture(scope="session")
def spark(_spark_and_port: tuple[Any, int]) -> Any:
    """A classic session on four threads, each task of which is tried three times."""
    return _spark_and_port[0]


@pytest.fixture(scope="session")
def connect(_spark_and_port: tuple[Any, int]) -> Iterator[Any]:
    """A session through Spark Connect, to the same Spark."""
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession.builder.remote(f"sc://127.0.0.1:{_spark_and_port[1]}").create()
    yield session
    session.stop()


@pytest.fixture(scope="session", params=["classic", "connect"])
def any_spark(request: pytest.FixtureRequest, spark: Any, connect: Any) -> Any:
    """A classic session, and one through Spark Connect."""
    return spark if request.param == "classic" else connect
