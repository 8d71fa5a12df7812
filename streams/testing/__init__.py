"""Tools to test topologies: a test driver, a simulation with faults, checks of histories, generated records, snapshots.

The pytest plugin ``streams_pytest`` gives them as fixtures.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from streams.core.arguments import InputRow
from streams.core.topic import Topic
from streams.testing.driver import TopologyTestDriver
from streams.testing.generated import records
from streams.testing.histories import Anomaly, AnomalyKind, ClientHistory, ClientOperation, ClientRecord, check_history
from streams.testing.simulation import SimulationError, SimulationReport, simulate
from streams.testing.snapshots import OutputSnapshot

#: Records of input topics as (key, value, timestamp_ms), (key, value) or (value,), for annotating variables.
Inputs: TypeAlias = Mapping[Topic[Any, Any], Iterable[InputRow[Any, Any]]]

__all__ = [
    "Anomaly",
    "AnomalyKind",
    "ClientHistory",
    "ClientOperation",
    "ClientRecord",
    "Inputs",
    "OutputSnapshot",
    "SimulationError",
    "SimulationReport",
    "TopologyTestDriver",
    "check_history",
    "records",
    "simulate",
]
