"""The check whether a new version of a topology can take over the state of the old version.

The rules are those of the live runtime: changelogs and state folders are found by the names of
stores, offsets by the names of topics, stream times by the names of nodes, tasks by the numbers of
their sub-topologies.  The checks at startup are those of the runtime itself.  This module does no I/O.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from attrs import define, field, frozen

from streams.comparison.matching import (
    functions_of,
    is_numbered,
    owner_of,
    paired_nodes,
    paired_stores,
    stores_below,
)
from streams.comparison.versions import SerdeForm, Version, partition_groups
from streams.core.clock import VirtualClock
from streams.core.errors import TopologyError
from streams.core.settings.offset_reset import beginning
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime import START_OVER, ApplicationPlan, Checkpoint, Plans, changelog_config, check_groups
from streams.state import StoreFormat, StoreSpec, is_on_disk
from streams.topology import (
    ProcessorNode,
    ProcessorOperator,
    SinkNode,
    SourceNode,
    StoreNaming,
    Topology,
    emitted_name,
    options_of,
    periods_of,
)

#: Changelog topic settings that must change with the store, or state is lost.
_LOSING = ("retention.ms", "min.compaction.lag.ms", "cleanup.policy")


class Level(IntEnum):
    """The severity of a finding about a takeover."""

    #: Information only.
    NOTE = 0
    #: Something is lost, or action is needed before the takeover.
    BUT = 1
    #: The new version would not start, or would continue with wrong state.
    CANNOT = 2


@frozen
class Finding:
    """One finding about a takeover: its subject, a description with the reason, and the recommended action."""

    level: Level
    subject: str
    says: str
    do: str = ""


@frozen
class Evidence:
    """The results of replays for one store: how many old entries can be read with the types of the new version."""

    read: int = 0
    failed: int = 0
    first_failure: str = ""
    #: Number of entries that differ from those of the new version, and of all that either version has.
    differing: int = 0
    entries: int = 0


@frozen
class StoreFate:
    """The outcome for one store; ``old`` and ``new`` are its names, or None if a version does not have the store."""

    old: str | None
    new: str | None
    #: "kept", "starts empty", "left behind" or "wrong".
    fate: str


@frozen
class TakeOver:
    """The result of a takeover check: the outcome for each store, and all findings, the most severe first."""

    stores: tuple[StoreFate, ...]
    findings: tuple[Finding, ...]
    #: Maps the stores of the old version to their counterparts in the new version, regardless of their names.
    pairs: Mapping[str, str]

    @property
    def level(self) -> Level | None:
        """The most severe level of all findings, or None if there are none."""
        return max((finding.level for finding in self.findings), default=None)

    @property
    def is_clean(self) -> bool:
        """Whether all state is kept and no action is needed; informational findings do not count."""
        return self.level is None or self.level is Level.NOTE

    @property
    def verdict(self) -> str:
        """The result of the check as one line of text."""
        cannot = sum(finding.level is Level.CANNOT for finding in self.findings)
        if cannot:
            reasons = "1 reason" if cannot == 1 else f"{cannot} reasons"
            return f"cannot: NEW must not continue with OLD's state as it is ({reasons} below)"
        if self.level is not Level.BUT:
            return "can take over"
        empty = sum(fate.fate == "starts empty" for fate in self.stores)
        others = sum(item.level is Level.BUT for item in self.findings) - empty
        what = []
        if empty:
            of = _count(sum(fate.new is not None for fate in self.stores), "store")
            what.append(f"{empty} of {of} {'starts' if empty == 1 else 'start'} empty")
        if others > 0:
            what.append(f"{_count(others, 'more thing' if empty else 'thing')} must be checked")
        return f"can, but {' and '.join(what)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def take_over(old: Version, new: Version, evidence: Mapping[str, Evidence] | None = None) -> TakeOver:
    """Check whether the new version can take over the state of the old version under the same application ID.

    ``evidence`` has the results of replays for each store, by its name in the new version.
    """
    return _Check(old, new, evidence or {}).run()


@define(eq=False)
class _Check:
    """One run of the takeover check, which collects its findings."""

    old: Version
    new: Version
    evidence: Mapping[str, Evidence]
    findings: list[Finding] = field(factory=list)
    fates: list[StoreFate] = field(factory=list)
    pairs: dict[str, str] = field(factory=dict)
    partition_counts: dict[str, int] = field(factory=dict)

    def run(self) -> TakeOver:
        self.pairs = paired_stores(self.old.topology, self.new.topology)
        self.partition_counts = self.old.broker_topics()
        self._start()
        self._stores()
        self._internal_topics()
        self._sources()
        self._times()
        self._declared()
        worst_first = sorted(self.findings, key=lambda finding: -finding.level)
        return TakeOver(tuple(self.fates), tuple(worst_first), self.pairs)

    def _add(self, level: Level, subject: str, says: str, do: str = "") -> None:
        self.findings.append(Finding(level, subject, says, do))

    # --- checks at startup ----------------------------------------------------------------

    def _start(self) -> None:
        """Check by the runtime's own rules whether the new version would start on the topics of the old version."""
        counts = dict(self.new.external) | self.partition_counts
        plans = Plans(self.new.topology, self.new.config, VirtualClock(0))
        try:
            plan = plans.of(plans.layout(counts))
        except TopologyError as error:
            self._add(Level.CANNOT, "start", f"NEW does not start over OLD's topics: {error}")
            return
        misfits = [item for item in plan.internal_topics() if counts.get(item.name, item.partitions) != item.partitions]
        for item in misfits:
            self._misfit(item.name, counts[item.name], item.partitions)
        if not misfits:
            self._groups(plan)

    def _misfit(self, topic: str, has: int, needs: int) -> None:
        internal = topic.removeprefix(f"{self.new.config.application_id}-")
        where = f"topic {topic}"
        says = f"NEW does not start: the topic has {_count(has, 'partition')}, NEW needs {needs}"
        if internal in self.new.topology.internal_topics:
            do = f"keep partitions={has}"
            if needs % has == 0:
                do += "; or give the repartition another name, so that a new topic is created next to the state"
        else:
            do = f"let the inputs of its operator keep {_count(has, 'partition')}"
        self._add(Level.CANNOT, where, says, f"{do}; or {START_OVER}")

    def _groups(self, plan: ApplicationPlan) -> None:
        groups = partition_groups(self.old)
        metadata = {at: Checkpoint(group=group).offset_metadata([at])[at] for at, group in groups.items()}
        try:
            check_groups(plan, {at: OffsetAndMetadata(0, text) for at, text in metadata.items()})
        except TopologyError as error:
            self._add(Level.CANNOT, "start", f"NEW does not start: {error}")

    # --- stores ---------------------------------------------------------------------------

    def _stores(self) -> None:
        back = {two: one for one, two in self.pairs.items()}
        for name in self.new.topology.stores:
            if name in self.old.topology.stores and back.get(name) == name:
                self._same_name(name)
            elif name in self.old.topology.stores:
                self._taken_name(name, back.get(name))
            elif name in back:
                self._renamed(back[name], name)
            else:
                self.fates.append(StoreFate(None, name, "starts empty"))
                self._add(Level.BUT, f"store {name}", f"is new ({self._operator(self.new, name)}): it starts empty")
        for name in self.old.topology.stores:
            if name not in self.pairs and name not in self.new.topology.stores:
                self.fates.append(StoreFate(name, None, "left behind"))
                self._add(
                    Level.NOTE,
                    f"store {name}",
                    f"({self._operator(self.old, name)}) is gone from NEW; its content is left behind",
                    f"delete the topic {self.old.plan.changelog(name)} when OLD is not needed any more",
                )

    def _operator(self, version: Version, store: str) -> str:
        users = version.topology.store_users.get(store, [])
        return f"of {', '.join(users)}" if users else "of no operator"

    def _renamed(self, one: str, two: str) -> None:
        self.fates.append(StoreFate(one, two, "starts empty"))
        says = f"is called {two} in NEW, where it starts empty: state is found by the store's name"
        self._add(Level.BUT, f"store {one}", says, self._rename_advice(one, two))

    def _rename_advice(self, one: str, two: str) -> str:
        """Return advice on how to rename the store ``two`` to ``one``, its name in the old version."""
        node, operator = owner_of(self.new.topology, two)
        if isinstance(operator, ProcessorOperator):
            return f'give the store of {node} the name "{one}"'
        naming = StoreNaming.of(operator)
        if not naming.ends:
            name = f'name="{self._old_node(one)}", ' if self._keeps_times(one) else ""
            return f'give the operator {node} {name}store="{one}"'
        end = next((end for end in naming.ends if one.endswith(end)), None)
        if end is not None and not is_numbered(one):
            return f'give the operator {node} {naming.argument}="{one.removesuffix(end)}"'
        return (
            "its generated number cannot be set by an argument: declare new operators after this one, so that "
            "the number stays the same, and name the operator"
        )

    def _old_node(self, store: str) -> str:
        return self.old.topology.store_users[store][0]

    def _keeps_times(self, store: str) -> bool:
        node = self._old_node(store)
        return any(time.partition("/")[0] == node for time in self.old.times)

    def _taken_name(self, name: str, real: str | None) -> None:
        """Report a store name that denotes a different store in the new version."""
        self.fates.append(StoreFate(name, name, "wrong"))
        mine = self._operator(self.new, name)
        other = self._operator(self.old, name)
        says = (
            f"NEW's store of this name ({mine}) is not OLD's ({other}): it would continue with another store's content"
        )
        do = "name the stores, so that numbers do not matter"
        if real is not None:
            says += f"; its own was {real}"
            do = self._rename_advice(real, name)
        self._add(Level.CANNOT, f"store {name}", says, do)

    def _same_name(self, name: str) -> None:
        before = len(self.findings)
        one = self.old.topology.stores[name]
        two = self.new.topology.stores[name]
        if one.kind.family is not two.kind.family:
            says = f"is a store of kind {one.kind.name} in OLD and {two.kind.name} in NEW: its entries cannot be read"
            self._add(Level.CANNOT, f"store {name}", says, _ANEW)
        else:
            self._layout(name, one, two)
            for what, (was, now) in zip(("keys", "values"), zip(*self._forms(name), strict=True), strict=True):
                self._form(name, what, was, now)
        if any(finding.level is Level.CANNOT for finding in self.findings[before:]):
            self.fates.append(StoreFate(name, name, "wrong"))
            return
        is_kept = self._changelog(name, one, two)
        self.fates.append(StoreFate(name, name, "kept" if is_kept else "starts empty"))
        if is_kept:
            self._folder(name, one, two)
            self._settings(name, one, two)
            self._place(name, one, two)
            self._content(name)

    def _forms(self, name: str) -> tuple[tuple[SerdeForm, SerdeForm], tuple[SerdeForm, SerdeForm]]:
        return self.old.forms(name), self.new.forms(name)

    def _layout(self, name: str, one: StoreSpec, two: StoreSpec) -> None:
        """Check that a store has the same key layout in both versions."""
        was, now = (str(spec.calendar or _seconds(spec.window_size_ms)) for spec in (one, two))
        if was != now and not one.retain_duplicates:
            says = (
                f"has windows of {was} in OLD and of {now} in NEW: "
                "only starts are kept, so OLD's windows would continue as longer or shorter ones with wrong values"
            )
            self._add(Level.CANNOT, f"store {name}", says, _ANEW)
        if one.retain_duplicates != two.retain_duplicates:
            says = "keeps several values per key and time in one version only"
            self._add(Level.CANNOT, f"store {name}", says, _ANEW)
        otherwise = self._layout_change(name, one, two)
        if otherwise is not None and not (one.has_changelog and two.has_changelog):
            says = f"{otherwise}, and no changelog has its content: NEW does not start where OLD's state directory is"
            folder = f"{self.new.config.application_id}/{self.new.sub_of(name).id}_*/{name}"
            do = f"restore the previous declaration, or delete {folder} below each state directory: it starts empty"
            self._add(Level.CANNOT, f"store {name}", says, do)

    def _layout_change(self, name: str, one: StoreSpec, two: StoreSpec) -> str | None:
        """Return why the new version would not find entries in state directories, or None if it would find them."""
        if self._moved(name) is not None:
            return None
        if not (is_on_disk(one, _engine(self.old)) and is_on_disk(two, _engine(self.new))):
            return None
        was, now = (StoreFormat.of(spec, is_logged=spec.has_changelog) for spec in (one, two))
        return None if was.has_layout_of(now) else f"has another layout on disk: {was.layout_difference(now)}"

    def _form(self, name: str, what: str, was: SerdeForm, now: SerdeForm) -> None:
        """Check that the new version can deserialize the keys and values of a store."""
        subject = f"store {name}"
        if now.is_pinned and not was.is_pinned:
            says = f"{what} were declared as {was.name}; NEW does not declare their type, so it cannot read them"
            self._add(Level.CANNOT, subject, says, f"declare it with {what[:-1]}={was.name}")
            return
        if was.pinned_as is not None and now.is_pinned and now.pinned_as not in (None, was.pinned_as):
            names = (was.pinned_as, now.pinned_as) if was.name == now.name else (was.name, now.name)
            says = f"{what} were written as {names[0]}, NEW writes {names[1]}: it rejects them"
            self._add(Level.CANNOT, subject, says, f"declare the type with {what[:-1]}=, or keep the old one")
            return
        fits = was.is_read_as(now)
        if fits is False:
            says = f"{what} are {was.name} in OLD and {now.name} in NEW: their bytes are read as something else"
            self._add(Level.CANNOT, subject, says, _ANEW)
        elif fits is None:
            self._undeclared(name, what, was, now)

    def _undeclared(self, name: str, what: str, was: SerdeForm, now: SerdeForm) -> None:
        """Report a change of types that can only be checked against stored data, and the result of this check."""
        subject = f"store {name}"
        evidence = self.evidence.get(name)
        changed = f"{what} are {was.name} in OLD and {now.name} in NEW"
        if was.name == now.name:
            changed = f"{what}: {was.name} has other fields in NEW"
        if what == "values" and (fields := self._refused_fields(name)):
            self._add(Level.CANNOT, subject, f"{changed}: {fields[0]}; NEW refuses them at its start", fields[1])
            return
        if evidence is None or not evidence.read + evidence.failed:
            says = f"{changed}; whether OLD's can be read is not known"
            self._add(Level.BUT, subject, says, "give --input with some history, so that it is tried")
        elif evidence.failed:
            says = (
                f"{changed}: of {evidence.read + evidence.failed:,} entries {evidence.failed:,} cannot be read: "
                f"{evidence.first_failure}"
            )
            self._add(Level.CANNOT, subject, says, "give new fields a default value, and keep what OLD wrote readable")
        else:
            says = f"{changed}; NEW read all {evidence.read:,} of OLD's that were tried"
            self._add(Level.NOTE, subject, says)

    def _refused_fields(self, name: str) -> tuple[str, str] | None:
        """Return why the start of NEW refuses the values that OLD has on disk, and what to do; None if it does not."""
        one = self.old.topology.stores[name]
        two = self.new.topology.stores[name]
        if not (is_on_disk(one, _engine(self.old)) and is_on_disk(two, _engine(self.new))):
            return None
        was, now = (StoreFormat.of(spec, is_logged=spec.has_changelog) for spec in (one, two))
        fields = was.field_difference(now) if was.version == now.version else None
        return None if fields is None else (fields, now.advice_of_fields(name))

    def _changelog(self, name: str, one: StoreSpec, two: StoreSpec) -> bool:
        """Check that the new version uses the changelog that has the state; return whether the state is kept."""
        subject = f"store {name}"
        own = self.old.plan.changelog(name)
        source = self.new.plan.changelog(name)
        if not one.has_changelog or not two.has_changelog:
            if not one.has_changelog and not two.has_changelog:
                says = "has no changelog: only the state directory has its content"
            else:
                who = "OLD" if not one.has_changelog else "NEW"
                says = f"has no changelog in {who}: only the state directory keeps it"
            moved = self._moved(name)
            if moved is not None:
                self._add(Level.BUT, subject, f"{says}, and there its place is {moved}: it starts empty")
                return False
            self._add(Level.BUT, subject, says, "start NEW where OLD's state directory is")
            return is_on_disk(one, _engine(self.old)) and is_on_disk(two, _engine(self.new))
        if own != source and name in self.old.topology.source_changelogs:
            says = (
                f"was restored from the topic {own} itself in OLD, in NEW from {source}, which is new: it starts empty"
            )
            self._add(Level.BUT, subject, says, "keep topology_optimization=all")
            return False
        return True

    def _moved(self, name: str) -> str | None:
        """Return a text with the new and old task folders if the number of the store's sub-topology has changed."""
        was = self.old.sub_of(name).id
        now = self.new.sub_of(name).id
        return None if was == now else f"task {now}_* instead of {was}_*"

    def _folder(self, name: str, one: StoreSpec, two: StoreSpec) -> None:
        """Report state directories that the new version does not use."""
        moved = self._moved(name)
        otherwise = self._layout_change(name, one, two)
        why = otherwise if moved is None else f"is state of {moved}"
        if why is not None:
            self._add(Level.NOTE, f"store {name}", f"{why}: restored from its changelog at the first start")

    def _settings(self, name: str, one: StoreSpec, two: StoreSpec) -> None:
        if not (one.has_changelog and two.has_changelog) or name in self.new.topology.source_changelogs:
            return
        was = changelog_config(one)
        now = changelog_config(two)
        changed = [setting for setting in _LOSING if was.get(setting) != now.get(setting)]
        if one.kind.has_versions and two.kind != one.kind:
            says = "was versioned: of a key that was updated out of order an older value may come back"
            self._add(Level.BUT, f"store {name}", says)
        if two.retention_ms < one.retention_ms:
            says = (
                f"keeps {_seconds(two.retention_ms)} instead of {_seconds(one.retention_ms)}; older windows are dropped"
            )
            self._add(Level.NOTE, f"store {name}", says)
        if changed:
            listed = ", ".join(f"{setting}={now.get(setting, '(default)')}" for setting in changed)
            says = "its changelog exists and keeps the settings that OLD gave it"
            topic = self.old.plan.changelog(name)
            self._add(Level.NOTE, f"store {name}", says, f"set {listed} for the topic {topic}")

    def _place(self, name: str, one: StoreSpec, two: StoreSpec) -> None:
        if not is_on_disk(one, _engine(self.old)) or one.max_entries <= two.max_entries:
            return
        self._add(Level.NOTE, f"store {name}", f"holds {two.max_entries} entries instead of {one.max_entries}")

    def _content(self, name: str) -> None:
        evidence = self.evidence.get(name)
        if evidence is None or not evidence.differing:
            return
        has_changed = functions_of(self.old.topology, name) != functions_of(self.new.topology, name)
        why = "the functions of its operator have changed" if has_changed else "its input has changed"
        says = (
            f"continues with OLD's content: {evidence.differing:,} of {evidence.entries:,} entries are not what NEW "
            f"would have made of this history ({why})"
        )
        do = "replay NEW over the history and go live from its snapshot, to recompute past results with NEW"
        self._add(Level.BUT, f"store {name}", says, do)

    # --- topics ---------------------------------------------------------------------------

    def _internal_topics(self) -> None:
        old = self.old.topology
        new = self.new.topology
        for name in old.internal_topics:
            topic = self.old.plan.physical_topic(name)
            if name not in new.internal_topics:
                says = "NEW does not read it: records that OLD has not processed there are left behind"
                do = _DRAIN
                self._add(Level.BUT, f"repartition topic {topic}", says, do)
                continue
            below = {self.pairs.get(store) for store in stores_below(old, name)}
            if below and below.isdisjoint(stores_below(new, name)):
                says = (
                    "is read by another operator in NEW: records that OLD has not processed there go to the wrong one"
                )
                do = _DRAIN
                self._add(Level.BUT, f"repartition topic {topic}", says, do)
            for what, was, now in zip(
                ("keys", "values"), _written_forms(old, name), _read_forms(new, name), strict=True
            ):
                if was is None or now is None or was.is_read_as(now):
                    continue
                says = f"{what} are {was.name} in OLD and {now.name} in NEW: records in flight may be unreadable"
                do = _DRAIN
                self._add(Level.BUT, f"repartition topic {topic}", says, do)

    def _sources(self) -> None:
        was = _sources(self.old.topology)
        now = _sources(self.new.topology)
        for topic in sorted(now.keys() - was.keys()):
            policy = self.new.topology.offset_reset(topic) or self.new.config.consumer.auto_offset_reset
            self._add(Level.BUT, f"topic {topic}", f"is read by NEW only: it begins {beginning(policy)} (offset reset)")
        for topic in sorted(was.keys() - now.keys()):
            self._add(Level.NOTE, f"topic {topic}", "is not read any more")
        for topic in sorted(was.keys() & now.keys()):
            for what, one, two in zip(("keys", "values"), was[topic], now[topic], strict=True):
                fits = one.is_read_as(two)
                if fits is not True:
                    changed = (
                        f"{two.name}, by OLD as {one.name}" if one.name != two.name else f"{two.name} of other fields"
                    )
                    says = f"{what} are read as {changed}: it must be what its producers write"
                    self._add(Level.NOTE if fits is None else Level.BUT, f"topic {topic}", says)
            counts = self.old.external.get(topic), self.new.external.get(topic)
            if counts[0] != counts[1]:
                says = f"NEW asks for {counts[1]} partitions, OLD for {counts[0]}: a topic that exists keeps its own"
                self._add(Level.NOTE, f"topic {topic}", says)

    # --- times ----------------------------------------------------------------------------

    def _times(self) -> None:
        """Check that the new version finds the committed stream times of operators, which are stored by node name."""
        store_names = {fate.old: fate.new for fate in self.fates if fate.fate == "kept" and fate.old and fate.new}
        for one, two in paired_nodes(self.old.topology, self.new.topology, store_names).items():
            if not any(time.partition("/")[0] == one for time in self.old.times):
                continue
            if one != two:
                why = f"its operator is called {two} in NEW"
                store = next(name for name in store_names if one in self.old.topology.store_users[name])
                has_store = not StoreNaming.of(owner_of(self.old.topology, store)[1]).ends
                do = f'give it name="{one}", store="{store}"' if has_store else f'give it name="{one}"'
            elif self._carrier_is_lost(one, two):
                why = "its offsets are committed by another task in NEW"
                do = ""
            else:
                continue
            says = f"{why}, so its stream time starts again: late records are accepted again"
            # The time of emitted windows goes by the store, and is with the offsets of every input of the task.
            if one == two and any(emitted_name(store) in self.old.times for store in store_names):
                says += ", and windows that were emitted may be emitted again"
            self._add(Level.BUT, f"node {one}", says, do)
        for node in sorted(self.old.timers - set(self.new.topology.nodes)):
            says = "is not in NEW: its punctuations are not carried over"
            self._add(Level.NOTE, f"node {node}", says)

    # --- periods and options ----------------------------------------------------------------

    def _declared(self) -> None:
        """Report changed periods and options of operators, stores and sources, such as ``ttl`` and ``concurrency``."""
        paired = paired_nodes(self.old.topology, self.new.topology, self.pairs)
        # A node without a store, such as one of batches, is known by its name only.
        nodes = self.new.topology.nodes.keys() & self.old.topology.nodes.keys()
        named = {name: name for name in sorted(nodes) if isinstance(self.old.topology.nodes[name], ProcessorNode)}
        for one, two in (named | paired).items():
            was = _periods_of(self.old, one)
            now = _periods_of(self.new, two)
            for name in sorted(was.keys() | now.keys()):
                self._period(f"node {one}", name, was.get(name), now.get(name))
            chosen = _options_of(self.old, one)
            chooses = _options_of(self.new, two)
            for name in sorted(chosen.keys() | chooses.keys()):
                old = chosen.get(name, "none")
                new = chooses.get(name, "none")
                if old != new:
                    self._add(Level.NOTE, f"node {one}", f"{name} is {old} in OLD and {new} in NEW")
        readers = [
            {topic: source.name for source in version.topology.sources() for topic in source.topics}
            for version in (self.old, self.new)
        ]
        for topic in sorted(readers[0].keys() & readers[1].keys() - self.new.topology.internal_topics.keys()):
            idle = [
                _periods_of(version, reader[topic]).get("idle_close", version.config.idle_close_ms)
                for version, reader in zip((self.old, self.new), readers, strict=True)
            ]
            self._period(f"topic {topic}", "idle_close", idle[0] or None, idle[1] or None)
        both = self.old.topology.internal_topics.keys() & self.new.topology.internal_topics.keys()
        for topic in sorted(both):
            patience = [_patience_of(version, topic) for version in (self.old, self.new)]
            self._period(f"topic {topic}", "patience", patience[0] or None, patience[1] or None)

    def _period(self, subject: str, name: str, was_ms: int | None, now_ms: int | None) -> None:
        if was_ms == now_ms:
            return
        was, now = ("none" if period is None else _seconds(period) for period in (was_ms, now_ms))
        says = f"{name} is {was} in OLD and {now} in NEW"
        if name.startswith("ttl") and now_ms is not None and (was_ms is None or now_ms < was_ms):
            self._add(Level.BUT, subject, f"{says}: rows that were last updated before that expire at the first record")
        else:
            self._add(Level.NOTE, subject, says)

    def _carrier_is_lost(self, one: str, two: str) -> bool:
        before = next(sub for sub in self.old.subs if one in sub.nodes)
        after = next(sub for sub in self.new.subs if two in sub.nodes)
        carrier = self.old.first_topic(before)
        return carrier is not None and carrier not in after.source_topics


