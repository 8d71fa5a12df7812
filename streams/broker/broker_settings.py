"""All settings of a broker by Kafka's names: its own, those of groups, and those of topics that have none."""

from collections.abc import Mapping
from typing import Final

from attrs import evolve, field, frozen

from streams.broker.logs.config import TOPIC_DEFAULTS, BrokerConfig, BrokerOptions, TopicConfig, parse_config
from streams.core.errors import BrokerError, ConfigError
from streams.core.settings.setting import Setting, group, kafka_table, texts_of, with_texts
from streams.group import CoordinatorConfig


class EmbeddedOptions(BrokerOptions, total=False):
    """The keyword arguments of ``EmbeddedBroker`` that are settings: some of the broker, and any by Kafka's names."""

    settings: Mapping[str, str]


@frozen
class BrokerSettings:
    """The settings of a broker; ``topics`` are texts by the names that topics have for them."""

    broker: BrokerConfig = group(BrokerConfig)  # noqa: RUF009 - frozen.
    groups: CoordinatorConfig = group(CoordinatorConfig)  # noqa: RUF009 - frozen.
    topics: Mapping[str, str] = field(factory=dict)

    def with_texts(self, texts: Mapping[str, str]) -> "BrokerSettings":
        """Return settings of which some are changed, such as ``{"log.retention.ms": "3600000"}``.

        Raises:
            ConfigError: a setting is unknown or has no effect in this broker, its value is invalid, or two settings of
                topics contradict each other.
        """
        of_topics = {name: text for name, text in texts.items() if name in TOPIC_DEFAULTS}
        others = {name: text for name, text in texts.items() if name not in TOPIC_DEFAULTS}
        changed = with_texts(self, others, {name: row for name, row in TABLE.items() if row.doc}, "brokers")
        shown = texts_of(with_texts(TopicConfig(own={}), of_topics, TOPIC_DEFAULTS, "brokers"))
        names = [TOPIC_DEFAULTS[name].kafka_name for name in of_topics]
        topics = {**self.topics, **{name: shown[name] for name in names}}
        try:
            parse_config({}, topics)
        except BrokerError as error:
            raise ConfigError(f"settings of brokers for topics: {error}") from error
        return evolve(changed, topics=topics)

    def shown(self) -> dict[str, str]:
        """Return all settings as texts, with those that are only shown."""
        topics = parse_config({}, self.topics).shown()
        defaults = {name: topics[row.kafka_name] for name, row in TOPIC_DEFAULTS.items()}
        return defaults | texts_of(self.broker) | texts_of(self.groups)


#: All settings of a broker.
TABLE: Final[Mapping[str, Setting]] = {**kafka_table(BrokerSettings), **TOPIC_DEFAULTS}
