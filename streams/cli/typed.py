"""Topics that are named as ``SCRIPT:TOPIC``: records are read and written with the types of the script."""

from typing import Any

from attrs import frozen

from streams.cli.mistakes import UsageError
from streams.cli.scripts import Script, load
from streams.cli.topic_declarations import sink_topics, source_topics, topic_in
from streams.core.settings.config import StreamsConfig
from streams.core.topic import Topic


@frozen
class NamedTopic:
    """A topic by name; ``topic`` declares its types, None if it is named without a script."""

    name: str
    topic: Topic[Any, Any] | None = None

    @classmethod
    def parse(cls, text: str) -> "NamedTopic":
        """Parse ``TOPIC``, ``SCRIPT:TOPIC`` or ``SCRIPT:FUNCTION:TOPIC``; a topic has no colon in its name.

        Raises:
            ScriptError: the script cannot be loaded, or its topology cannot be built.
            UsageError: the topology neither reads nor writes the topic.
        """
        script, colon, name = text.rpartition(":")
        if not colon:
            return cls(text)
        parsed = Script.parse(script)
        topology = load(parsed, StreamsConfig.of(application_id=parsed.application_id))
        topic = topic_in(topology, name)
        if topic is None:
            names = ", ".join(sorted(source_topics(topology) | sink_topics(topology)))
            raise UsageError(f"{text}: the topology neither reads nor writes {name!r}; its topics are {names}")
        return cls(name, topic)
