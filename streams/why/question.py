"""The question that ``why`` answers: which key, in which output, at which time."""

import json
import re
from collections.abc import Callable
from typing import Any

from attrs import fields, frozen, has

from streams.core.event_time.time_texts import span_text, time_ms, time_text
from streams.core.topic import TopicLike, topic_name

_DAY_MS = 86_400_000
#: Durations from this on are also shown in larger units, in milliseconds.
_LONG_MS = 600_000
#: Length of an ISO 8601 text to the minute, hour, day or second -> the span that it denotes, in milliseconds.
_SPANS = {16: 60_000, 13: 3_600_000, 10: _DAY_MS, 19: 1000}


@frozen
class TimeSpan:
    """A span of event time from ``from_ms`` up to ``to_ms`` (exclusive), and the text that the user gave."""

    from_ms: int
    to_ms: int
    text: str

    @classmethod
    def parse(cls, time: Any) -> "TimeSpan":
        """Return the span of a time: a whole day, hour, minute or second if ISO 8601 text ends there, otherwise 1 ms.

        >>> TimeSpan.parse("2015-05-18T10:05").to_ms - TimeSpan.parse("2015-05-18T10:05").from_ms
        60000

        Raises:
            InputError: ``time`` is not a time.
        """
        from_ms = time_ms(time, "at")
        if not isinstance(time, str) or time.lstrip("-").isdecimal():
            return cls(from_ms, from_ms + 1, time_text(from_ms))
        size_ms = _SPANS.get(len(time), 1)
        bare = re.sub(r"(Z|[+-]\d\d:\d\d)$", "", time) if "T" in time else time
        return cls(from_ms, from_ms + _SPANS.get(len(bare), size_ms), time)

    def has(self, time_ms: int) -> bool:
        """Return whether a time is in the span."""
        return self.from_ms <= time_ms < self.to_ms


@frozen
class Question:
    """The question why there is, or is not, an output for ``key``.

    Args:
        key: The key as an object, or as text, which matches every key with this text or JSON form.
        topic: Output topic; None for all.
        node: Node that the records should have reached; None for the sinks of ``topic``.
        at: Event time of the output, or a time in its window; None for the last output.
        limit: Maximum number of records to list per node.
    """

    key: Any
    topic: str | None = None
    node: str | None = None
    at: TimeSpan | None = None
    limit: int = 3

    @classmethod
    def of(
        cls, key: Any, topic: TopicLike | None = None, node: str | None = None, at: Any = None, limit: int = 3
    ) -> "Question":
        """Return a question from a topic and a time in any of the forms that the public API accepts.

        Raises:
            InputError: ``at`` is not a time.
            TopologyError: ``topic`` is not a topic.
        """
        name = None if topic is None else topic_name(topic, "why()")
        return cls(key, name, node, None if at is None else TimeSpan.parse(at), limit)

    def follows(self, key: Any) -> bool:
        """Return whether ``key`` is the key of the question."""
        if key is None or isinstance(self.key, str) is False:
            return bool(type(key) is type(self.key) and key == self.key)
        return bool(key == self.key or _reads_as(key, self.key))

    @property
    def mentions(self) -> Callable[[Any], bool]:
        """A function that returns whether a value contains the key, as a field or as a word in a text."""
        text = str(self.key)
        word = re.compile(rf"(?<![\w.]){re.escape(text)}(?![\w.])") if len(text) > 1 else None

        def mentions(value: Any) -> bool:
            if isinstance(value, str):
                return word is not None and word.search(value) is not None
            if isinstance(value, dict):
                return any(self.follows(part) for part in value.values())
            if has(type(value)):
                return any(self.follows(getattr(value, item.name)) for item in fields(type(value)))
            parts = getattr(value, "__dict__", None) or {
                name: getattr(value, name) for name in getattr(value, "__struct_fields__", ())
            }
            return any(self.follows(part) for part in parts.values())

        return mentions


def _reads_as(key: Any, text: str) -> bool:
    """Return whether ``text`` is the ``str`` or JSON form of a key that is not itself a str."""
    if isinstance(key, str):
        return False
    if str(key) == text:
        return True
    try:
        return bool(json.loads(text) == key)
    except ValueError:
        return False


def duration(time_ms: int) -> str:
    """Return a duration as text: in milliseconds, and from ten minutes on also in larger units.

    >>> duration(63_000), duration(1_840_000), duration(90_000_000)
    ('63,000 ms', '1,840,000 ms (30 min 40 s)', '90,000,000 ms (1 d 1 h)')
    """
    text = f"{time_ms:,} ms"
    return text if time_ms < _LONG_MS else f"{text} ({span_text(time_ms)})"


def shown(value: Any, width: int = 240) -> str:
    """Return the ``repr`` of a value, truncated to ``width`` characters."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 4]} ..."
