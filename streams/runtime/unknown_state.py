"""Detection of state that the topology does not know, at the start of an application.

A generated store name has a number that shifts with every upstream change: the old store is left over
and a new store starts empty.  Renaming a store has the same effect.  Leftover stores on the broker and in
the state directory are logged; if a generated name seems to have shifted, the application does not start.
Topics of another application whose id has the same prefix are ignored.  Imports clients, topology and state.
"""

import logging
import re
from collections.abc import Iterable, Mapping

from attrs import define, field

from streams.clients import internal_topics, is_generated
from streams.core.config import StreamsConfig
from streams.core.errors import UnknownStateError
from streams.core.records import TaskId, TopicPartition
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.plan import ApplicationPlan
from streams.runtime.provisioning import Provisioner
from streams.state import Content

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d{10}")


@define
class _Found:
    #: The places where each unknown store was found, by store.
    stores: dict[str, list[str]] = field(factory=dict)
    #: Unknown stores with content.
    filled: set[str] = field(factory=set)
    #: Unknown repartition topics.
    topics: list[str] = field(factory=list)
    #: Names of all unknown topics.
    names: list[str] = field(factory=list)

    def __bool__(self) -> bool:
        return bool(self.stores or self.topics)


def check_unknown_state(
    plan: ApplicationPlan,
    known: Mapping[str, int],
    folders: Mapping[TaskId, Iterable[str]],
    cluster: Provisioner,
) -> None:
    """Log the stores, changelogs and repartition topics that the topology does not know.

    ``known`` has the topics of the cluster before any topic is created; ``folders`` has the stores per task in
    the state directory.

    Raises:
        UnknownStateError: there is unknown state and ``unknown_state`` is ``fail``; or a generated name has
            moved and no other instance runs.
    """
    config = plan.config
    if config.unknown_state == "ignore":
        return
    found = _left_over(plan, known, folders, cluster)
    if not found:
        return
    moved = _moved(plan, known, folders, found, cluster)
    text = _described(plan, found)
    if moved:
        pairs = ", ".join(f"store {new!r} begins empty while {old!r} is left over" for old, new in moved)
        advice = "; ".join(f'store="{old}" takes up what {old!r} has' for old, _ in moved)
        text = (
            f"{text}. The name of a store has moved: {pairs}. Names that nobody gave change with the topology: {advice}"
        )
    text = (
        f"{text}. `streams diff OLD.py NEW.py` says what becomes of each store; delete what is not needed any more"
        f"{_deletion(found, config)}, or set unknown_state=ignore to start as it is"
    )
    if config.unknown_state == "fail" or (moved and not cluster.has_members()):
        raise UnknownStateError(text, stores=tuple(found.stores), topics=tuple(found.names))
    log.warning("%s", text)


def _left_over(
    plan: ApplicationPlan,
    known: Mapping[str, int],
    folders: Mapping[TaskId, Iterable[str]],
    cluster: Provisioner,
) -> _Found:
    topology, application_id = plan.topology, plan.config.application_id
    found = _Found()

    def is_unknown(store: str | None, topic: str | None) -> bool:
        return store not in topology.stores if store is not None else topic not in topology.internal_topics

    if any(is_unknown(item.store, item.topic) for item in internal_topics(application_id, known, ())):
        for item in internal_topics(application_id, known, cluster.groups()):
            if not is_unknown(item.store, item.topic):
                continue
            found.names.append(item.name)
            if item.store is None:
                found.topics.append(item.name)
                continue
            found.stores.setdefault(item.store, []).append(f"changelog {item.name}")
            partitions = [TopicPartition(item.name, number) for number in range(known[item.name])]
            if any(cluster.ends(partitions).values()):
                found.filled.add(item.store)
    for task_id, names in sorted(folders.items()):
        for store in names:
            if is_unknown(store, None) or _has_left(plan, task_id, store):
                if store not in found.stores:
                    # Without a changelog, only opening the store would show whether it has content.
                    found.filled.add(store)
                found.stores.setdefault(store, []).append(f"folder {task_id}/{store}")
    return found


def _has_left(plan: ApplicationPlan, task_id: TaskId, store: str) -> bool:
    """Whether a store without a changelog belongs to other tasks than the task of its folder."""
    if plan.topology.stores[store].has_changelog:
        return False
    return not any(sub.id == task_id.sub_topology and store in sub.stores for sub in plan.subs)


def _moved(
    plan: ApplicationPlan,
    known: Mapping[str, int],
    folders: Mapping[TaskId, Iterable[str]],
    found: _Found,
    cluster: Provisioner,
) -> list[tuple[str, str]]:
    """Return the old and new names of stores whose names seem to have moved."""
    topology = plan.topology
    left = [
        store for store in found.stores if store in found.filled and (is_generated(store) or store in topology.stores)
    ]
    if not left:
        return []
    lying = {(task_id.sub_topology, store) for task_id, stores in folders.items() for store in stores}
    fresh = [
        store
        for sub in plan.subs
        for store in sub.stores
        if not sub.is_global
        and store not in topology.source_changelogs
        and (
            plan.changelog(store) not in known if topology.stores[store].has_changelog else (sub.id, store) not in lying
        )
    ]
    contents = Checkpoint.from_notes({at: item.metadata for at, item in cluster.committed().items()}).contents
    result = []
    for old in left:
        new = next((store for store in fresh if _is_same_kind(plan, old, store, contents)), None)
        if new is not None:
            fresh.remove(new)
            result.append((old, new))
    return result


def _is_same_kind(plan: ApplicationPlan, old: str, new: str, contents: Mapping[str, Content]) -> bool:
    """Whether ``new`` could be the store ``old`` renamed: both have the same operator or the same content types."""
    if old == new or (is_generated(new) and _NUMBER.sub("", old) == _NUMBER.sub("", new)):
        return True
    content = contents.get(old)
    return (
        content is not None and not is_generated(new) and not content.differences(Content.of(plan.topology.stores[new]))
    )


def _described(plan: ApplicationPlan, found: _Found) -> str:
    parts = [f"store {store!r} ({', '.join(where)})" for store, where in found.stores.items()]
    parts += [f"topic {name}" for name in found.topics]
    return f"application {plan.config.application_id!r} has state that its topology does not know: {'; '.join(parts)}"


def _deletion(found: _Found, config: StreamsConfig) -> str:
    return f" (`streams topics delete {' '.join(found.names)}`)" if found.names and config.bootstrap_servers else ""
