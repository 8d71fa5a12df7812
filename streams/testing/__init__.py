"""Testing of topologies: a driver on a virtual clock, and a simulated world full of faults."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from streams.core.topic import Topic
from streams.testing.driver import TopologyTestDriver
from streams.testing.simulation import SimulationError, SimulationReport, simulate

#: Type of a variable with inputs of several topics: (key, value, timestamp_ms) of each record.
Inputs: TypeAlias = Mapping[Topic[Any, Any], Iterable[tuple[Any, Any, int]]]

__all__ = ["Inputs", "SimulationError", "SimulationReport", "TopologyTestDriver", "simulate"]
