"""What a consumer wants to read: topics by name or pattern, and the types to decode them by.  Imports core."""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from attrs import define, field

from streams.clients.metadata import MetadataCache
from streams.core.errors import ConfigError
from streams.core.topic import Topic, topic_names

#: What ``subscribe`` takes: names, topics with their types, or one regular expression.
Topics: TypeAlias = Iterable[str | Topic[Any, Any]] | re.Pattern[str]


@define(eq=False)
class TopicSubscription:
    """Topics subscribed to; ``names`` are those that the pattern matches, where there is one."""

    pattern: re.Pattern[str] | None = None
    names: tuple[str, ...] = ()
    typed: dict[str, Topic[Any, Any]] = field(factory=dict)

    def subscribe(self, topics: Topics) -> None:
        """Replace what was subscribed to.

        Raises:
            ConfigError: there is nothing, or something that is neither a Topic nor a name.
        """
        if isinstance(topics, re.Pattern):
            self.pattern, self.names = topics, ()
            return
        given = [topics] if not isinstance(topics, Iterable) or isinstance(topics, str) else list(topics)
        if not given:
            raise ConfigError("subscribe() got no topic; call unsubscribe() to give all up")
        names = topic_names(given, "subscribe()", ConfigError)
        self.know(topic for topic in given if isinstance(topic, Topic))
        self.pattern = None
        self.names = tuple(sorted(set(names)))

    def unsubscribe(self) -> None:
        """Want nothing; types are still known."""
        self.pattern, self.names = None, ()

    def know(self, topics: Iterable[Topic[Any, Any]]) -> None:
        """Decode these by their types."""
        self.typed.update((topic.name, topic) for topic in topics)

    def match(self, metadata: MetadataCache) -> None:
        """Take the topics that the pattern matches, which internal ones never do."""
        pattern = self.pattern
        if pattern is not None:
            found = (t.name for t in metadata.topics.values() if not t.is_internal and pattern.fullmatch(t.name))
            self.names = tuple(sorted(found))
