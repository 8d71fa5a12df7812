"""``why``: a replay with traced tasks, which explains why there is, or is not, an output record for a key."""

import tempfile
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Unpack

from streams.core.settings.config import StreamsConfig
from streams.core.settings.settings import Settings
from streams.core.topic import Topic, TopicLike, topic_name
from streams.dsl import TopologySource, build_topology
from streams.replay.api import application_id_of, drive
from streams.replay.calls.work import Options
from streams.replay.errors import ReplayTaskError
from streams.replay.run.local import LocalExecutor
from streams.replay.run.session import ReplaySession, Request
from streams.replay.storage.places import Place
from streams.why import Question, Recorder, Story, Trace, answer, targets_of


def why(
    topology: TopologySource,
    inputs: "Mapping[Topic[Any, Any], Any] | Mapping[str, Any] | Mapping[TopicLike, Any]",
    key: Any,
    topic: TopicLike | None = None,
    *,
    node: str | None = None,
    at: str | datetime | int | None = None,
    limit: int = 3,
    application_id: str | None = None,
    partitions: int | None = None,
    until: Any = None,
    wall_clock: Literal["error", "skip", "append_time"] = "error",
    final_flush: bool = False,
    **settings: Unpack[Settings],
) -> Story:
    """Return why there is, or is not, an output record for a key in a replay of history.

    The replay runs with tracing, in this process; if a task fails, the explanation ends at that record. ``key`` is an
    object, or text, which matches every key with this text or JSON form. ``topic`` is the output topic (default: all);
    ``node`` selects a node instead. ``at`` is the event time of the output, or a time in its window (default: the last
    output): epoch milliseconds, a datetime, or ISO 8601 text, which denotes the whole second, minute, hour or day if it
    is no more precise. At most ``limit`` records are listed per node. ``inputs`` and the other arguments are those of
    ``replay``.

    Raises:
        ReplayError: the replay cannot be planned, or a file is missing or damaged.
        UnknownTopicError: the topology does not write to such a topic, or has no such node.
        TopologyError, ConfigError, InputError: an argument is invalid.
    """
    given: dict[str, Any] = {**settings, "application_id": application_id or application_id_of(topology)}
    built = build_topology(topology, StreamsConfig.of(**given))
    question = Question.of(key, topic, node, at, limit)
    targets_of(question, built)
    request = Request(
        topology,
        {topic_name(name, "an input of why()"): value for name, value in inputs.items()},
        partitions,
        given,
        None,
        until,
        False,
        None,
        Options(wall_clock, final_flush, "in_memory"),
    )
    recorder = Recorder(Trace(question.follows, question.mentions))
    with tempfile.TemporaryDirectory(prefix="streams-why-") as folder:
        executor = LocalExecutor(1, watch=recorder)
        try:
            drive(ReplaySession(request, Place(folder)), executor)
        except ReplayTaskError as error:
            recorder.trace.failure = error
        finally:
            executor.close()
        return answer(question, recorder.trace, built, recorder.open_tasks)
