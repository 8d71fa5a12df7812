"""Calls the methods of a sink without a worker, in the orders in which workers call them.

Of the other packages, this module imports only ``connect`` and ``core``.
"""

from collections.abc import Callable
from typing import Any

from streams.connect import ConnectError, Guarantee, SinkBlock, SinkConnector, SinkFencedError
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from streams.testing.sink_kit.judgement import SinkKitError

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
    for passing in (ConfigError("a setting is wrong"), SinkFencedError("overtaken"), ConnectError("rejected")):
        if sink.is_retriable(passing) is not False:
            raise SinkKitError(f"is_retriable({passing!r}) is not False: only errors that pass by themselves are True")
    for name in ("abort", "close", "close"):
        try:
            getattr(sink, name)()
        except Exception as error:
            raise SinkKitError(f"{name}() fails before open(), as after an open() that failed: {error!r}") from error
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
        found = dict(sink.open(NAME, topic, asked))
        if not set(found) <= set(asked) or not all(type(at) is int for at in found.values()):
            raise SinkKitError(f"open() for the partitions {asked} returns {found}: offsets of these partitions only")
        if dict(sink.open(NAME, topic, [])) != {}:
            raise SinkKitError("open() for no partitions returns positions")
        sink.open(NAME, topic, asked)
        at = found.get(0, 0) + 3
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
    found = dict(sink.open(NAME, topic, [0])).get(0)
    if found != at:
        raise SinkKitError(f"open() returns the position {found}, not {at}, after {after}")
