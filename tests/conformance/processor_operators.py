"""Interpreter of the processor-level operators, on the low-level ``Topology``."""

import re
from typing import Any

from streams import Topology
from streams.core.clock import VirtualClock
from streams.core.event_time.timestamps import Extractor, extractor_for
from tests.conformance.functions import extractor, topic_function
from tests.conformance.processors import processor
from tests.conformance.stores import declared_store
from tests.conformance.values import serde


def _extractor(op: dict[str, Any], topic: str) -> Extractor | None:
    if "ts_extractor" not in op:
        return None
    policy: Any = extractor(op["ts_extractor"])
    return extractor_for(topic, policy=policy, clock=VirtualClock(0))


def add_processor_operator(topology: Topology, op: dict[str, Any]) -> None:
    """Make the call of an operator on the topology.

    Raises:
        KeyError: the language has no such operator.
    """
    match op["op"]:
        case "add_source":
            topics = [re.compile(op["pattern"])] if "pattern" in op else op["topics"]
            timestamp = _extractor(op, str(op.get("pattern") or op["topics"][0]))
            topology.add_source(op["id"], *topics, key=serde(op["key"]), value=serde(op["value"]), timestamp=timestamp)
        case "add_processor":
            topology.add_processor(op["id"], processor(op["fn"]), *op["parents"], stores=op.get("stores", ()))
        case "add_store":
            topology.add_state_store(declared_store(op), *op.get("processors", ()))
        case "add_sink":
            topic = topic_function(op["topic_fn"]) if "topic_fn" in op else op["topic"]
            topology.add_sink(op["id"], topic, *op["parents"], key=serde(op["key"]), value=serde(op["value"]))
        case "connect_stores":
            topology.connect(op["processor"], *op["stores"])
        case other:
            raise KeyError(f"unknown operator {other!r} of a processor-level topology")
