"""The Python code generated for a topology, without running it, for ``streams describe --format program``."""

from collections.abc import Iterator

from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.runtime.plan.plan import ApplicationPlan, Existing
from streams.runtime.tasks.task import TaskState
from streams.state import RecordCache, open_store
from streams.topology import Topology, sub_topologies


def programs(topology: Topology, config: StreamsConfig) -> Iterator[str]:
    """Yield the Python code that tasks of each sub-topology would run with this configuration.

    User processors are created, but their ``init`` is not called.  Stores are in memory and empty.
    """
    topics = {topic for sub in sub_topologies(topology) for topic in (*sub.source_topics, *sub.sink_topics)}
    counts = dict.fromkeys(sorted(topics - set(topology.internal_topics)), 1)
    existing = Existing(later=1)
    plan = ApplicationPlan.make(topology, config, VirtualClock(0), counts, is_single_task=True, existing=existing)
    global_stores = {
        name: open_store(item.spec, None, default_engine="in_memory") for name, item in topology.global_stores.items()
    }
    cache = RecordCache(config.cache_max_bytes) if config.cache_max_bytes else None
    first_tasks = {task_id.sub_topology: task_id for task_id in sorted(plan.groups, reverse=True)}
    for sub_id, task_id in sorted(first_tasks.items()):
        stores = {spec.name: open_store(spec, None, default_engine="in_memory") for spec in plan.stores_of(task_id)}
        state = TaskState(stores, global_stores, is_complete=False)
        task = plan.open_task(task_id, state, Metrics(), cache=cache)
        names = "".join(f"# {number}: {name}\n" for number, name in enumerate(task.program.nodes))
        yield f"# Sub-topology {sub_id}; nodes by their numbers:\n{names}{task.program.source_code}"
