"""``POST /why``: trace a key in the tasks of all instances for a limited time, and explain its outputs.

The instance that gets the request traces the key itself, in a thread, and asks the other instances for their parts of
the explanation.  When one of them has reached its limit, all stop tracing.  ``DELETE /why`` ends this early.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Annotated, Any, Literal

import msgspec
from attrs import define, evolve, field
from starlette.requests import Request
from starlette.responses import Response

from streams.core.errors import ClientClosedError, UnknownTopicError
from streams.core.serdes.serde_windows import WindowedSerde
from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.runtime import Instance, StreamsMetadata, others_of
from streams.topology import SinkNode
from streams.web.answers import Refused, answer
from streams.web.peers import PeerError, Peers
from streams.web.single import IsOver, Single
from streams.web.texts import key_of
from streams.why import End, FollowLimits, Question, Story, StoryPart, TraceRunningError, follow, one_story

WHY_PATH = "/why"
#: Maximum time in seconds for which a key is traced.
MAX_SECONDS = 60
#: Maximum number of records of the key that are traced on one instance.
MAX_RECORDS = 1_000
#: Maximum number of ends of records in a response.
MAX_ENDS = 200
#: Maximum size of a request body in bytes.
MAX_QUESTION_BYTES = 16 << 10
#: Time in seconds for the threads of the instance to start and stop the tracing.
_TURN_S = 15


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    key_format: Literal["text", "json", "hex", "base64"] | None = None
    topic: str | None = None
    node: str | None = None
    #: Whether the whole group traces the key, or only this instance, which then returns its part of the story.
    scope: Literal["group", "instance"] = "group"
    #: Identifies the question to ``DELETE /why``.
    id: str = ""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] = 10.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = MAX_RECORDS


@define(eq=False)
class WhyEndpoint:
    """Answers questions about keys, one at a time."""

    _instance: Instance
    _peers: Peers
    _single: Single = field(init=False)
    #: The id of the question that is being answered.
    _id: str = field(init=False, default="")
    _numbers: Iterator[int] = field(init=False, factory=count)

    def __attrs_post_init__(self) -> None:
        self._single = Single("a key is being followed", self._instance.environment.threads.signal)

    async def respond(self, request: Request) -> Response:
        """Answer a question, or end the one that is being answered.

        Raises:
            Refused: the question cannot be read, its key is not of the topic's key type, another key is being
                traced, or the application is not running.
        """
        if request.method == "DELETE":
            is_asked = request.query_params.get("id", self._id) == self._id
            return answer(200, {"ended": is_asked and self._single.end()})
        asked = await _read(request)
        question = Question(self._key(asked), asked.topic, asked.node)
        try:
            if asked.scope == "instance":
                part = await self._follow(request, asked, question)
                return Response(part.encoded(), media_type="application/json")
            parts = await self._ask_all(request, asked, question)
        except UnknownTopicError as error:
            raise Refused(404, "NO_SUCH_TOPIC", str(error)) from None
        except TraceRunningError as error:
            raise Refused(409, "BUSY", str(error)) from None
        except ClientClosedError as error:
            raise Refused(503, "NOT_RUNNING", str(error)) from None
        story = one_story(question, self._instance.topology, parts)
        told = evolve(story, ends=story.ends[:MAX_ENDS]).as_json()
        told |= {"reasons": story.reasons, "more_ends": max(0, len(story.ends) - MAX_ENDS)}
        return answer(200, told | {"svg": story.to_svg(has_style=False)})

    async def _follow(self, request: Request, asked: _Asked, question: Question) -> StoryPart:
        """Trace the key in the tasks of this instance, and return its part of the story."""
        instance = self._instance
        limits = FollowLimits(asked.seconds, asked.limit)

        def told(is_over: IsOver) -> StoryPart:
            return follow(instance, instance.topology, question, limits, is_over)

        if not self._single.is_running:
            self._id = asked.id
        return await self._single.run(request, told, asked.seconds + _TURN_S)

    async def _ask_all(self, request: Request, asked: _Asked, question: Question) -> list[StoryPart]:
        """Return the parts of the story from all instances, beginning with this one."""
        asked_id = f"{self._instance.home.process_id}-{next(self._numbers)}"
        forwarded = msgspec.json.encode(msgspec.structs.replace(asked, scope="instance", id=asked_id))
        others = others_of(self._instance)
        asking = [asyncio.ensure_future(self._ask(other, forwarded, asked.seconds)) for other in others]
        for running in asking:
            running.add_done_callback(partial(self._end_own, asked_id))
        try:
            own = await self._follow(request, msgspec.structs.replace(asked, id=asked_id), question)
            late = [other for other, running in zip(others, asking, strict=True) if not running.done()]
            await asyncio.gather(*(self._end(other, asked_id) for other in late))
            asked_ids = {other.process_id for other in others}
            joined = [other for other in others_of(self._instance) if other.process_id not in asked_ids]
            late_parts = [_left_out(other, "it joined the group after the question") for other in joined]
            return [own, *(await asyncio.gather(*asking)), *late_parts]
        finally:
            # Closed connections end the tracing of the other instances.
            for running in asking:
                running.cancel()

    async def _ask(self, other: StreamsMetadata, body: bytes, seconds: float) -> StoryPart:
        """Return another instance's part of the story; if it fails, an empty part with a note of the reason."""
        endpoint = other.application_server
        try:
            if not endpoint:
                raise PeerError("it serves no HTTP; give each instance Streams.serve or --http")
            status, answer_body = await self._peers.send("POST", endpoint, WHY_PATH, body, seconds + 2 * _TURN_S)
            if status != 200:
                raise PeerError(f"it has answered with status {status}: {answer_body[:300].decode(errors='replace')}")
            return StoryPart.decode(answer_body)
        except (PeerError, msgspec.DecodeError) as error:
            return _left_out(other, str(error))

    async def _end(self, other: StreamsMetadata, asked_id: str) -> None:
        """Stop tracing at another instance, which then returns what it has found."""
        with suppress(PeerError):
            await self._peers.send("DELETE", other.application_server, f"{WHY_PATH}?id={asked_id}")

    def _end_own(self, asked_id: str, done: "asyncio.Future[StoryPart]") -> None:
        """Stop tracing here once ``done`` has the answer of another instance, which has reached its limit."""
        if not done.cancelled() and done.exception() is None and done.result().is_asked and self._id == asked_id:
            self._single.end()

    def _key(self, asked: _Asked) -> Any:
        """Return the key as an object of its type, or as text, which matches every key with this text form."""
        serde = self._serde(asked)
        if serde is not None:
            return key_of(serde, asked.key.encode(), asked.key_format)
        if asked.key_format not in (None, "text"):
            raise Refused(400, "BAD_KEY", f"key_format={asked.key_format} needs a topic whose keys have a known type")
        return asked.key

    def _serde(self, asked: _Asked) -> Serde[Any] | None:
        """Return the serde of the topic's keys (for windowed keys, of the inner key); None if it is not known."""
        sinks = (node for node in self._instance.topology.nodes.values() if isinstance(node, SinkNode))
        serde = next((node.key_serde for node in sinks if asked.topic is not None and node.topic == asked.topic), None)
        if isinstance(serde, WindowedSerde):
            serde = serde.inner
        return None if isinstance(serde, PinnedSerde) and serde.settled is None else serde


def _left_out(other: StreamsMetadata, reason: str) -> StoryPart:
    """Return an empty part, with a note of why an instance did not return its own."""
    endpoint = other.application_server or "no address"
    text = f"the tasks of {other.client_id} at {endpoint} are not in this story: {reason}"
    return StoryPart(Story("", notes=(End("not asked", "", text),)), is_asked=False)


async def _read(request: Request) -> _Asked:
    """Return the question in the body of a request.

    Raises:
        Refused: the body is too large, or is not a question.
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
