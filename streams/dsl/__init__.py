"""The typed DSL: streams and tables, written as a logical graph and then as a topology."""

from streams.dsl.branched import Branched
from streams.dsl.builder import StreamsBuilder, TopologySource, build_topology
from streams.dsl.cogrouped import CogroupedKStream, SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream
from streams.dsl.global_table import GlobalKTable
from streams.dsl.grouped import KGroupedStream
from streams.dsl.grouped_table import KGroupedTable
from streams.dsl.stream import KStream
from streams.dsl.suppressed import EmitStrategy, Suppressed
from streams.dsl.table import KTable
from streams.dsl.table_operators import ValueTransformer
from streams.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

__all__ = [
    "Branched",
    "CogroupedKStream",
    "EmitStrategy",
    "GlobalKTable",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TopologySource",
    "ValueTransformer",
    "build_topology",
]
