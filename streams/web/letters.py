"""``/dead-letters``: the last records of the dead letter queue topic, grouped by reason, node and line of user code.

They are read on request, with a separate consumer.  ``/dead-letters/P:O`` is one letter.
``POST /dead-letters/redrive`` plans to send letters back to the partitions of their source records, or sends them.
"""

import logging
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from attrs import define, field
from starlette.requests import Request
from starlette.responses import Response

from streams.broker import EmbeddedBroker
from streams.clients import DeadLetters, Redriven, grouped
from streams.core.dead_letters import (
    LINE_HEADER,
    MESSAGE_HEADER,
    NODE_HEADER,
    OFFSET_HEADER,
    STACKTRACE_HEADER,
    Letter,
    LetterFilter,
)
from streams.core.errors import ConfigError, ProducerFencedError, SerializationError, StreamsError, UnknownTopicError
from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.runtime import Instance
from streams.web.answers import Refused, answer
from streams.web.arguments import Arguments
from streams.web.single import IsOver, Single

T = TypeVar("T")
log = logging.getLogger(__name__)

LETTERS_PATH = "/dead-letters"
REDRIVE_PATH = f"{LETTERS_PATH}/redrive"
#: Maximum number of offsets that are read, from the end of each partition.
MAX_LETTERS = 2_000
#: Maximum number of groups in a response; the largest ones are included.
MAX_GROUPS = 100
#: Time in seconds after which reading ends, and the letters read so far are returned.
READ_S = 5
#: Time in seconds after which a re-drive ends; the other letters are left for the next request.
REDRIVE_S = 30
#: Maximum size of the body of a request for a re-drive, in bytes.
MAX_BODY_BYTES = 16 << 10
#: Maximum number of characters of a key, a value or a stack trace of one letter in a response.
_MAX_CONTENT = 20_000
#: Maximum number of letters in memory.
_CHUNK = 50
#: Maximum number of characters of a text in a response.
_MAX_TEXT = 500


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """Which letters are to be re-driven; without ``execute`` nothing is sent."""

    reason: str | None = None
    node: str | None = None
    line: str | None = None
    source: str | None = None
    key: str | None = None
    #: ``PARTITION:OFFSET`` of one letter.
    place: str | None = None
    max_redrives: Annotated[int, msgspec.Meta(ge=1)] = 3
    rate: Annotated[int, msgspec.Meta(ge=1)] | None = None
    execute: bool = False

    @property
    def selected(self) -> LetterFilter:
        """The filter for dead letters that these fields define."""
        places = () if self.place is None else (_place(self.place),)
        return LetterFilter(
            _one(self.reason),
            _one(self.node),
            _one(self.line),
            _one(self.source),
            _one(self.key),
            offsets=[(partition, offset, offset) for partition, offset in places],
        )


def _one(text: str | None) -> tuple[str, ...]:
    return () if text is None else (text,)


@define
class _Group:
    """Dead letters with the same reason, node and line of user code."""

    first: Letter
    letters: int = 0
    redriven: int = 0
    sources: set[str] = field(factory=set)


