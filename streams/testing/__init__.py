"""Tools to test topologies: a test driver with a virtual clock, a simulation with faults, generated records, snapshots.

The pytest plugin ``streams_pytest`` gives them as fixtures.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from streams.core.topic import Topic
from streams.testing.driver import TopologyTestDriver
from streams.testing.generated import records
from streams.testing.simulation import SimulationError, SimulationReport, simulate
from streams.testing.snapshots import OutputSnapshot

#: Records of input topics as (key, value, timestamp_ms), for annotating variables.
Inputs: TypeAlias = Mapping[Topic[Any, Any], Iterable[tuple[Any, Any, int]]]

__all__ = [
    "Inputs",
    "OutputSnapshot",
    "SimulationError",
    "SimulationReport",
    "TopologyTestDriver",
    "records",
    "simulate",
]
