"""Tools to test topologies: a test driver with a virtual clock, and a simulation with faults."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from streams.core.topic import Topic
from streams.testing.driver import TopologyTestDriver
from streams.testing.simulation import SimulationError, SimulationReport, simulate

#: Records of input topics as (key, value, timestamp_ms), for annotating variables.
Inputs: TypeAlias = Mapping[Topic[Any, Any], Iterable[tuple[Any, Any, int]]]

__all__ = ["Inputs", "SimulationError", "SimulationReport", "TopologyTestDriver", "simulate"]
