"""What all tests share: which of them can run here."""

import os

import pytest
from hypothesis import settings

# Deadlines measure the machine, not the code; CI runs the same examples each time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of a real Kafka unless their marker is asked for: they need Java and fetched jars."""
    if "kafka" in config.getoption("markexpr"):
        return
    absent = pytest.mark.skip(reason="starts a real Kafka: run it with `make kafka-test`")
    for item in items:
        if item.get_closest_marker("kafka"):
            item.add_marker(absent)
