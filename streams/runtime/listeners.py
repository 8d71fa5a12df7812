"""The user's functions that an instance calls, and their answers.  Imports core."""

from collections.abc import Callable
from enum import Enum

from attrs import fields, frozen

from streams.core.errors import ConfigError
from streams.core.user_code import refuse_unawaited
from streams.runtime.life import StateListener
from streams.runtime.restore import RestoreListener


class ExceptionResponse(Enum):
    """What to do when a thread has failed (KIP-671)."""

    #: Start another thread in its place; its tasks continue from their last commit.
    REPLACE_THREAD = "replace_thread"
    #: Stop this instance; the others take its tasks.
    SHUTDOWN_CLIENT = "shutdown_client"
    #: Stop all instances of the application.
    SHUTDOWN_APPLICATION = "shutdown_application"


#: Called with the error that ended a thread; returns what to do.
ExceptionHandler = Callable[[BaseException], ExceptionResponse]


@frozen
class InstanceListeners:
    """The user's functions that an instance calls.

    Raises:
        ConfigError: one is async or a generator.
    """

    on_state: StateListener | None = None
    on_restore: RestoreListener | None = None
    on_exception: ExceptionHandler | None = None

    def __attrs_post_init__(self) -> None:
        for part in fields(type(self)):
            refuse_unawaited(getattr(self, part.name), part.name, error=ConfigError)
