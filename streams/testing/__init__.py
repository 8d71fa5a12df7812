"""Testing of topologies: the test driver, which runs the real tasks on a virtual clock."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from streams.core.topic import Topic
from streams.testing.driver import TopologyTestDriver

#: Type of a variable with inputs of several topics: (key, value, timestamp_ms) of each record.
Inputs: TypeAlias = Mapping[Topic[Any, Any], Iterable[tuple[Any, Any, int]]]

__all__ = ["Inputs", "TopologyTestDriver"]
