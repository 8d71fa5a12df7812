"""The status of an instance, or of its group, as one JSON object, for the web page and ``streams top``.

It is read from the threads without blocking.  Long lists are tables: the column names once, then the rows.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec
from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP, TaskId
from streams.core.metrics import INTENDED_REASONS, DropReason, Failure, table
from streams.core.settings.config import SETTINGS
from streams.core.user_code import located
from streams.runtime import Instance, StreamThread, Task, Wait, directive_of, out_of_step, passed_over, steps, wait_of
from streams.topology import Graph, TopologyDescription, describe, to_svg
from streams.web.flows import Flows, shown
from streams.web.merging import after_interval, has_fields_of, merged
from streams.web.peers import PeerError, Peers
from streams.web.samples import HISTORY, SAMPLE_MS, Rates, Samples, tasks_of, time_lag_of
from streams.web.summary import summary

#: Timeout of a status request to another instance, in seconds.
STATUS_S = 2.0
STATUS_PATH = "/status"
TASK_COLUMNS = (
    *("task", "thread", "state", "processed", "rate", "lag", "time_lag_ms", "stream_time_ms"),
    *("waits_for", "awaited", "waited_ms", "passed_over", "ns", "busy", "lost"),
)
THREAD_COLUMNS = ("name", "state", "turn_age_ms", "tasks", "standbys", "rate", "processing", "polling", "committing")


@define(eq=False)
class Status:
    """Builds the status of one instance; all calls must come from one event loop."""

    _instance: Instance
    _peers: Peers
    samples: Samples = field(init=False)
    _description: TopologyDescription = field(init=False)
    _graph: Graph = field(init=False)
    _graph_id: str = field(init=False)
    #: The topics that are not read in step, each with the reason.
    _out_of_step: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        topology, config = self._instance.topology, self._instance.config
        description = describe(topology)
        self._out_of_step = out_of_step(steps(topology, config))
        self.samples = Samples(self._instance)
        self._description = description
        self._graph = description.graph(is_simple=False)
        self._graph_id = f"{crc32(description.to_text().encode()):08x}"

    async def of_group(self, since_ms: int, graph_id: str) -> dict[str, Any]:
        """Return the merged status of all instances; an instance that does not respond is listed with an error."""
        since_ms = after_interval(since_ms)
        own = self.of_instance(since_ms, graph_id)
        others = [row for row in own["instances"] if not row["is_local"]]
        answers = await asyncio.gather(*(self._ask(row["endpoint"], since_ms) for row in others))
        documents = [own]
        for row, answer in zip(others, answers, strict=True):
            if isinstance(answer, str):
                row["error"] = answer
            elif not has_fields_of(answer, own):
                row["error"] = "it is of another version of streams; its own page has its numbers"
            else:
                row["state"] = answer["state"]
                documents.append(answer)
        status = merged(documents, since_ms)
        return status | summary(status)

    def of_instance(self, since_ms: int = 0, graph_id: str = "") -> dict[str, Any]:
        """Return the status of this instance.

        The history has the samples after ``since_ms``.  The graph is None if its ID is ``graph_id``, which the
        client then already has.
        """
        instance = self._instance
        now_ms = instance.environment.clock.now_ms()
        rates = self.samples.rates()
        threads = list(instance.stream_threads)
        tasks = [self._task_row(rates, now_ms, threads, *item) for item in tasks_of(threads)]
        restoring = [
            {
                "task": str(task_id),
                "thread": thread.name,
                "done": thread.restorer.restored(task_id) or 0,
                "remaining": remaining,
                "eta_ms": eta_ms,
            }
            for thread in threads
            for task_id, remaining, eta_ms in thread.restorer.progress()
        ]
        metrics = instance.metrics
        status = {
            "scope": "instance",
            "application_id": instance.config.application_id,
            "client": instance.client_name,
            "state": instance.state.name,
            "is_paused": instance.is_paused,
            "now_ms": now_ms,
            "graph_id": self._graph_id,
            "graph": None if graph_id == self._graph_id else self._graphs(),
            **self._flows(rates),
            "subs": _subs(rates, threads),
            "tasks": {"columns": TASK_COLUMNS, "rows": tasks},
            "threads": {"columns": THREAD_COLUMNS, "rows": [self._thread_row(rates, thread) for thread in threads]},
            "restoring": restoring,
            "out_of_step": self._out_of_step,
            "instances": list(self._members().values()),
            "totals": {
                "processed": sum(count for _, count in rates.now.of_word("task")),
                "lost": sum(count for _, count in rates.now.of_word("lost")),
                "left_out": sum(count for (_, why), count in rates.now.of_word("drops") if why in INTENDED_REASONS),
                "dead_letters": sum(count for _, count in rates.now.of_word("letters")),
                "failures": metrics.failures.total,
                "in_rate": rates.total("in") if metrics.records(table.CONSUMED) else None,
                "out_rate": rates.total("out") if metrics.records(table.PRODUCED) else None,
            },
            "failures": [_failure(failure) for failure in metrics.failures.all()],
            "drop_examples": [[node, reason, text] for (node, reason), text in metrics.examples().items()],
            "events": [[at_ms, instance.client_name, text] for at_ms, text in self.samples.events],
            "settings": list(_settings(instance)),
            "history": {"interval_ms": SAMPLE_MS, "columns": list(HISTORY), "rows": self.samples.since(since_ms)},
        }
        return status | summary(status)

    def of_thread(self, name: str) -> dict[str, Any] | None:
        """Return where a stream thread of this instance is: its stack, and its tasks; None if there is none."""
        instance = self._instance
        now_ms = instance.environment.clock.now_ms()
        rates = self.samples.rates()
        threads = list(instance.stream_threads)
        for number, thread in enumerate(threads):
            if thread.name == name:
                rows = (self._task_row(rates, now_ms, threads, *item) for item in tasks_of(threads))
                return dict(zip(THREAD_COLUMNS, self._thread_row(rates, thread), strict=True)) | {
                    "tasks": [dict(zip(TASK_COLUMNS, row, strict=True)) for row in rows if row[1] == number],
                    "stack": instance.pool.stack_of(name),
                }
        return None

    def endpoint_of(self, thread: str) -> str:
        """Return the address of the other instance that has a thread, or "" if none is known."""
        client = thread.rpartition("-thread-")[0]
        rows = (row for row in self._members().values() if row["client"] == client and not row["is_local"])
        return next((str(row["endpoint"]) for row in rows), "")

    def drawing(self, is_simple: bool, is_list: bool) -> str:
        """Return the drawing of the topology, as an SVG document without colours: those are in the page's style."""
        return to_svg(self._description.graph(is_simple=is_simple), is_list=is_list, has_style=False)

    # --- parts ----------------------------------------------------------------------------

    def _task_row(
        self, rates: Rates, now_ms: int, threads: Sequence[StreamThread], thread: int, task_id: TaskId, task: Task
    ) -> list[Any]:
        queues = task.queues
        wait = _wait(threads[thread], task)
        passed = sorted({str(each) for queue in queues for each in passed_over(queue)})
        lag = sum(queue.lag for queue in queues)
        timed = rates.change("timed", task_id)
        spent = rates.change("busy", task_id)
        state = "running"
        if not task.is_initialized:
            state = "restoring"
        elif self._instance.is_paused:
            state = "paused"
        elif wait is not None:
            state = "ahead" if wait.partition is None else "waiting"
        elif not lag and not rates.change("task", task_id):
            state = "idle"
        return [
            str(task_id),
            thread,
            state,
            rates.now.counts.get(("task", task_id), 0),
            rates.rate("task", task_id),
            lag,
            time_lag_of(task, now_ms),
            None if queues.stream_time_ms == NO_TIMESTAMP else queues.stream_time_ms,
            None if wait is None or wait.partition is None else f"{wait.partition.topic}-{wait.partition.partition}",
            None if wait is None or wait.task_id is None else str(wait.task_id),
            0 if wait is None else wait.waited_ms,
            ", ".join(passed) or None,
            spent // timed if timed else None,
            rates.share("busy", task_id),
            rates.now.counts.get(("lost", task_id), 0),
        ]

    def _thread_row(self, rates: Rates, thread: StreamThread) -> list[Any]:
        tasks = list(thread.tasks)
        began_ms = thread.iteration_ms
        return [
            thread.name,
            "stopping" if thread.stopping.is_set() else "running" if thread.is_ready else "assigning",
            None if began_ms is None else max(0, rates.now.at_ms - began_ms),
            len(tasks),
            len(thread.task_set.copies),
            round(sum(rates.rate("task", task_id) for task_id in tasks), 1),
            *(rates.share(word, thread.name) for word in ("processing", "polling", "committing")),
        ]

    def _flows(self, rates: Rates) -> dict[str, Any]:
        """Return the numbers of records by node and along the edges, and of dropped records by node and reason."""
        topology = self._instance.topology
        now = rates.now
        drops: dict[str, dict[str, list[int]]] = {}
        late: dict[str, dict[str, list[int]]] = {}
        for (node, less_than_ms), count in now.of_word("late"):
            late.setdefault(node, {})[less_than_ms] = [count]
        for (node, reason), count in now.of_word("drops"):
            sent = now.counts.get(("sent", (node, reason)), 0)
            is_intended = reason in INTENDED_REASONS
            drops.setdefault(node, {})[reason] = [0, 0, count] if is_intended else [count - sent, sent, 0]
        places = [place for word in ("consumed", "produced") for place, _ in now.of_word(word)]
        topics: dict[str, list[Any]] = {}
        for node, topic in dict.fromkeys(places):
            topics.setdefault(node, []).append(topic)

        def flows(count_of: Callable[[str, Any], float]) -> Flows:
            def counted(node: str) -> float:
                return sum(
                    count_of(word, (node, each)) for each in topics.get(node, ()) for word in ("consumed", "produced")
                )

            def dropped(node: str) -> float:
                return sum(count_of("drops", (node, reason)) for reason in drops.get(node, ()))

            return Flows(topology, counted, dropped)

        counts = flows(lambda word, place: now.counts.get((word, place), 0))
        per_second = flows(rates.rate)
        return {
            "nodes": shown(counts.nodes, per_second.nodes),
            "drops": drops,
            "late": late,
            "meanings": {reason: reason.meaning for reason in DropReason},
            "edges": [self._along(per_second, rates, *edge) for edge in self._graph.edges],
        }

    def _graphs(self) -> dict[str, Any]:
        return {"all": self._graph.shown(), "simple": self._description.graph().shown()}

    def _along(self, flows: Flows, rates: Rates, start: int, end: int) -> float | None:
        one = self._graph.boxes[start]
        other = self._graph.boxes[end]
        rate: float | None
        if one.kind == "topic":
            if other.kind == "store":
                return None
            of_topic = [rates.rate("consumed", (other.name, name)) for name in self._names(one.name)]
            node = flows.nodes[other.name]
            # A pattern stands for all topics of its source.
            rate = sum(of_topic) if any(of_topic) or len(self._topics_of(end)) > 1 else node.came
        elif other.kind == "topic":
            rate = flows.nodes[one.name].came
        else:
            rate = flows.along(one.name, other.name)
        return None if rate is None else round(rate, 1)

    def _topics_of(self, number: int) -> list[int]:
        return [start for start, end in self._graph.edges if end == number]

    def _names(self, topic: str) -> tuple[str, str]:
        return topic, f"{self._instance.config.application_id}-{topic}"

    def _members(self) -> dict[str, dict[str, Any]]:
        """Return the instances of the consumer group by process ID, as its leader published them; this one first."""
        instance = self._instance
        own = instance.home.process_id
        members = {own: _member(instance.client_name, instance.endpoint, own) | {"is_local": True}}
        members[own]["state"] = instance.state.name
        directive = directive_of(instance)
        for place in directive.places if directive is not None else ():
            client = place.client_id.rpartition("-thread-")[0]
            row = members.setdefault(place.process_id, _member(client, place.application_server, place.process_id))
            row["threads"] += 1
            row["tasks"] += len(place.active)
            row["standbys"] += len(place.standby)
        return members

    # --- other instances ------------------------------------------------------------------

    async def _ask(self, endpoint: str, since_ms: int) -> dict[str, Any] | str:
        """Return the status of another instance, or an error text."""
        if not endpoint:
            return "it serves no HTTP; give each instance Streams.serve or --http"
        try:
            async with asyncio.timeout(STATUS_S):
                status, body = await self._peers.send(
                    "GET", endpoint, f"{STATUS_PATH}?since={since_ms}&graph={self._graph_id}"
                )
            if status != 200:
                return f"it refused with status {status}"
            return msgspec.json.decode(body, type=dict[str, Any])
        except TimeoutError:
            return f"no answer within {STATUS_S:.0f} s"
        except (PeerError, msgspec.DecodeError) as error:
            return str(error)


