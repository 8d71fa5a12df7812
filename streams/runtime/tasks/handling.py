"""Handling of records that fail in a task: handler calls, metrics and dead letters.

Source readers, sinks and tasks use this module only when a record fails.  It implements KIP-161, KIP-210, KIP-1033 and
KIP-1034, and imports only ``core`` from outside ``runtime``.
"""

import logging
from typing import Any, Final, Literal

from attrs import define, field, frozen

from streams.core.dead_letters import ROW_HEADER
from streams.core.errors import HandlerError
from streams.core.handlers import ErrorHandlerContext, HandlerResponse, ProducerRecord
from streams.core.metrics import DropReason, Metrics, table
from streams.core.settings.config import StreamsConfig
from streams.core.topic import is_topic_name
from streams.core.user_code import located, place_in_user_code, refuse_result
from streams.runtime.tasks.outbox import Outbox

logger = logging.getLogger(__name__)

Setting = Literal["deserialization_handler", "processing_handler", "production_handler"]

#: The reason under which the records that a handler drops are counted.
_FAILED: Final[dict[Setting, DropReason]] = {
    "deserialization_handler": DropReason.UNREADABLE,
    "processing_handler": DropReason.FAILED,
    "production_handler": DropReason.UNWRITABLE,
}


@frozen
class HandlerSettings:
    """The three exception handlers of an application, and its dead letter queue topic."""

    deserialization_handler: Any = "fail"
    processing_handler: Any = "fail"
    production_handler: Any = "fail"
    dead_letter_topic: str = ""

    @classmethod
    def of(cls, config: StreamsConfig) -> "HandlerSettings":
        """Return the handlers from the settings of an application."""
        return cls(
            config.deserialization_handler,
            config.processing_handler,
            config.production_handler,
            config.errors_dead_letter_queue_topic_name,
        )

    def may_skip(self, setting: Setting) -> bool:
        """Return whether the handler of ``setting`` may skip a failed record, so that it must be called."""
        return bool(getattr(self, setting) != "fail")

    @property
    def may_ask(self) -> bool:
        """Whether any handler may be called, so that the raw keys and values of records must be kept."""
        return any(self.may_skip(setting) for setting in _FAILED)

    @property
    def has_functions(self) -> bool:
        """Whether any handler is a user function, whose dead letters may go to any topic."""
        return any(not isinstance(getattr(self, setting), str) for setting in _FAILED)


