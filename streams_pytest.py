"""The pytest plugin of streams, which pytest finds by its entry point: fixtures, and differences of outputs.

It is no part of the package ``streams``, so that tests that use no fixture of the plugin import nothing of it.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streams import EmbeddedBroker, VirtualClock
    from streams.testing import OutputSnapshot, SimulationReport, TopologyTestDriver

_WRITTEN = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("streams", "tests of topologies (streams)")
    group.addoption(
        "--update-outputs", action="store_true", help="write the files of output_snapshot anew, instead of comparing"
    )
    group.addoption(
        "--simulation-seeds",
        metavar="N",
        type=int,
        default=20,
        help="number of worlds of the fixture simulate (default: 20)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin without written files."""
    config.stash[_WRITTEN] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which files were written."""
    for path in config.stash[_WRITTEN]:
        terminalreporter.write_line(f"outputs written: {path}")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain which records of a topic differ, and why the first missing one is not there."""
    if op != "==" or "streams.testing" not in sys.modules:
        return None
    from streams.testing.outputs import ReadRecords, explained

    if isinstance(left, ReadRecords) and isinstance(right, list):
        return explained(left, right)
    if isinstance(right, ReadRecords) and isinstance(left, list):
        return explained(right, left)
    return None


@pytest.fixture
def driver() -> "Iterator[type[TopologyTestDriver]]":
    """``TopologyTestDriver``, whose instances are closed at the end of the test: ``driver(topology)``."""
    from streams.testing import TopologyTestDriver

    made: list[TopologyTestDriver] = []

    class ClosedDriver(TopologyTestDriver):
        """A driver that the fixture closes."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    yield ClosedDriver
    for one in reversed(made):
        one.close()


@pytest.fixture
def virtual_clock() -> "VirtualClock":
    """Return a clock at 0 that a test advances; the fixture ``broker`` of the same test is on it, too."""
    from streams import VirtualClock

    return VirtualClock()


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker]":
    """Return a broker in memory, closed at the end; on ``virtual_clock`` if the test has it."""
    from streams import EmbeddedBroker

    clock = request.getfixturevalue("virtual_clock") if "virtual_clock" in request.fixturenames else None
    with EmbeddedBroker(clock=clock) as made:
        yield made


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> "Callable[..., SimulationReport]":
    """Return ``streams.testing.simulate``, with the seeds of ``--simulation-seeds`` unless ``seeds=`` is given."""
    from streams.testing import simulate

    return partial(simulate, seeds=range(request.config.getoption("--simulation-seeds")))


@pytest.fixture
def output_snapshot(request: pytest.FixtureRequest) -> "OutputSnapshot":
    """Compare outputs with a file beside the test: ``output_snapshot.check(driver, topic)``."""
    from streams.testing import OutputSnapshot

    folder = request.path.with_suffix(".outputs")
    updates = bool(request.config.getoption("--update-outputs"))
    return OutputSnapshot(folder, request.node.name, updates=updates, written=request.config.stash[_WRITTEN].append)
