"""Failures in a task: calls to its exception handlers, and errors that name the task, node and record."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from attrs import define

from streams.core.errors import ForeignFormatError, HandlerError, ProcessingError, StreamsError
from streams.core.handlers import ErrorHandlerContext, FailureOrigin, ProducerRecord
from streams.core.records import Record
from streams.core.threads import INTERRUPTIONS
from streams.core.user_code import expected_result
from streams.topology import FlatMap, FlatMapValues, Map

if TYPE_CHECKING:
    from streams.runtime.task import Task


@define(eq=False)
class TaskFailures:
    """Handles the failures of one task."""

    _task: "Task"
    #: The failure for which a handler returned "fail"; no other handler is called for it.
    _decided: ProcessingError | None = None

    def is_final(self, error: BaseException) -> bool:
        """Return whether an error fails the task without a call to an exception handler."""
        return error is self._decided or isinstance(error, HandlerError)

    def of_record(self, error: BaseException, node: str | None) -> ProcessingError:
        """Return the error to raise for a failure at a node; it names the position of the current record."""
        task = self._task
        metadata = task.record_metadata()
        where = f" at {metadata.topic}-{metadata.partition} offset {metadata.offset}" if metadata else ""
        what = str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
        operator = getattr(task.topology.nodes.get(node or ""), "operator", None)
        if isinstance(operator, Map | FlatMap | FlatMapValues):
            what += expected_result(error, operator.mapper, operator.result)
        return ProcessingError(
            f"task {task.task_id}, node {node!r}{where}: {what}",
            node=node,
            task_id=task.task_id,
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
            f"task {self._task.task_id}, node {node!r}, {what} at {time_ms}: {type(error).__name__}: {error}",
            node=node,
            task_id=self._task.task_id,
        )

    def skips_punctuation(self, node: str, error: Exception) -> bool:
        """Call the processing handler for a punctuation that failed; return whether the task continues."""
        handlers = self._task.handlers
        return handlers.settings.may_skip("processing_handler") and handlers.skips(
            "processing_handler", self._context(node), None, error
        )

    def skips_unwritable(
        self, node: str, record: ProducerRecord[Any, Any], error: Exception, origin: FailureOrigin
    ) -> bool:
        """Call the production handler for an output that a sink cannot write; return whether the task continues."""
        return self._task.handlers.skips("production_handler", self._context(node, origin), record, error)

    def answer_about_unsent(
        self, record: ProducerRecord[Any, Any], error: Exception
    ) -> Literal["fail", "continue", "retry"]:
        """Call the production handler for an output that could not be sent; its source record is no longer known."""
        task = self._task
        context = ErrorHandlerContext(
            task.sink_of(record.topic),
            task.task_id,
            None,
            -1,
            -1,
            record.timestamp_ms,
            record.headers,
            origin="send",
            dead_letter_topic=task.handlers.settings.dead_letter_topic,
        )
        return task.handlers.answer("production_handler", context, record, error)

    def on_error(self, node: str, error: Exception, key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
        """Call the processing handler for a record that failed at a node.

        Raises:
            ProcessingError: the handler returned "fail".
        """
        if self.is_final(error) or isinstance(error, ForeignFormatError):
            # Data in a foreign format in a store is not the fault of this record.
            raise error
        record = Record(key, value, timestamp_ms, headers or ())
        if not self._task.handlers.skips("processing_handler", self._context(node), record, error):
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
            raise self.decided(error, self._task.program.failed_node(error)) from error

    def _context(self, node: str, origin: FailureOrigin | None = None) -> ErrorHandlerContext:
        """Return the handler context for a failure at a node."""
        task = self._task
        topic, number, offset = task.origin()
        timestamp_ms, headers, key, value = task.raw_record()
        return ErrorHandlerContext(
            node,
            task.task_id,
            topic or None,
            number,
            offset,
            timestamp_ms,
            headers,
            key,
            value,
            origin,
            task.handlers.settings.dead_letter_topic,
        )
