"""Processor wrappers: functions that wrap every processing node of a topology (KIP-1112).

This module imports only other modules of ``core``.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from streams.core.blocks.records import Headers, RecordMetadata, TaskId
from streams.core.errors import ConfigError
from streams.core.user_code import check_arity, refuse_result


class WrappedNode(Protocol):
    """The node of one task whose process function is wrapped."""

    @property
    def node(self) -> str:
        """Return the name of the node."""
        ...

    @property
    def task_id(self) -> TaskId:
        """Return the id of the node's task."""
        ...

    @property
    def application_id(self) -> str:
        """Return the id that members of the group and internal topics share."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Return the topic, partition and offset of the current record, or None within a punctuation."""
        ...

    def wall_clock_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds, from the clock of the instance or test driver."""
        ...


#: Processes one record: key, value, timestamp_ms (event time), and headers or None. Downstream of a table the
#: value is a tuple ``(new, old, is_latest)``.
RecordFunction: TypeAlias = Callable[[Any, Any, int, Headers | None], object]

#: Called once per node of each task with the node and its process function; returns the function to call instead.
ProcessorWrapper: TypeAlias = Callable[[WrappedNode, RecordFunction], RecordFunction]


def check_wrapper(setting: str, wrapper: Any) -> None:
    """Check that the processor wrapper given for ``setting`` can be called.

    Raises:
        ConfigError: the wrapper is a class, async or a generator, or does not take two arguments.
    """
    check_arity(wrapper, f"setting {setting!r}", 2, "a function of (node, process)")


def wrapped(wrapper: ProcessorWrapper, node: WrappedNode, process: RecordFunction) -> RecordFunction:
    """Return the wrapped process function of a node.

    The wrapper decides whether and with which record ``process`` is called; its own result is ignored.

    Raises:
        ConfigError: the wrapper raises an exception, or does not return a function of four arguments.
    """
    # A user's processor returns the headers that it has changed; a wrapper need not know.
    result: list[object] = [None]

    def call(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        result[0] = process(key, value, timestamp_ms, headers)

    try:
        outer = wrapper(node, call)
    except Exception as error:
        raise ConfigError(
            f"setting 'processor_wrapper', node {node.node!r}: {type(error).__name__}: {error}; "
            "it must return process, or a function of (key, value, timestamp_ms, headers) that calls it"
        ) from error
    if not callable(outer):
        raise ConfigError(
            f"setting 'processor_wrapper': it returned {outer!r} for node {node.node!r}; "
            "return process, or a function of (key, value, timestamp_ms, headers) that calls it"
        )
    form = "a function of (key, value, timestamp_ms, headers)"
    check_arity(outer, f"setting 'processor_wrapper', node {node.node!r}", 4, form)

    def run(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> object:
        result[0] = headers
        answer = outer(key, value, timestamp_ms, headers)
        if answer is not None:
            refuse_result(answer, f"the processor_wrapper of node {node.node!r}")
        return result[0]

    return run
