"""``why``: a replay with traced tasks, which explains why there is, or is not, an output record for a key."""

import tempfile
from datetime import datetime
from typing import Any, Unpack

from attrs import evolve

from streams.core.errors import ConfigError
from streams.core.settings.config import StreamsConfig
from streams.core.topic import TopicLike
from streams.dsl import TopologySource, build_topology
from streams.replay.api import drive
from streams.replay.errors import ReplayTaskError
from streams.replay.run.local import LocalExecutor
from streams.replay.run.request import Inputs, Keywords, Plan, Request
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.why import Question, Recorder, Story, Trace, answer, targets_of


def why(
    topology: TopologySource,
    inputs: Inputs,
    key: Any,
    topic: TopicLike | None = None,
    *,
    node: str | None = None,
    at: str | datetime | int | None = None,
    limit: int = 3,
    plan: Plan | None = None,
    **keywords: Unpack[Keywords],
) -> Story:
    """Return why there is, or is not, an output record for a key in a replay of history.

    The replay runs with tracing, in this process; if a task fails, the explanation ends at that record. ``key`` is an
    object, or text, which matches every key with this text or JSON form. ``topic`` is the output topic (default: all);
    ``node`` selects a node instead. ``at`` is the event time of the output, or a time in its window (default: the last
    output): epoch milliseconds, a datetime, or ISO 8601 text, which denotes the whole second, minute, hour or day if it
    is no more precise. At most ``limit`` records are listed per node. ``inputs``, ``plan`` and the other arguments are
    those of ``replay``; what executes it and where its files are does not matter.

    Raises:
        ReplayError: the replay cannot be planned, or a file is missing or damaged.
        UnknownTopicError: the topology does not write to such a topic, or has no such node.
        TopologyError, ConfigError, InputError: an argument is invalid, or the replay continues from a snapshot.
    """
    request = Request.of(topology, inputs, plan, keywords)
    if request.plan.state_from is not None:
        raise ConfigError("state_from: the records before a snapshot are not known; replay their history, too")
    request = evolve(request, plan=evolve(request.plan, resume=False, repair=False, slices=None, store="in_memory"))
    built = build_topology(topology, StreamsConfig.of(**request.settings))
    question = Question.of(key, topic, node, at, limit)
    targets_of(question, built)
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
