"""The typed DSL: streams and tables, which build a logical graph that is then written as a topology."""

from streams.dsl import agg as agg
from streams.dsl.branched import Branched as Branched
from streams.dsl.builder import StreamsBuilder as StreamsBuilder
from streams.dsl.builder import TopologySource as TopologySource
from streams.dsl.builder import build_topology as build_topology
from streams.dsl.building.table_operators import ValueTransformer as ValueTransformer
from streams.dsl.cogrouped import CogroupedKStream as CogroupedKStream
from streams.dsl.cogrouped import SessionWindowedCogroupedKStream as SessionWindowedCogroupedKStream
from streams.dsl.cogrouped import TimeWindowedCogroupedKStream as TimeWindowedCogroupedKStream
from streams.dsl.global_table import GlobalKTable as GlobalKTable
from streams.dsl.grouped import KGroupedStream as KGroupedStream
from streams.dsl.grouped_table import KGroupedTable as KGroupedTable
from streams.dsl.stream import DeduplicatedKStream as DeduplicatedKStream
from streams.dsl.stream import JoinedKStream as JoinedKStream
from streams.dsl.stream import KStream as KStream
from streams.dsl.stream import LookedUpKStream as LookedUpKStream
from streams.dsl.suppressed import EmitStrategy as EmitStrategy
from streams.dsl.suppressed import Suppressed as Suppressed
from streams.dsl.table import KTable as KTable
from streams.dsl.windowed import SessionWindowedKStream as SessionWindowedKStream
from streams.dsl.windowed import TimeWindowedKStream as TimeWindowedKStream