@define(eq=False)
class LettersEndpoint:
    """The endpoint that responds with a summary of the dead letters of an application."""

    _instance: Instance
    _single: Single = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._single = Single("dead letters are being read", self._instance.environment.threads.signal)

    async def respond(self, request: Request) -> Response:
        """Answer a request for the dead letters.

        Raises:
            Refused: there is no dead letter topic, it cannot be read, or another request is reading it.
        """
        Arguments.of(request.scope).check()
        return answer(200, await self._read(request, self._summary, READ_S))

    async def show(self, request: Request) -> Response:
        """Answer a request for one letter, with key and value as the topology reads them from the source topic.

        Raises:
            Refused: there is no such letter, or the topic cannot be read.
        """
        Arguments.of(request.scope).check()
        partition, offset = _place(request.path_params["place"])

        def letter_at(is_over: IsOver) -> Letter | None:
            return self._letters().letter(partition, offset, is_over)

        letter = await self._read(request, letter_at, READ_S)
        if letter is None:
            raise Refused(404, "NO_SUCH_LETTER", f"the topic {self._topic!r} has no letter {partition}:{offset}")
        return answer(200, self._content(letter))

    async def redrive(self, request: Request) -> Response:
        """Plan to re-drive the letters that the body selects, or re-drive them if it says ``execute``.

        Raises:
            Refused: the body cannot be read, another request is at work, or the topic cannot be read or written.
        """
        asked = await _asked(request)
        selected = asked.selected

        def done(is_over: IsOver) -> dict[str, Any]:
            letters = self._letters()
            limit = self._until(REDRIVE_S, is_over)
            if asked.execute:
                result = letters.redrive(selected, max_redrives=asked.max_redrives, rate=asked.rate, is_over=limit)
                log.info("dead letters of %r re-driven over HTTP: %d", self._topic, sum(result.sent.values()))
            else:
                result = letters.plan(selected, max_redrives=asked.max_redrives, is_over=limit)
            return {
                "topic": self._topic,
                "executed": asked.execute,
                "letters": sum(result.sent.values()),
                "sent": {str(source): number for source, number in sorted(result.sent.items())},
                "refused": dict(sorted(result.refused.items())),
                # Whether all selected letters were read; otherwise the next request goes on.
                "is_complete": result.is_complete,
            }

        return answer(200, await self._read(request, done, REDRIVE_S))

    async def _read(self, request: Request, work: Callable[[IsOver], T], limit_s: float) -> T:
        """Return the result of ``work``, which reads the dead letter topic in a thread.

        Raises:
            Refused: there is no dead letter topic, it cannot be read, or another request is reading it.
        """
        if not self._topic:
            text = "the setting errors_dead_letter_queue_topic_name is not set: records that are skipped are not kept"
            raise Refused(404, "NO_DEAD_LETTER_TOPIC", text)
        try:
            return await self._single.run(request, work, 2 * limit_s)
        except UnknownTopicError as error:
            raise Refused(404, "NO_DEAD_LETTER_TOPIC", str(error)) from None
        except (ProducerFencedError, ConfigError) as error:
            # Another re-drive of the topic has begun, or what was re-driven has too many gaps.
            raise Refused(409, "NOT_REDRIVEN", str(error)) from None
        except StreamsError as error:
            raise Refused(503, "NOT_READ", f"the topic {self._topic!r} cannot be read: {error}") from None

    @property
    def _topic(self) -> str:
        return self._instance.config.errors_dead_letter_queue_topic_name

    def _letters(self) -> DeadLetters:
        environment = self._instance.environment
        return DeadLetters(environment.cluster, self._topic, clock=environment.clock)

    def _until(self, seconds: float, is_over: IsOver) -> IsOver:
        """Return whether the work must end: the client has left, or so many seconds have passed."""
        clock = self._instance.environment.clock
        deadline_ms = clock.monotonic_ms() + int(seconds * 1000)
        return lambda: is_over() or clock.monotonic_ms() >= deadline_ms

    def _content(self, letter: Letter) -> dict[str, Any]:
        errors, source = letter.errors, letter.source
        key_serde, value_serde = self._serdes("" if source is None else source.topic)
        return {
            "place": letter.place,
            "reason": letter.reason,
            "message": errors.get(MESSAGE_HEADER, "")[:_MAX_CONTENT],
            "node": errors.get(NODE_HEADER, ""),
            "line": errors.get(LINE_HEADER, ""),
            "source": None if source is None else f"{source} at offset {errors.get(OFFSET_HEADER)}",
            "timestamp": letter.timestamp_ms,
            "redrives": letter.redrives,
            "key": _decoded(key_serde, letter.key),
            "value": _decoded(value_serde, letter.value),
            "headers": [[name, _text(value)] for name, value in letter.headers if name not in errors],
            "stacktrace": errors.get(STACKTRACE_HEADER, "").rstrip()[-_MAX_CONTENT:],
        }

    def _serdes(self, topic: str) -> tuple[Serde[Any] | None, Serde[Any] | None]:
        """Return the serdes of the source that reads a topic; None for those that are not known."""
        for node in self._instance.topology.sources():
            if topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic)):
                return node.key_serde, node.value_serde
        return None, None

    def _summary(self, is_over: IsOver) -> dict[str, Any]:
        letters = self._letters()
        redriven = letters.redriven()
        offsets = letters.offsets()
        is_ended = self._until(READ_S, is_over)
        starts = {
            place: Redriven(max(span.start, span.stop - MAX_LETTERS // len(offsets))) for place, span in offsets.items()
        }
        groups: dict[tuple[str, str, str], _Group] = {}
        every_letter = letters.letters(starts, is_ended)
        while chunk := list(islice(every_letter, _CHUNK)):
            for group, of in grouped(chunk).items():
                row = groups.setdefault(group, _Group(of[0]))
                row.letters += len(of)
                row.redriven += sum(letter.offset in redriven[letter.partition] for letter in of)
                row.sources.update(letter.source.topic for letter in of if letter.source)
        rows = sorted(groups.items(), key=lambda item: -item[1].letters)
        return {
            "topic": self._topic,
            "letters": sum(row.letters for row in groups.values()),
            "redriven": sum(row.redriven for row in groups.values()),
            # Whether the summary covers all letters of the topic.
            "is_complete": not is_ended() and all(starts[place].base <= span.start for place, span in offsets.items()),
            "more_groups": max(0, len(rows) - MAX_GROUPS),
            "groups": [self._shown(group, row) for group, row in rows[:MAX_GROUPS]],
        }

    def _shown(self, group: tuple[str, str, str], row: _Group) -> dict[str, Any]:
        reason, node, line = group
        filters = [f"--reason={reason}", *([f"--node={node}"] if node else [])]
        return {
            "reason": reason[:_MAX_TEXT],
            "node": node[:_MAX_TEXT],
            "line": line[:_MAX_TEXT],
            "message": row.first.errors.get(MESSAGE_HEADER, "").partition("\n")[0][:_MAX_TEXT],
            "letters": row.letters,
            "redriven": row.redriven,
            "sources": sorted(row.sources)[:_CHUNK],
            "first": row.first.place,
            "first_ms": row.first.timestamp_ms,
            "show": self._command("show", row.first.place),
            "redrive": self._command("redrive", *filters),
        }

    def _command(self, verb: str, *arguments: str) -> str:
        """Return a ``streams dlq`` command, or "" if an argument has characters that a terminal would interpret."""
        words = ["streams", "dlq", verb, self._topic, *arguments, *self._where()]
        return shlex.join(words) if all(map(str.isprintable, words)) and len(str(words)) < 4 * _MAX_TEXT else ""

    def _where(self) -> Iterator[str]:
        """Yield the command-line arguments that name the broker, with a placeholder where it is not known."""
        if isinstance(self._instance.environment.cluster, EmbeddedBroker):
            yield from ("--state-dir", "DIR")
        else:
            yield from ("--bootstrap-servers", self._instance.config.bootstrap_servers or "HOST:PORT")


async def _asked(request: Request) -> _Asked:
    """Return the letters that the body of a request selects.

    Raises:
        Refused: the body is too large, or selects no letters in this form.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise Refused(413, "TOO_LARGE", f"a request to re-drive has at most {MAX_BODY_BYTES} bytes")
    try:
        return msgspec.json.decode(body or b"{}", type=_Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        names = ", ".join(_Asked.__struct_fields__)
        text = f"{error}; send a JSON object with any of {names}"
        raise Refused(400, "BAD_REQUEST", text) from None


def _place(text: str) -> tuple[int, int]:
    """Return the partition and offset of ``PARTITION:OFFSET``.

    Raises:
        Refused: the text has another form.
    """
    place = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,18})", text)
    if place is None:
        raise Refused(400, "BAD_REQUEST", f"{text[:40]!r} is no place of a letter: give PARTITION:OFFSET")
    return int(place[1]), int(place[2])


def _decoded(serde: Serde[Any] | None, data: bytes | None) -> str:
    """Return a key or value as text, decoded if the serde of the source topic is known and can read it."""
    if serde is None or data is None or (isinstance(serde, PinnedSerde) and serde.settled is None):
        return _text(data)
    try:
        return repr(serde.deserialize(data))[:_MAX_CONTENT]
    except SerializationError as error:
        return f"{_text(data)} (cannot be read: {error})"


def _text(data: bytes | None) -> str:
    return "null" if data is None else data[:_MAX_CONTENT].decode("utf-8", "backslashreplace")
