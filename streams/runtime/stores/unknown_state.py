"""Detection of existing stores and topics that are not part of the topology, when an application starts.

A generated store name has a number that shifts with every upstream change: then the old store is orphaned, and a new
store starts empty.  Renaming a store has the same effect.  Orphaned stores on the broker and in the state directory are
logged; if a generated name seems to have shifted, the application does not start.  Topics of another application whose
id begins with this application's id are ignored.  The module imports only ``clients``, ``core`` and ``state`` from
outside ``runtime``.
"""

import logging
import re
from collections.abc import Iterable, Mapping

from attrs import define, field

from streams.clients import InternalTopic, internal_topics
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.errors import UnknownStateError
from streams.core.topic import is_generated
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.plan.provisioning import Provisioner
from streams.runtime.tasks.checkpoint import Checkpoint
from streams.state import Content

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d{10}")


def check_unknown_state(
    plan: ApplicationPlan,
    partition_counts: Mapping[str, int],
    folders: Mapping[TaskId, Iterable[str]],
    cluster: Provisioner,
) -> None:
    """Log the stores, changelogs and repartition topics that are not part of the topology.

    ``partition_counts`` has the topics that exist in the cluster before the start creates any; ``folders`` has the
    names of the stores in the state directory, by task.

    Raises:
        UnknownStateError: there is unknown state and ``unknown_state`` is ``fail``; or the name of a store seems to
            have changed, and no other instance is a member of the group.
    """
    if plan.config.unknown_state != "ignore":
        _Survey(plan, partition_counts, folders, cluster).report()


@define
class _Survey:
    """Searches the broker and the state directory for state that is not part of the topology."""

    plan: ApplicationPlan
    partition_counts: Mapping[str, int]
    folders: Mapping[TaskId, Iterable[str]]
    cluster: Provisioner
    #: The changelogs and folders in which each unknown store was found, by store.
    stores: dict[str, list[str]] = field(factory=dict)
    #: Unknown stores with content.
    filled: set[str] = field(factory=set)
    #: Unknown repartition topics.
    topics: list[str] = field(factory=list)
    #: Names of all unknown topics.
    names: list[str] = field(factory=list)

    def report(self) -> None:
        """Log a warning if there is unknown state.

        Raises:
            UnknownStateError: there is unknown state that must not be ignored; see ``check_unknown_state``.
        """
        self._search_topics()
        self._search_folders()
        if not self.stores and not self.topics:
            return
        config = self.plan.config
        moved = self._moved()
        unknown = [f"store {store!r} ({', '.join(where)})" for store, where in self.stores.items()]
        unknown += [f"topic {name}" for name in self.topics]
        text = f"application {config.application_id!r} has state that its topology does not know: {'; '.join(unknown)}"
        if moved:
            pairs = ", ".join(f"store {new!r} starts empty while {old!r} is left over" for old, new in moved)
            advice = "; ".join(f'store="{old}" keeps the state of {old!r}' for old, _ in moved)
            text += f". The name of a store has changed: {pairs}. Generated names change with the topology: {advice}"
        deletion = (
            f" (`streams topics delete {' '.join(self.names)}`)" if self.names and config.bootstrap_servers else ""
        )
        text += (
            f". `streams diff OLD.py NEW.py` shows what happens to each store; delete what is no longer needed"
            f"{deletion}, or set unknown_state=ignore to start without this check"
        )
        if config.unknown_state == "fail" or (moved and not self.cluster.has_members()):
            raise UnknownStateError(text, stores=tuple(self.stores), topics=tuple(self.names))
        log.warning("%s", text)

    def _is_unknown(self, item: InternalTopic) -> bool:
        topology = self.plan.topology
        if item.store is not None:
            return item.store not in topology.stores
        # A topic that is no longer written keeps what was merged into it; that of the progress is none of a topology.
        is_of_topology = item.topic is not None and not item.has_lanes_of_output
        return is_of_topology and item.topic not in topology.internal_topics

    def _search_topics(self) -> None:
        application_id = self.plan.config.application_id
        if not any(map(self._is_unknown, internal_topics(application_id, self.partition_counts, ()))):
            return
        for item in filter(
            self._is_unknown, internal_topics(application_id, self.partition_counts, self.cluster.groups())
        ):
            self.names.append(item.name)
            if item.store is None:
                self.topics.append(item.name)
                continue
            self.stores.setdefault(item.store, []).append(f"changelog {item.name}")
            partitions = [TopicPartition(item.name, number) for number in range(self.partition_counts[item.name])]
            if any(self.cluster.ends(partitions).values()):
                self.filled.add(item.store)

    def _search_folders(self) -> None:
        for task_id, names in sorted(self.folders.items()):
            for store in names:
                if store not in self.plan.topology.stores or self._is_abandoned(task_id, store):
                    if store not in self.stores:
                        # Whether a store without a changelog has content is not known before it is opened.
                        self.filled.add(store)
                    self.stores.setdefault(store, []).append(f"folder {task_id}/{store}")

    def _is_abandoned(self, task_id: TaskId, store: str) -> bool:
        """Return whether a store without a changelog has a folder of a task that does not use the store."""
        if self.plan.topology.stores[store].has_changelog:
            return False
        return not any(sub.id == task_id.sub_topology and store in sub.stores for sub in self.plan.subs)

    def _moved(self) -> list[tuple[str, str]]:
        """Return the (old name, new name) pairs of the stores that seem to have been renamed."""
        plan = self.plan
        topology = self.plan.topology
        left = [
            store for store in self.stores if store in self.filled and (is_generated(store) or store in topology.stores)
        ]
        if not left:
            return []
        existing = {(task_id.sub_topology, store) for task_id, stores in self.folders.items() for store in stores}

        def is_new(sub: int, store: str) -> bool:
            if store in topology.source_changelogs:
                return False
            has_changelog = topology.stores[store].has_changelog
            return plan.changelog(store) not in self.partition_counts if has_changelog else (sub, store) not in existing

        new_stores = [store for sub in plan.subs if not sub.is_global for store in sub.stores if is_new(sub.id, store)]
        committed = self.cluster.committed()
        contents = Checkpoint.from_metadata({at: item.metadata for at, item in committed.items()}).contents
        result = []
        for old in left:
            new = next((store for store in new_stores if self._is_same_kind(old, store, contents.get(old))), None)
            if new is not None:
                new_stores.remove(new)
                result.append((old, new))
        return result

    def _is_same_kind(self, old: str, new: str, content: Content | None) -> bool:
        """Return whether ``old`` may have been renamed to ``new``: both have the same operator or the same types."""
        if old == new or (is_generated(new) and _NUMBER.sub("", old) == _NUMBER.sub("", new)):
            return True
        if content is None or is_generated(new):
            return False
        return not content.differences(Content.of(self.plan.topology.stores[new]))
