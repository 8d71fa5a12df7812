"""The topics to which a consumer is subscribed, by name or by pattern, and the types that decode their records.

Of the other packages, this module imports only ``core``.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from attrs import define, field

from streams.clients.metadata import MetadataCache
from streams.core.errors import ConfigError
from streams.core.topic import Topic, topic_names

#: Argument of ``subscribe``: names, topics with their types, or one regular expression.
Topics: TypeAlias = Iterable[str | Topic[Any, Any]] | re.Pattern[str]


@define(eq=False)
class TopicSubscription:
    """The topics to which a consumer is subscribed; with a pattern, ``names`` are the topics that match it."""

    pattern: re.Pattern[str] | None = None
    names: tuple[str, ...] = ()
    typed: dict[str, Topic[Any, Any]] = field(factory=dict)

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription.

        Raises:
            ConfigError: ``topics`` is empty, or has something that is neither a Topic nor a name.
        """
        if isinstance(topics, re.Pattern):
            self.pattern, self.names = topics, ()
            return
        given = [topics] if not isinstance(topics, Iterable) or isinstance(topics, str) else list(topics)
        if not given:
            raise ConfigError("subscribe() got no topic; call unsubscribe() to give up all topics")
        names = topic_names(given, "subscribe()", ConfigError)
        self.know(topic for topic in given if isinstance(topic, Topic))
        self.pattern = None
        self.names = tuple(sorted(set(names)))

    def unsubscribe(self) -> None:
        """Clear the subscription; the types of topics are kept."""
        self.pattern, self.names = None, ()

    def know(self, topics: Iterable[Topic[Any, Any]]) -> None:
        """Register topics, whose types are used to decode records."""
        self.typed.update((topic.name, topic) for topic in topics)

    def match(self, metadata: MetadataCache) -> None:
        """Set the subscribed topics to those that match the pattern; internal topics never match."""
        pattern = self.pattern
        if pattern is not None:
            found = (t.name for t in metadata.topics.values() if not t.is_internal and pattern.fullmatch(t.name))
            self.names = tuple(sorted(found))
