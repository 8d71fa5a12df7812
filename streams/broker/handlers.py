"""The requests that are answered at once by a function of the broker, from all modules that have some."""

from collections.abc import Mapping
from typing import Final

from streams.broker import administration, operations
from streams.broker.service import Handler

HANDLERS: Final[Mapping[type, Handler]] = {**administration.HANDLERS, **operations.HANDLERS}
