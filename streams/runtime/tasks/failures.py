"""The failures of a task: which handler answers them, and which error names the record and the node.

The module is used only when a record, a punctuation or an output fails.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from attrs import define

from streams.core.blocks.records import Headers, Record, RecordContext, TaskId
from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.errors import ForeignFormatError, HandlerError, ProcessingError, StreamsError
from streams.core.handlers import ErrorHandlerContext, FailureOrigin, ProducerRecord
from streams.core.user_code import expected_result
from streams.runtime.tasks.current_record import CurrentRecord
from streams.runtime.tasks.handling import Handlers
from streams.topology import FlatMap, FlatMapValues, Map, RawRecord, Topology


@define(eq=False)
class TaskFailures:
    """Handles the failures of one task."""

    _task_id: TaskId
    _topology: Topology
    _handlers: Handlers
    _current: CurrentRecord
    #: Returns the node to which the innermost line of the program in a traceback belongs.
    _failed_node: Callable[[BaseException], str | None]
    #: Returns the name of the sink that writes to a topic.
    _sink_of: Callable[[str], str]
    #: The failure for which a handler returned "fail"; no other handler is called for it.
    _decided: ProcessingError | None = None

    def is_final(self, error: BaseException) -> bool:
        """Return whether an error fails the task without a call to an exception handler."""
        return error is self._decided or isinstance(error, HandlerError)

    def of_record(self, error: BaseException, node: str | None) -> ProcessingError:
        """Return the error to raise for a failure at a node; it names the position of the current record."""
        metadata = self._current.metadata()
        where = f" at {metadata.topic}-{metadata.partition} offset {metadata.offset}" if metadata else ""
        what = str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
        operator = getattr(self._topology.nodes.get(node or ""), "operator", None)
        if isinstance(operator, Map | FlatMap | FlatMapValues):
            what += expected_result(error, operator.mapper, operator.result)
        return ProcessingError(
            f"task {self._task_id}, node {node!r}{where}: {what}",
            node=node,
            task_id=self._task_id,
            topic=metadata.topic if metadata else None,
            partition=metadata.partition if metadata else None,
            offset=metadata.offset if metadata else None,
        )

    def decided(self, error: BaseException, node: str | None) -> ProcessingError:
        """Return the error to raise for a failure at a node, and call no other handler for this error."""
        self._decided = self.of_record(error, node)
        return self._decided

    def of_call(self, error: BaseException, what: str, node: str, time_ms: int) -> ProcessingError:
        """Return the error to raise for a failure in a call that no record causes, such as a punctuation."""
        return ProcessingError(
            f"task {self._task_id}, node {node!r}, {what} at {time_ms}: {type(error).__name__}: {error}",
            node=node,
            task_id=self._task_id,
        )

    def skips_punctuation(self, node: str, error: Exception) -> bool:
        """Call the processing handler for a punctuation that failed; return whether the task continues."""
        return self._handlers.settings.may_skip("processing_handler") and self._handlers.skips(
            "processing_handler", self._context(node), None, error
        )

    def skips_unwritable(
        self, node: str, record: ProducerRecord[Any, Any], error: Exception, origin: FailureOrigin
    ) -> bool:
        """Call the production handler for an output that a sink cannot write; return whether the task continues."""
        return self._handlers.skips("production_handler", self._context(node, origin), record, error)

    def answer_about_unsent(
        self, record: ProducerRecord[Any, Any], error: Exception
    ) -> Literal["fail", "continue", "retry"]:
        """Call the production handler for an output that could not be sent; its source record is no longer known."""
        context = ErrorHandlerContext(
            self._sink_of(record.topic),
            self._task_id,
            None,
            -1,
            -1,
            record.timestamp_ms,
            record.headers,
            origin="send",
            dead_letter_topic=self._handlers.settings.dead_letter_topic,
        )
        return self._handlers.answer("production_handler", context, record, error)

    def on_error(self, node: str, error: Exception, key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
        """Call the processing handler for a record that failed at a node.

        Raises:
            ProcessingError: the handler returned "fail".
        """
        if self.is_final(error) or isinstance(error, ForeignFormatError):
            # Data in a foreign format in a store is not the fault of this record.
            raise error
        record = Record(key, value, timestamp_ms, headers or ())
        if not self._handlers.skips("processing_handler", self._context(node), record, error):
            raise self.decided(error, node) from error

    def check(self, call: Callable[[], None]) -> None:
        """Call a function that processes a known record outside of a run of records.

        Raises:
            ProcessingError: the function failed.
        """
        try:
            call()
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            if self.is_final(error):
                raise
            raise self.decided(error, self._failed_node(error)) from error

    def _context(self, node: str, origin: FailureOrigin | None = None) -> ErrorHandlerContext:
        topic, number, offset = self._current.origin()
        timestamp_ms, headers, key, value = self._current.source_record()
        return ErrorHandlerContext(
            node,
            self._task_id,
            topic or None,
            number,
            offset,
            timestamp_ms,
            headers,
            key,
            value,
            origin,
            self._handlers.settings.dead_letter_topic,
        )

    def fail(
        self, node: str, error: BaseException, key: Any, value: Any, timestamp_ms: int, headers: Headers | None
    ) -> None:
        """Call the processing handler for a record whose call or batch failed at a node.

        An ``error`` that is not an ``Exception`` fails the task without a call to the handler.  An interruption, such
        as ``KeyboardInterrupt``, is raised unchanged.

        Raises:
            ProcessingError: the handler returned "fail".
        """
        if isinstance(error, INTERRUPTIONS):
            raise error
        if not isinstance(error, Exception):
            # Such as a cancelled future: not a failure that a handler may skip, as in other nodes.
            raise self.decided(error, node) from error
        self.on_error(node, error, key, value, timestamp_ms, headers)

    def deliver(self, context: RecordContext, raw: RawRecord, forward: Callable[[], None]) -> None:
        """Call ``forward`` for the result of a call, with the metadata and raw record of its input.

        Raises:
            ProcessingError: the call or a downstream node failed, and the handler returned "fail".
        """
        self._current.within(context, partial(self.check, forward), raw)