_ANEW = "give the store another name, so that it starts empty, or replay NEW and go live from its snapshot"


#: The advice about records in flight.
_DRAIN = "let OLD process it to its end before it is stopped, without new input"


def _engine(version: Version) -> Any:
    return "in_memory" if version.config.default_store == "in_memory" else "rocksdb"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"


def _periods_of(version: Version, node: str) -> dict[str, int]:
    return periods_of(version.topology, version.topology.nodes[node])


def _patience_of(version: Version, topic: str) -> int:
    patience_ms = version.topology.internal_topics[topic].patience_ms
    return version.config.repartition_patience_ms if patience_ms is None else patience_ms


def _options_of(version: Version, node: str) -> dict[str, int | str]:
    return options_of(version.topology.nodes[node])


def _written_forms(topology: Topology, topic: str) -> tuple[SerdeForm | None, SerdeForm | None]:
    for node in topology.nodes.values():
        if isinstance(node, SinkNode) and node.topic == topic:
            return SerdeForm.of(node.key_serde), SerdeForm.of(node.value_serde)
    return None, None


def _read_forms(topology: Topology, topic: str) -> tuple[SerdeForm | None, SerdeForm | None]:
    for source in topology.sources():
        if topic in source.topics:
            return SerdeForm.of(source.key_serde), SerdeForm.of(source.value_serde)
    return None, None


def _sources(topology: Topology) -> dict[str, tuple[SerdeForm, SerdeForm]]:
    """Return the external topics that tasks read, with the formats of their keys and values."""

    def forms() -> Iterator[tuple[str, tuple[SerdeForm, SerdeForm]]]:
        for source in topology.sources():
            assert isinstance(source, SourceNode)
            for topic in source.topics:
                if topic not in topology.internal_topics:
                    yield topic, (SerdeForm.of(source.key_serde), SerdeForm.of(source.value_serde))

    return dict(forms())
