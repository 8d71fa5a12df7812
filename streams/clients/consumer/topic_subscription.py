"""The topics to which a consumer is subscribed, by name or by pattern, and the types that decode their records.

Of the other packages, this module imports only ``core``.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.clients.metadata import MetadataCache
from streams.core.errors import ConfigError, TopologyError
from streams.core.topic import Topic, check_topic_name, topic_names


@frozen
class SubscriptionPattern:
    """A regular expression that the group coordinator matches against the names of all topics (KIP-848).

    ``pattern`` is in the syntax of the broker: Kafka's is RE2/J, and the embedded broker takes what both RE2 and Python
    have.  It is matched against the full names, also of internal topics.  Only members with
    ``group_protocol="consumer"`` may subscribe to one.  The consumer then needs no metadata of topics that it is not
    assigned.

    Raises:
        ConfigError: ``pattern`` is not a text, or empty.
    """

    pattern: str

    def __attrs_post_init__(self) -> None:
        pattern: object = self.pattern
        if not isinstance(pattern, str) or not pattern:
            raise ConfigError(f"SubscriptionPattern({pattern!r}): give a regular expression as text, like 'orders-.*'")


#: Argument of ``subscribe``: names, topics with their types, or one regular expression.
Topics: TypeAlias = Iterable[str | Topic[Any, Any]] | re.Pattern[str] | SubscriptionPattern


@define(eq=False)
class TopicSubscription:
    """The topics to which a consumer is subscribed; with a pattern, ``names`` are the topics that match it.

    With a pattern that the broker matches, there are no names.
    """

    pattern: re.Pattern[str] | None = None
    #: The expression that the broker matches, or "".
    broker_pattern: str = ""
    names: tuple[str, ...] = ()
    typed: dict[str, Topic[Any, Any]] = field(factory=dict)

    def subscribe(self, topics: Topics, *, may_match_at_broker: bool = False) -> None:
        """Replace the subscription.

        Raises:
            ConfigError: ``topics`` is empty, or has something that is neither a Topic nor the name of one; or it is a
                ``SubscriptionPattern``, and not ``may_match_at_broker``.
        """
        if isinstance(topics, SubscriptionPattern):
            if not may_match_at_broker:
                raise ConfigError(
                    "subscribe() got a SubscriptionPattern, which the broker matches only for consumers with "
                    "group_protocol='consumer'; set that, or give a compiled pattern, which this consumer matches"
                )
            self.pattern, self.names, self.broker_pattern = None, (), topics.pattern
            return
        if isinstance(topics, re.Pattern):
            self.pattern = topics
            self.names = ()
            self.broker_pattern = ""
            return
        topic_list = [topics] if not isinstance(topics, Iterable) or isinstance(topics, str) else list(topics)
        if not topic_list:
            raise ConfigError("subscribe() got no topic; call unsubscribe() to give up all topics")
        names = topic_names(topic_list, "subscribe()", ConfigError)
        for name in names:
            _check_name(name)
        self.know(topic for topic in topic_list if isinstance(topic, Topic))
        self.pattern = None
        self.names = tuple(sorted(set(names)))
        self.broker_pattern = ""

    def unsubscribe(self) -> None:
        """Clear the subscription; the types of topics are kept."""
        self.pattern = None
        self.names = ()
        self.broker_pattern = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a topic nor a pattern."""
        return not self.names and self.pattern is None and not self.broker_pattern

    def know(self, topics: Iterable[Topic[Any, Any]]) -> None:
        """Register topics, whose types are used to decode records."""
        self.typed.update((topic.name, topic) for topic in topics)

    def match(self, metadata: MetadataCache) -> None:
        """Set the subscribed topics to those that match the pattern; internal topics never match."""
        pattern = self.pattern
        if pattern is not None:
            matching = (t.name for t in metadata.topics.values() if not t.is_internal and pattern.fullmatch(t.name))
            self.names = tuple(sorted(matching))


def _check_name(name: str) -> None:
    try:
        check_topic_name(name)
    except TopologyError as error:
        # A topic of this name would be waited for.
        raise ConfigError(f"subscribe(): {error}; a pattern is given as re.compile({name!r})") from None
