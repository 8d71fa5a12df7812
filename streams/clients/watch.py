"""Periodic refresh of a client's topic metadata, without blocking.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable, Set
from typing import Protocol

from streams.clients.errors import as_error, is_final
from streams.clients.metadata import MetadataCache
from streams.clients.network import Network
from streams.core.clock import Clock
from streams.core.settings.client_settings import ClientSettings
from streams.protocol.messages import Metadata, MetadataResponse
from streams.protocol.request import Response
from streams.protocol.transport import ANY_NODE


class WatchSettings(Protocol):
    """The settings of a client that the watch uses."""

    @property
    def client(self) -> ClientSettings:
        """The settings that all clients have."""
        ...

    @property
    def allow_auto_create_topics(self) -> bool:
        """Whether a metadata request may create a missing topic."""
        ...


class WatchParts(Protocol):
    """The parts of a client that the watch uses."""

    @property
    def network(self) -> Network:
        """The requests of the client."""
        ...

    @property
    def clock(self) -> Clock:
        """The source of time."""
        ...

    @property
    def metadata(self) -> MetadataCache:
        """The metadata to refresh."""
        ...

    @property
    def settings(self) -> WatchSettings:
        """The settings of the client."""
        ...


class TopicWatch:
    """Refreshes topic metadata after its maximum age, on request, or sooner if topics are missing."""

    def __init__(self, parts: WatchParts, on_update: Callable[[], None]) -> None:
        self._network = parts.network
        self._clock = parts.clock
        self._metadata = parts.metadata
        self._on_update = on_update
        self._max_age_ms = parts.settings.client.metadata_max_age_ms
        self._retry_backoff_ms = parts.settings.client.retry_backoff_ms
        self._allow_auto_create_topics = parts.settings.allow_auto_create_topics
        self._due_ms = 0
        self._earliest_ms = 0
        self._is_asking = False
        self._failure: Exception | None = None

    def refresh(self) -> None:
        """Request new metadata at the next ``poll``, because the topics of interest have changed."""
        self._due_ms = 0

    def expedite(self) -> None:
        """Request new metadata as soon as the backoff allows, because the cached metadata seems stale."""
        self._due_ms = min(self._due_ms, self._earliest_ms)

    def poll(self, topics: Set[str] | None) -> bool:
        """Request the metadata of ``topics`` (None for all) if a refresh is due; return whether it was due.

        Raises:
            AuthenticationError, BrokerError: the last request failed and is not retriable; raised once per request.
        """
        if self._failure is not None:
            failure = self._failure
            self._failure = None
            raise as_error(failure, "topics") from failure
        if self._is_asking or self._clock.monotonic_ms() < self._due_ms or topics == set():
            return False
        asked = None if topics is None else tuple(sorted(topics))
        self._is_asking = True
        self._network.send(
            ANY_NODE, Metadata(asked, self._allow_auto_create_topics), lambda response: self._receive(response, asked)
        )
        return True

    def next_deadline_ms(self) -> int | None:
        """Return when the next request is due, or None while a request is in flight."""
        return None if self._is_asking else self._due_ms

    def _receive(self, response: Response | Exception, asked: tuple[str, ...] | None) -> None:
        now = self._clock.monotonic_ms()
        self._is_asking = False
        self._earliest_ms = now + self._retry_backoff_ms
        if not isinstance(response, MetadataResponse):
            self._due_ms = self._earliest_ms
            if isinstance(response, Exception) and is_final(response):
                self._failure = response
            return
        self._metadata.update(response, asked)
        is_complete = asked is None or all(topic in self._metadata.topics for topic in asked)
        self._due_ms = now + (self._max_age_ms if is_complete else min(self._max_age_ms, 10 * self._retry_backoff_ms))
        self._on_update()