def _subs(rates: Rates, threads: Sequence[StreamThread]) -> dict[str, dict[str, Any]]:
    """Return the active tasks, share of thread time, ns per record, and waiting tasks of each sub-topology."""
    rows: dict[int, list[int]] = {}
    for thread, task_id, task in tasks_of(threads):
        row = rows.setdefault(task_id.sub_topology, [0, 0, 0, 0])
        spent = rates.change("busy", task_id)
        timed = rates.change("timed", task_id)
        row[:] = [row[0] + 1, row[1] + spent, row[2] + timed, row[3] + (_wait(threads[thread], task) is not None)]
    return {
        str(sub): {
            "tasks": tasks,
            "busy": round(min(1.0, spent / (rates.seconds * 1e9 * max(1, len(threads)))), 3),
            "ns": spent // timed if timed else None,
            "waiting": waiting,
        }
        for sub, (tasks, spent, timed, waiting) in sorted(rows.items())
    }


def _wait(thread: StreamThread, task: Task) -> Wait | None:
    return wait_of(task, thread.backpressure.held_by(task.task_id))


def _member(client: str, endpoint: str, process_id: str) -> dict[str, Any]:
    return {
        "client": client,
        "endpoint": endpoint,
        "process_id": process_id,
        "is_local": False,
        "state": None,
        "error": None,
        "threads": 0,
        "tasks": 0,
        "standbys": 0,
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "at_ms": failure.at_ms,
        "error": failure.error,
        "message": failure.message,
        "place": failure.place,
        "node": failure.node,
        "task": None if failure.task is None else str(failure.task),
        "is_fatal": failure.is_fatal,
        "sent_to": failure.sent_to,
        "count": failure.count,
    }


def _settings(instance: Instance) -> Iterator[dict[str, Any]]:
    """Yield the settings that differ from their defaults; the values of secrets are not shown."""
    config = instance.config
    groups = (config, config.consumer, config.producer, config.connection, config.security)
    for name, setting in SETTINGS.items():
        value = next((getattr(group, name) for group in groups if hasattr(group, name)), setting.default)
        if value == setting.default:
            continue
        text = "(set)" if setting.is_secret else located(value) if callable(value) else str(value)
        yield {"name": name, "value": text, "default": str(setting.default), "unit": setting.unit}
