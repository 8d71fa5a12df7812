"""The operator ``deduplicate``, implemented as a function that takes a stream reference.

The public signature and its documentation are in ``KStream``.  The module imports only ``core`` and ``state`` from
outside ``dsl``.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar

from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN, check_flag
from streams.core.errors import TopologyError
from streams.core.serdes.serdes import NULL, Serde
from streams.dsl.building.repartition import repartition_node
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import UNKNOWN, check_function, refuse_unknown, result_type
from streams.dsl.materialized import to_ms
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import Deduplicate, IdPartitioner, deduplication_store, keyed_id_serde
from streams.dsl.ref import StreamRef
from streams.dsl.serde_variables import SerdeVariable, declared_or_annotated, overridden
from streams.state import StoreSpec

K = TypeVar("K")
V = TypeVar("V")

_PREFIX = "KSTREAM-DEDUPLICATE-"


class DeduplicationOptions(TypedDict, Generic[K, V], total=False):
    """Options for ``deduplicate``; all are optional.

    ``store`` is the name of the store, ``logging`` (a changelog topic) is on by default, and ``persistent`` chooses
    between disk and memory.  ``id`` is the type or serde of the result of ``by``; the default is its annotation, or the
    type of the first id.  ``key`` and ``value`` are types or serdes that override those of the stream.
    """

    store: str | None
    logging: bool
    persistent: bool
    id: TypeForm[Any] | Serde[Any]
    key: TypeForm[K] | Serde[K]
    value: TypeForm[V] | Serde[V]


def deduplicate(
    stream: StreamRef,
    by: Callable[..., Any] | None,
    name: str | None,
    within: timedelta,
    grace: timedelta | None,
    options: Mapping[str, Any],
) -> StreamRef:
    """Add the node of ``deduplicate`` to the logical graph.

    A repartition topic is added upstream if records with equal ids may be in several partitions.
    """
    refuse_unknown(f"deduplicate of {stream!r}", options, DeduplicationOptions)
    has_changelog = check_flag(options.get("logging", True), "logging= of deduplicate")
    within_ms = to_ms(within, f"within= of deduplicate of {stream!r}")
    if within_ms < 1:
        raise TopologyError(f"deduplicate of {stream!r}: within must be at least 1 ms, not {within}")
    grace_ms = within_ms if grace is None else to_ms(grace, f"grace= of deduplicate of {stream!r}")
    if by is not None:
        check_function(by, "deduplicate", "(key, value)")
    graph = stream.graph
    names = stream.graph.names
    full_name = names.node(name, _PREFIX)
    key = overridden(stream.key, options.get("key", NOT_GIVEN), full_name)
    value = overridden(stream.value, options.get("value", NOT_GIVEN), full_name)
    form = UNKNOWN if by is None else result_type(by)
    record_id = declared_or_annotated(options.get("id", NOT_GIVEN), form, full_name)
    is_per_key = key.serde is not NULL
    if by is None and not is_per_key:
        raise TopologyError(f"deduplicate of {stream!r}, which has no keys: give by=, a function of (key, value)")
    if stream.needs_repartition or not is_per_key:
        partitioner = None if by is None or is_per_key else IdPartitioner(by, record_id.resolve)
        node = repartition_node(names, full_name, key, value, is_optimizable=is_per_key, partitioner=partitioner)
        stream = stream.repartitioned(graph.add(stream.node, node), key, value)
    store = _store_name(stream, name, options.get("store"))

    def spec() -> StoreSpec:
        return deduplication_store(
            store,
            _id_serde(key, record_id, has_by=by is not None, is_per_key=is_per_key),
            kept_ms=within_ms + grace_ms,
            is_persistent=options.get("persistent"),
            has_changelog=has_changelog,
        )

    operator = Deduplicate(store, within_ms, by, is_per_key)
    # As in KIP-655, records without a key pass, so an upstream repartition topic must keep them.
    content = LogicalOperator(lambda: operator, lambda: (spec(),))
    result = stream.at(stream.add(full_name, content, has_relaxed_null_keys=True), key, value)
    result.side = SideOutputs.at(result.node, result)
    return result


def _store_name(stream: StreamRef, name: str | None, store: str | None) -> str:
    explicit_name = store if store is not None or name is None else f"{name}-store"
    if explicit_name is None:
        return stream.graph.names.store(_PREFIX)
    stream.graph.claim_store(check_name(explicit_name, "store name"))
    return explicit_name


def _id_serde(key: SerdeVariable, record_id: SerdeVariable, *, has_by: bool, is_per_key: bool) -> Serde[Any]:
    if not has_by:
        return key.resolve()
    return keyed_id_serde(key.resolve(), record_id.resolve()) if is_per_key else record_id.resolve()
