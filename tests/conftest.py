"""What all tests share: which of them can run here."""

import os
import shutil

import pytest
from hypothesis import settings

# Deadlines measure the machine, not the code; CI runs the same examples each time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run: tests of a real Kafka unless asked for, those of Spark where there is no Java."""
    absent = {}
    if "kafka" not in config.getoption("markexpr"):
        absent["kafka"] = pytest.mark.skip(reason="starts a real Kafka: run it with `make kafka-test`")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        absent["spark"] = pytest.mark.skip(reason="starts Spark, which needs Java 17: there is none on the PATH")
    if not os.environ.get("STREAMS_ALL_CASES"):
        absent["exhaustive"] = pytest.mark.skip(reason="minutes for each: set STREAMS_ALL_CASES, as .ci/run does")
    for item in items:
        for marker, skip in absent.items():
            if item.get_closest_marker(marker):
                item.add_marker(skip)
