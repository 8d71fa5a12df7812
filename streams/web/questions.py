"""``POST /why``: follow a key in the tasks of this instance for a while, and answer with the story.

Imports why, which is asked in a thread.
"""

from typing import Annotated, Any, Literal

import msgspec
from attrs import define, evolve, field
from starlette.requests import Request
from starlette.responses import Response

from streams.core.errors import ClientClosedError, UnknownTopicError
from streams.core.serde_windows import WindowedSerde
from streams.core.serdes import PinnedSerde, Serde
from streams.runtime import Instance
from streams.topology import SinkNode
from streams.web.answers import Refused, answer
from streams.web.single import IsOver, Single
from streams.web.texts import key_of
from streams.why import FollowLimits, Question, TraceRunningError, follow

WHY_PATH = "/why"
#: Longest time in seconds for which a key is followed.
MAX_SECONDS = 60
#: Records of the key after which the story is told, at most.
MAX_RECORDS = 1_000
#: Ends of records in an answer, at most.
MAX_ENDS = 200
#: Largest body in bytes.
MAX_QUESTION_BYTES = 16 << 10
#: Time in seconds for the threads of the instance to put the tracing program in and out.
_TURN_S = 15


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    key_format: Literal["text", "json", "hex", "base64"] | None = None
    topic: str | None = None
    node: str | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] = 10.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = MAX_RECORDS


@define(eq=False)
class WhyEndpoint:
    """Answers questions about keys, one at a time."""

    _instance: Instance
    _single: Single = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._single = Single("a key is being followed", self._instance.environment.threads.signal)

    async def respond(self, request: Request) -> Response:
        """Answer a question.

        Raises:
            Refused: the question cannot be read, its key does not fit, a key is followed already, or the application
                does not run.
        """
        asked = await _read(request)
        question = Question(self._key(asked), asked.topic, asked.node)
        instance, limits = self._instance, FollowLimits(asked.seconds, asked.limit)

        def told(is_over: IsOver) -> dict[str, Any]:
            story = follow(instance, instance.topology, question, limits, is_over)
            shown = evolve(story, ends=story.ends[:MAX_ENDS]).as_json()
            return shown | {"reasons": story.reasons, "more_ends": max(0, len(story.ends) - MAX_ENDS)}

        try:
            return answer(200, await self._single.run(request, told, asked.seconds + _TURN_S))
        except UnknownTopicError as error:
            raise Refused(404, "NO_SUCH_TOPIC", str(error)) from None
        except TraceRunningError as error:
            raise Refused(409, "BUSY", str(error)) from None
        except ClientClosedError as error:
            raise Refused(503, "NOT_RUNNING", str(error)) from None

    def _key(self, asked: _Asked) -> Any:
        """Return the key as an object of the topic's type, or as a text, which stands for any key that reads so."""
        serde = self._serde(asked)
        if serde is not None:
            return key_of(serde, asked.key.encode(), asked.key_format)
        if asked.key_format not in (None, "text"):
            raise Refused(400, "BAD_KEY", f"key_format={asked.key_format} needs a topic whose keys have a known type")
        return asked.key

    def _serde(self, asked: _Asked) -> Serde[Any] | None:
        """Return the serde of the topic's keys, without their windows; None if it is not known."""
        sinks = (node for node in self._instance.topology.nodes.values() if isinstance(node, SinkNode))
        serde = next((node.key_serde for node in sinks if asked.topic is not None and node.topic == asked.topic), None)
        if isinstance(serde, WindowedSerde):
            serde = serde.inner
        return None if isinstance(serde, PinnedSerde) and serde.settled is None else serde


async def _read(request: Request) -> _Asked:
    """Return the question in the body of a request.

    Raises:
        Refused: the body is too large, or is none.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_QUESTION_BYTES:
            raise Refused(413, "TOO_LARGE", f"a question has at most {MAX_QUESTION_BYTES} bytes")
    try:
        return msgspec.json.decode(body, type=_Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"{error}; send JSON: key, and if needed key_format, topic, node, seconds and limit"
        raise Refused(400, "BAD_REQUEST", text) from None
