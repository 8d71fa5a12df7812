"""Calls the methods of a sink without a worker, in the orders in which workers call them.

Of the other packages, this module imports only ``connect`` and ``core``.
"""

from collections.abc import Callable
from typing import Any

from streams.connect import ConnectError, Guarantee, SinkBlock, SinkConnector, SinkFencedError
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from streams.testing.kit.sink_rows import SinkKitError
from streams.testing.kit.victims import check_closing

#: The name of all workers of the kit.
NAME = "sink-kit"

Make = Callable[[], SinkConnector[Any, Any]]


def check_ends(make: Make) -> Guarantee:
    """Check the methods that a worker may call before ``open``, and return the guarantee.

    Raises:
        SinkKitError: a method does not do what the protocol says.
    """
    sink = make()
    guarantee = sink.guarantee
    if not isinstance(guarantee, Guarantee):
        raise SinkKitError(f"guarantee is a Guarantee, such as Guarantee.EXACTLY_ONCE, not {guarantee!r}")
    lasting = (ConfigError("a setting is wrong"), SinkFencedError("overtaken"), ConnectError("rejected"))
    check_closing(sink, ("abort", "close", "close"), lasting, SinkKitError)
    return guarantee


def check_positions(make: Make, topic: Topic[Any, Any], record: tuple[Any, Any]) -> None:
    """Check ``open``, an empty block and an aborted block; the target has no new rows afterwards.

    Afterwards the stored positions are beyond the end of the topic, so no worker can continue with this target.

    Raises:
        SinkKitError: a method does not do what the protocol says.
    """
    sink = make()
    try:
        asked = [0, 1]
        stored = dict(sink.open(NAME, topic, asked))
        if not set(stored) <= set(asked) or not all(type(at) is int for at in stored.values()):
            raise SinkKitError(f"open() for the partitions {asked} returns {stored}: offsets of these partitions only")
        if dict(sink.open(NAME, topic, [])) != {}:
            raise SinkKitError("open() for no partitions returns positions")
        sink.open(NAME, topic, asked)
        at = stored.get(0, 0) + 3
        sink.write(SinkBlock(topic, 0, [], [], [], [], None, at))
        sink.commit()
        if sink.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        _check_position(sink, topic, at, "a block without records was committed")
        sink.write(SinkBlock(topic, 0, [at], [record[0]], [record[1]], [0], None, at + 1))
        sink.abort()
        sink.commit()
        _check_position(sink, topic, at, "a block behind it was written and aborted, before the next commit")
    finally:
        sink.close()


def _check_position(sink: SinkConnector[Any, Any], topic: Topic[Any, Any], at: int, after: str) -> None:
    stored = dict(sink.open(NAME, topic, [0])).get(0)
    if stored != at:
        raise SinkKitError(f"open() returns the position {stored}, not {at}, after {after}")
