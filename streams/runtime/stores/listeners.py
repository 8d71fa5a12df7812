"""Listeners and handlers of an instance, and the responses of handlers.

The module imports only ``core`` from outside ``runtime``.
"""

from collections.abc import Callable
from enum import Enum

from attrs import fields, frozen

from streams.core.errors import ConfigError
from streams.core.user_code import refuse_unawaited
from streams.runtime.plan.life import StateListener
from streams.runtime.stores.restore import RestoreListener


class ExceptionResponse(Enum):
    """The response to the failure of a thread (KIP-671)."""

    #: Replace the thread; its tasks continue from their last commit.
    REPLACE_THREAD = "replace_thread"
    #: Stop this instance; its tasks move to the others.
    SHUTDOWN_CLIENT = "shutdown_client"
    #: Stop all instances of the application.
    SHUTDOWN_APPLICATION = "shutdown_application"


#: A function that is called with the error that ended a thread, and returns the response.
ExceptionHandler = Callable[[BaseException], ExceptionResponse]


@frozen
class InstanceListeners:
    """User functions that an instance calls: listeners and handlers.

    Raises:
        ConfigError: one of the functions is async or a generator.
    """

    on_state: StateListener | None = None
    on_restore: RestoreListener | None = None
    on_exception: ExceptionHandler | None = None

    def __attrs_post_init__(self) -> None:
        for part in fields(type(self)):
            refuse_unawaited(getattr(self, part.name), part.name, error=ConfigError)
