"""The processor graph, its sub-topologies and descriptions, and the programs that are compiled from the graph."""

from streams.topology.compile import CompiledSubTopology as CompiledSubTopology
from streams.topology.copartitioning import copartitions as copartitions
from streams.topology.copartitioning import divided_keys as divided_keys
from streams.topology.copartitioning import joined_sources as joined_sources
from streams.topology.describe import TopologyDescription as TopologyDescription
from streams.topology.describe import describe as describe
from streams.topology.describe import options_of as options_of
from streams.topology.describe import periods_of as periods_of
from streams.topology.descriptions import GlobalStoreDescription as GlobalStoreDescription
from streams.topology.descriptions import NodeDescription as NodeDescription
from streams.topology.descriptions import SubTopologyDescription as SubTopologyDescription
from streams.topology.graph import GlobalStore as GlobalStore
from streams.topology.graph import Partitioner as Partitioner
from streams.topology.graph import ProcessorNode as ProcessorNode
from streams.topology.graph import RepartitionTopic as RepartitionTopic
from streams.topology.graph import SinkNode as SinkNode
from streams.topology.graph import SourceNode as SourceNode
from streams.topology.graph import reader_of as reader_of
from streams.topology.node_context import EMITTED as EMITTED
from streams.topology.node_context import NodeCalls as NodeCalls
from streams.topology.node_context import NodeClock as NodeClock
from streams.topology.node_context import NodeContext as NodeContext
from streams.topology.node_context import NodeMetrics as NodeMetrics
from streams.topology.node_context import NodeOutput as NodeOutput
from streams.topology.node_context import NodeStores as NodeStores
from streams.topology.node_context import Operator as Operator
from streams.topology.node_context import RawRecord as RawRecord
from streams.topology.node_context import emitted_name as emitted_name
from streams.topology.operator import BatchingNode as BatchingNode
from streams.topology.operator import CallingNode as CallingNode
from streams.topology.operator import Cancellable as Cancellable
from streams.topology.operator import HeldRecord as HeldRecord
from streams.topology.operator import HeldState as HeldState
from streams.topology.operator import HoldingNode as HoldingNode
from streams.topology.operator import Lost as Lost
from streams.topology.operator import Process as Process
from streams.topology.operator import PunctuationType as PunctuationType
from streams.topology.operator import StoreNaming as StoreNaming
from streams.topology.operator import StreamTime as StreamTime
from streams.topology.operator import TableForward as TableForward
from streams.topology.processors import Processor as Processor
from streams.topology.processors import ProcessorContext as ProcessorContext
from streams.topology.processors import ProcessorOperator as ProcessorOperator
from streams.topology.processors import StoreBuilder as StoreBuilder
from streams.topology.processors import processor_key as processor_key
from streams.topology.processors import punctuate as punctuate
from streams.topology.program_writer import ProgramHost as ProgramHost
from streams.topology.reach import behind_caches as behind_caches
from streams.topology.reach import is_one_to_one as is_one_to_one
from streams.topology.reach import reached as reached
from streams.topology.stateless import Branch as Branch
from streams.topology.stateless import Filter as Filter
from streams.topology.stateless import FlatMap as FlatMap
from streams.topology.stateless import FlatMapValues as FlatMapValues
from streams.topology.stateless import KeyFilter as KeyFilter
from streams.topology.stateless import Map as Map
from streams.topology.stateless import MapValues as MapValues
from streams.topology.stateless import PassThrough as PassThrough
from streams.topology.stateless import Peek as Peek
from streams.topology.stateless import SelectKey as SelectKey
from streams.topology.stateless import SideOutput as SideOutput
from streams.topology.stateless import TableToStream as TableToStream
from streams.topology.store_declarations import key_value_store as key_value_store
from streams.topology.store_declarations import lru_store as lru_store
from streams.topology.store_declarations import session_store as session_store
from streams.topology.store_declarations import session_store_with_headers as session_store_with_headers
from streams.topology.store_declarations import timestamped_key_value_store as timestamped_key_value_store
from streams.topology.store_declarations import (
    timestamped_key_value_store_with_headers as timestamped_key_value_store_with_headers,
)
from streams.topology.store_declarations import (
    timestamped_window_store_with_headers as timestamped_window_store_with_headers,
)
from streams.topology.store_declarations import versioned_store as versioned_store
from streams.topology.store_declarations import window_store as window_store
from streams.topology.subtopologies import PartitionGrouper as PartitionGrouper
from streams.topology.subtopologies import SamePartitionGrouper as SamePartitionGrouper
from streams.topology.subtopologies import SubTopology as SubTopology
from streams.topology.subtopologies import refuse_generated_names as refuse_generated_names
from streams.topology.subtopologies import resolve_partitions as resolve_partitions
from streams.topology.subtopologies import stages as stages
from streams.topology.subtopologies import sub_topologies as sub_topologies
from streams.topology.subtopologies import through_topics as through_topics
from streams.topology.subtopologies import unmatched_patterns as unmatched_patterns
from streams.topology.subtopologies import validate as validate
from streams.topology.topology import Topology as Topology
