"""``/dead-letters``: the last records of the dead letter queue topic, grouped by reason, node and line of user code.

They are read on request, with a separate consumer. Nothing is sent back from here: each group is shown with the command
that plans to re-drive its letters.
"""

import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any

from attrs import define, field
from starlette.requests import Request
from starlette.responses import Response

from streams.broker import EmbeddedBroker
from streams.clients import DeadLetters, Redriven, grouped
from streams.core.dead_letters import MESSAGE_HEADER, Letter
from streams.core.errors import StreamsError, UnknownTopicError
from streams.runtime import Instance
from streams.web.answers import Refused, answer
from streams.web.arguments import Arguments
from streams.web.single import IsOver, Single

LETTERS_PATH = "/dead-letters"
#: Maximum number of offsets that are read, from the end of each partition.
MAX_LETTERS = 2_000
#: Maximum number of groups in a response; the largest ones are included.
MAX_GROUPS = 100
#: Time in seconds after which reading ends, and the letters read so far are returned.
READ_S = 5
#: Maximum number of letters in memory.
_CHUNK = 50
#: Maximum number of characters of a text in a response.
_MAX_TEXT = 500


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
        if not self._topic:
            text = "the setting errors_dead_letter_queue_topic_name is not set: records that are skipped are not kept"
            raise Refused(404, "NO_DEAD_LETTER_TOPIC", text)
        try:
            return answer(200, await self._single.run(request, self._summary, 2 * READ_S))
        except UnknownTopicError as error:
            raise Refused(404, "NO_DEAD_LETTER_TOPIC", str(error)) from None
        except StreamsError as error:
            raise Refused(503, "NOT_READ", f"the topic {self._topic!r} cannot be read: {error}") from None

    @property
    def _topic(self) -> str:
        return self._instance.config.errors_dead_letter_queue_topic_name

    def _summary(self, is_over: IsOver) -> dict[str, Any]:
        environment = self._instance.environment
        letters = DeadLetters(environment.cluster, self._topic, clock=environment.clock)
        redriven, offsets = letters.redriven(), letters.offsets()
        deadline_ms = environment.clock.monotonic_ms() + READ_S * 1000
        starts = {
            place: Redriven(max(span.start, span.stop - MAX_LETTERS // len(offsets))) for place, span in offsets.items()
        }
        is_late = False

        def is_ended() -> bool:
            nonlocal is_late
            is_late = is_over() or environment.clock.monotonic_ms() >= deadline_ms
            return is_late

        groups: dict[tuple[str, str, str], _Group] = {}
        found = letters.letters(starts, is_ended)
        while chunk := list(islice(found, _CHUNK)):
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
            "is_complete": not is_late and all(starts[place].base <= span.start for place, span in offsets.items()),
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