@define(eq=False)
class Handlers:
    """The handlers of one task.  ``outbox`` is None for a global store, which writes nothing."""

    settings: HandlerSettings
    metrics: Metrics
    outbox: Outbox | None = None
    #: Whether the outbox has dead letters of a handler that returned "fail", which are sent before the task fails.
    has_last_words: bool = False
    _has_complained: bool = field(default=False, init=False)

    def skips(self, setting: Setting, context: ErrorHandlerContext, record: Any, error: Exception) -> bool:
        """Call a handler, and return whether the task continues.

        If it does, the record is counted as dropped, and dead letters are written.

        Raises:
            HandlerError: the handler failed, or returned an invalid response.
        """
        return self.answer(setting, context, record, error) == "continue"

    def answer(
        self, setting: Setting, context: ErrorHandlerContext, record: Any, error: Exception
    ) -> Literal["fail", "continue", "retry"]:
        """Call a handler and carry out its response; if the response is "fail", the caller must fail the task.

        Raises:
            HandlerError: the handler failed, or returned an invalid response.
        """
        response = self._response(setting, context, record, error)
        self._write(setting, context, response)
        if response.result == "continue":
            letters = response.dead_letters if self.outbox is not None else ()
            self._drop(setting, context, error, ", ".join(dict.fromkeys(letter.topic for letter in letters)))
        elif response.result == "fail" and response.dead_letters:
            self.has_last_words = True
        return response.result

    def _response(
        self, setting: Setting, context: ErrorHandlerContext, record: Any, error: Exception
    ) -> HandlerResponse:
        handler = getattr(self.settings, setting)
        answer: Any = handler
        if not isinstance(handler, str):
            try:
                answer = handler(context, record, error)
                refuse_result(answer, f"{setting} {located(handler)}")
            except Exception as failure:
                raise _handler_error(
                    setting, handler, context, error, f"failed: {type(failure).__name__}: {failure}"
                ) from failure
        if answer == "continue":
            # A global store has no producer and so no dead letters, as in Kafka Streams.
            has_topic = self.settings.dead_letter_topic and self.outbox is not None
            return HandlerResponse.resume([context.dead_letter(error)] if has_topic else ())
        if answer == "fail":
            return HandlerResponse.fail()
        can_retry = setting == "production_handler"
        if isinstance(answer, HandlerResponse) and answer.result in ("fail", "continue"):
            return answer
        if can_retry and (answer == "retry" or (isinstance(answer, HandlerResponse) and answer.result == "retry")):
            return HandlerResponse.retry()
        texts = "'fail', 'continue' or 'retry'" if can_retry else "'fail' or 'continue'"
        raise _handler_error(
            setting, handler, context, error, f"returned {answer!r}; it must return {texts}, or a HandlerResponse"
        )

    def _write(self, setting: Setting, context: ErrorHandlerContext, response: HandlerResponse) -> None:
        for letter in response.dead_letters:
            if not _is_letter(letter):
                raise _handler_error(
                    setting,
                    getattr(self.settings, setting),
                    context,
                    None,
                    f"returned the dead letter {letter!r}; it must be a ProducerRecord with the name of a topic, "
                    "and with "
                    "bytes or None as key and value",
                )
            if self.outbox is not None:
                self.outbox.append(
                    letter.topic, letter.key, letter.value, letter.timestamp_ms, letter.headers, letter.partition
                )
                self.metrics.counter(table.DEAD_LETTERS, task=context.task_id).value += 1
            elif not self._has_complained:
                self._has_complained = True
                logger.warning("node %r fills a global store, which has no producer: its dead letters are not written",
                               context.node)  # fmt: skip

    def _drop(self, setting: Setting, context: ErrorHandlerContext, error: Exception, sent_to: str) -> None:
        place = place_in_user_code(error)
        reason = _FAILED[setting]
        where = "within a punctuation" if context.topic is None else f"{context.topic}-{context.partition}"
        if context.topic is not None:
            where += f" at offset {context.offset}"
        what = f"{_row_of(context)}{type(error).__name__}: {error}" + (f" (in {place})" if place else "")
        now_ms = self.metrics.clock.now_ms()
        self.metrics.failures.note(error, now_ms, node=context.node, task=context.task_id, sent_to=sent_to)
        end = f"sent to {sent_to}" if sent_to else "the record is dropped"
        logger.info("%s, node %r: %s: %s; %s", where, context.node, reason.meaning, what, end)
        self.metrics.drop(
            reason,
            task=context.task_id,
            node=context.node,
            example=f"{where}: {what}",
            error=type(error).__name__,
            has_letter=bool(sent_to),
        )


def _row_of(context: ErrorHandlerContext) -> str:
    """Return the file, line and reason of an unreadable input row as a message prefix, or "" for any other record."""
    found = next((value for name, value in context.headers if name == ROW_HEADER), None)
    return f"{found.decode(errors='replace')}: " if found else ""


def _is_letter(letter: Any) -> bool:
    return (
        isinstance(letter, ProducerRecord)
        and is_topic_name(letter.topic)
        and all(isinstance(part, bytes | None) for part in (letter.key, letter.value))
    )


def _handler_error(
    setting: Setting, handler: Any, context: ErrorHandlerContext, error: Exception | None, what: str
) -> HandlerError:
    at = "" if context.topic is None else f" at {context.topic}-{context.partition} offset {context.offset}"
    asked = "" if error is None else f"; it handled {type(error).__name__}: {error}"
    return HandlerError(
        f"task {context.task_id}, node {context.node!r}{at}: {setting} {located(handler)} {what}{asked}",
        setting=setting,
        node=context.node,
        task_id=context.task_id,
        topic=context.topic,
        partition=None if context.topic is None else context.partition,
        offset=None if context.topic is None else context.offset,
    )
