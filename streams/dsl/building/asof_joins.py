"""As-of joins of two streams, implemented as functions that take references.

The public signatures and their documentation are in ``KStream``.  The module imports only ``core``, ``state`` and
``topology`` from outside ``dsl``.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, Literal, Required, TypedDict, TypeVar

from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.errors import TopologyError
from streams.core.serdes.serdes import Serde
from streams.dsl.building.join_arguments import JoinArguments
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import matching_form, result_type
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import Materialized, once, to_ms
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import WAITING_LEFT, AsOf, AsOfLeft, AsOfRight, JoinKind, buffer_spec
from streams.dsl.ref import StreamRef, check_builder
from streams.dsl.serde_variables import SerdeVariable, annotated, joint, overridden
from streams.state import WINDOW, StoreSpec
from streams.topology import PassThrough

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")

_JOINER_FORMS = ("(left, right)", "(key, left, right)")


class AsOfOptions(TypedDict, Generic[K, V, V2], total=False):
    """Options for an as-of join; all except ``tolerance`` are optional.

    ``tolerance`` is the maximum difference in event time between a left record and its match.  With ``direction``
    "backward" (default), the match is the last right record at or before the left record; with "forward", the first
    right record at or after it.  ``grace`` (default: 0) is the stream time by which records may be out of order.
    ``store`` is the prefix of the store names; ``logging`` (changelog topics) is on by default.  ``key``, ``value`` and
    ``other_value`` are types or serdes that override those of the streams.
    """

    tolerance: Required[timedelta]
    direction: Literal["backward", "forward"]
    grace: timedelta
    store: str | None
    logging: bool
    key: TypeForm[K] | Serde[K]
    value: TypeForm[V] | Serde[V]
    other_value: TypeForm[V2] | Serde[V2]


def join_latest(
    stream: StreamRef,
    other: StreamRef | Any,
    joiner: Callable[..., Any],
    kind: JoinKind,
    name: str | None,
    options: Mapping[str, Any],
) -> StreamRef:
    """Add the nodes of ``join_latest`` or ``left_join_latest`` to the logical graph."""
    verb = "join_latest" if kind is JoinKind.INNER else "left_join_latest"
    if not isinstance(other, StreamRef):
        raise TopologyError(f"{verb} of {stream!r} needs another stream, got {other!r}")
    check_builder(stream, other, verb)
    with_key = matching_form(joiner, verb, _JOINER_FORMS) == 1
    arguments = JoinArguments(verb, dict(options))
    tolerance = arguments.take("tolerance")
    direction = arguments.take("direction", "backward")
    store = arguments.take("store")
    grace = arguments.take("grace", timedelta(0))
    logging = arguments.flag("logging")
    forms = [arguments.take(form, NOT_GIVEN) for form in ("key", "value", "other_value")]
    arguments.finish()
    if direction not in ("backward", "forward"):
        raise TopologyError(f"{verb} of {stream!r}: direction must be 'backward' or 'forward', not {direction!r}")
    tolerance_ms = to_ms(tolerance, f"tolerance= of {verb} of {stream!r}")
    grace_ms = to_ms(grace, f"grace= of {verb} of {stream!r}")
    graph = stream.graph
    names = stream.graph.names
    key, other_key = overridden(stream.key, forms[0], stream.name), overridden(other.key, forms[0], other.name)
    value = overridden(stream.value, forms[1], stream.name)
    other_value = overridden(other.value, forms[2], other.name)
    key.unify(other_key)
    base = None if name is None else check_name(name)
    left = stream
    right = other
    if stream.needs_repartition:
        left = stream.repartitioned_for_join(stream.name if base is None else f"{base}-left", key, value)
    if other.needs_repartition:
        right = other.repartitioned_for_join(other.name if base is None else f"{base}-right", other_key, other_value)
    left_name = names.suffixed(base, "-left", "KSTREAM-ASOFLEFT-")
    right_name = names.suffixed(base, "-right", "KSTREAM-ASOFRIGHT-")
    merge_name = names.suffixed(base, "-merge", "KSTREAM-MERGE-")
    prefix = (merge_name if base is None else base) if store is None else check_name(store, "store name")
    rights = _right_store(f"{prefix}-right-store", tolerance_ms + grace_ms, key, other_value, logging)
    lefts = f"{prefix}-left-store"
    graph.claim_store(rights.store)
    graph.claim_store(lefts)
    is_left = kind is JoinKind.LEFT
    is_forward = direction == "forward"
    bounds = (tolerance_ms, grace_ms)
    join = once(
        lambda: AsOf(merge_name, rights.store, lefts, joiner, with_key, *bounds, is_forward, is_left, key.resolve())
    )
    left_spec = once(lambda: buffer_spec(lefts, WAITING_LEFT, key.resolve(), value.resolve(), has_changelog=logging))

    def specs() -> tuple[StoreSpec, StoreSpec]:
        return left_spec(), rights.spec()

    one = left.add(left_name, LogicalOperator(lambda: AsOfLeft(join()), specs), has_relaxed_null_keys=is_left)
    two = right.add(right_name, LogicalOperator(lambda: AsOfRight(join()), specs))
    node = LogicalNode(merge_name, LogicalOperator(PassThrough))
    graph.add((one, two), node)
    result = annotated(result_type(joiner), merge_name)
    joined = left.at(node, key, result, needs_repartition=False)
    joined.side = SideOutputs(left.at(node, key, joint(value, other_value, merge_name)), has_late=True)
    joined.side.attach([one, two])
    return joined


def _right_store(store: str, kept_ms: int, key: SerdeVariable, value: SerdeVariable, logging: bool) -> Materialized:
    """Return the store of the right side, in which records with equal keys and times are separate entries."""
    return Materialized(
        store,
        False,
        WINDOW,
        key,
        value,
        has_caching=False,
        has_changelog=logging,
        retention_ms=kept_ms + 1,
        window_size_ms=1,
        retain_duplicates=True,
        changelog_config={"cleanup.policy": "delete"},
    )
