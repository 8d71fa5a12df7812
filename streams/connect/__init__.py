"""Connectors: sinks that write topics to other systems, and sources that read other systems into topics."""

from streams.connect.protocol import Guarantee, SinkBlock, SinkConnector, SourceBlock, SourceConnector

__all__ = ["Guarantee", "SinkBlock", "SinkConnector", "SourceBlock", "SourceConnector"]
