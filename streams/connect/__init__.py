"""Connectors: sinks that write topics to other systems, and sources that read other systems into topics."""

from streams.connect.errors import ConnectError, SinkFencedError
from streams.connect.protocol import Guarantee, SinkBlock, SinkConnector, SourceBlock, SourceConnector

__all__ = [
    "ConnectError",
    "Guarantee",
    "SinkBlock",
    "SinkConnector",
    "SinkFencedError",
    "SourceBlock",
    "SourceConnector",
]
