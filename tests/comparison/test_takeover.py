"""Each verdict of the take-over check, and that it comes true when the old version is really replaced.

The old version runs live on an embedded broker with a state directory, then the new one over it.
"""

import importlib
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen

from streams import (
    EmbeddedBroker,
    EmitStrategy,
    JoinWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopologyError,
    time_windowed,
)
from streams.comparison import Level, Version, take_over
from streams.core.errors import LostRecordsError, ProcessingError, StoreError, StreamsError, UnknownStateError
from streams.replay import replay
from tests.comparison.takeover_cases import Life, clicks, fates, minutes, planned, said, verdict, views

#: Also where a store begins empty.
AS_IT_IS = {"unknown_state": "ignore"}


@pytest.fixture
def life(tmp_path):
    with EmbeddedBroker() as broker:
        yield Life(broker, tmp_path / "state")


@pytest.fixture
def wide(tmp_path):
    """The same with two partitions of each topic."""
    with EmbeddedBroker() as broker:
        yield Life(broker, tmp_path / "state", 2)


def counting(name: str | None = None, filters: int = 0, **options: Any):
    """Return a topology that counts clicks by key, behind some filters."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(clicks)
        for _ in range(filters):
            stream = stream.filter(lambda key, value: True)
        stream.group_by_key().count(name, **options)

    return topology


def summing(value: Any = int, initial: Any = 0, *, add: Any = lambda key, value, total: total + value, **options: Any):
    """Return a topology that adds up clicks by key in the store "sums"."""

    def topology(builder: StreamsBuilder) -> None:
        declared = {} if value is None else {"value": value}
        builder.stream(clicks).group_by_key().aggregate(lambda: initial, add, name="sums", **declared, **options)

    return topology


def windowed(size: float = 10, grace: float = 0, name: str = "windows", *, closes: bool = False, **options: Any):
    """Return a topology that counts clicks by key and window in a store."""

    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(minutes(size), grace=minutes(grace))
        grouped = builder.stream(clicks).group_by_key().windowed_by(windows)
        if closes:
            grouped = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        grouped.count(name, **options).to_stream().to(closed_windows(size))

    return topology


def closed_windows(size: float) -> Topic[Any, int]:
    """Return the output topic, for windows of so many minutes."""
    return Topic("closed", key=time_windowed(str, minutes(size)), value=int)


words = Topic("words", key=str, value=str)
closed = closed_windows(10)
EARLIER = [(clicks, "ann", 5, 0), (clicks, "bob", 7, 1)]
LATER = [(clicks, "ann", 1, 2)]


# --- stores -------------------------------------------------------------------------------


def test_the_same_topology_takes_over(life):
    found = verdict(counting("counts"), counting("counts"))

    assert (found.verdict, found.is_clean, fates(found)) == ("can take over", True, {"counts": "kept"})
    life.run(counting("counts"), *EARLIER)
    assert life.run(counting("counts"), *LATER) == {"counts": {"ann": 2, "bob": 1}}


def test_a_filter_in_front_shifts_a_numbered_store_which_then_starts_empty(life):
    found = verdict(counting(), counting(filters=1))

    assert found.verdict == "can, but 1 of 1 store starts empty"
    assert '-> give the operator KSTREAM-AGGREGATE-0000000003 store="KSTREAM-AGGREGATE-STATE-STORE-0000000001"' in (
        said(found)
    )
    life.run(counting(), *EARLIER)
    with pytest.raises(UnknownStateError, match='store="KSTREAM-AGGREGATE-STATE-STORE-0000000001"'):
        life.run(counting(filters=1))
    started = life.run(counting(filters=1), *LATER, **AS_IT_IS)
    assert started == {"KSTREAM-AGGREGATE-STATE-STORE-0000000002": {"ann": 1}}


def test_the_advised_name_keeps_the_state_of_a_shifted_store(life):
    named = counting(filters=1, store="KSTREAM-AGGREGATE-STATE-STORE-0000000001")

    assert verdict(counting(), named).is_clean
    life.run(counting(), *EARLIER)
    assert life.run(named, *LATER) == {"KSTREAM-AGGREGATE-STATE-STORE-0000000001": {"ann": 2, "bob": 1}}


def two(filters: int):
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(clicks)
        for _ in range(filters):
            stream = stream.filter(lambda key, value: True)
        stream.group_by_key().count()
        stream.group_by_key().aggregate(lambda: 0, lambda key, value, total: total + value, value=int)

    return topology


def test_a_shifted_store_that_gets_the_number_of_another_one_must_not_take_over(life):
    """The count in front of the sum gets the sum's number, and counts on from a sum."""
    found = verdict(two(0), two(2))

    assert found.level is Level.CANNOT
    assert "store KSTREAM-AGGREGATE-STATE-STORE-0000000003" in said(found, Level.CANNOT)
    assert 'store="KSTREAM-AGGREGATE-STATE-STORE-0000000001"' in said(found, Level.CANNOT)
    assert found.pairs["KSTREAM-AGGREGATE-STATE-STORE-0000000001"] == "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    life.run(two(0), *EARLIER)
    with pytest.raises(UnknownStateError):
        life.run(two(2))
    assert life.run(two(2), *LATER, **AS_IT_IS)["KSTREAM-AGGREGATE-STATE-STORE-0000000003"] == {"ann": 6, "bob": 7}


def test_a_renamed_store_starts_empty_and_its_old_name_is_advised(life):
    found = verdict(counting("counts"), counting("clicks-by-user"))

    assert fates(found) == {"counts": "starts empty"}
    assert 'store="counts"' in said(found)
    life.run(counting("counts"), *EARLIER)
    assert life.run(counting("clicks-by-user"), *LATER) == {"clicks-by-user": {"ann": 1}}


def joined(name: str | None = None, store: str | None = None, held: str | None = None, within: float = 1):
    """Return a topology with a join of streams and a table whose changes are held back."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(clicks)
        stream.join(
            builder.stream(views), lambda one, two: one, JoinWindows.of(minutes(within)), name=name, store=store
        )
        table = stream.group_by_key().windowed_by(TimeWindows.of(minutes(1))).count("counts-store")
        table.suppress(Suppressed.until_window_closes(), held)

    return topology


def test_the_advice_knows_how_operators_call_their_stores():
    """A join adds to the name that it is given, and so does what holds changes back."""
    renamed = said(verdict(joined("j", "pairs", "held"), joined("j", "couples", "kept")))

    assert 'give the operator j-this-windowed store="pairs"' in renamed
    assert 'give the operator kept name="held"' in renamed
    assert "counts-store" not in renamed
    shifted = said(verdict(counting("counts-store"), counting("clicks-store")))
    assert 'give the operator clicks-store store="counts-store"' in shifted
    numbered = said(verdict(joined(), lambda builder: (builder.stream(words).peek(print), joined()(builder))[1]))
    assert "its generated number cannot be set by an argument" in numbered


def grouped(*functions: Any):
    """Return a topology that groups clicks anew and counts them, once for each function."""

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(clicks)
        for function in functions:
            stream.group_by(function).count()

    return topology


def test_a_repartition_topic_that_another_operator_reads_is_told():
    """A grouping in front takes the number, and so the topic, of the one that was first."""
    by_value, by_key, by_both = (
        lambda key, value: str(value),
        lambda key, value: key[:1],
        lambda key, value: f"{key}{value}",
    )
    found = verdict(grouped(by_value, by_key), grouped(by_both, by_value, by_key))

    assert "repartition topic app-KSTREAM-AGGREGATE-STATE-STORE-" in said(found)
    assert "is read by another operator in NEW" in said(found)
    assert found.level is Level.CANNOT


def test_new_stores_start_empty_and_those_that_are_gone_are_left_behind(life):
    def more(builder: StreamsBuilder) -> None:
        counting("counts")(builder)
        builder.stream(views).group_by_key().count("views")

    assert fates(verdict(counting("counts"), more)) == {"counts": "kept", "views": "starts empty"}
    gone = verdict(more, counting("counts"))
    assert fates(gone) == {"counts": "kept", "views": "left behind"}
    assert gone.is_clean
    life.run(counting("counts"), *EARLIER)
    assert life.run(more, *LATER, (views, "cy", 1, 3)) == {"counts": {"ann": 2, "bob": 1}, "views": {"cy": 1}}


@pytest.mark.parametrize(("value", "initial"), [(float, 0.0), (dict, {}), (str, "")])
def test_values_of_another_type_cannot_be_read(life, value, initial):
    def add(key, value, total):
        return type(initial)(total) if total else initial

    new = summing(value, initial, add=add)
    found = verdict(summing(), new)

    assert "values are int in OLD" in said(found, Level.CANNOT)
    life.run(summing(), *EARLIER)
    with pytest.raises(StoreError, match="'sums' of task 0_0 holds values written as long"):
        life.run(new, *LATER)


def test_a_type_that_is_declared_now_reads_what_lambdas_made(life):
    found = verdict(summing(None), summing(int))

    assert found.level is Level.BUT
    assert "not known" in said(found)
    life.run(summing(None), *EARLIER)
    assert life.run(summing(int), *LATER) == {"sums": {"ann": 6, "bob": 7}}


def test_a_type_that_is_not_declared_any_more_does_not(life):
    assert "declare it with value=int" in said(verdict(summing(int), summing(None)), Level.CANNOT)
    life.run(summing(int), *EARLIER)
    with pytest.raises(ProcessingError, match="no type for them yet"):
        life.run(summing(None), *LATER)


@frozen
class Total:
    cents: int


@frozen
class Noted:
    cents: int
    note: str = ""


@frozen
class Strict:
    cents: int
    note: str


def classy(kind: Any, *rest: Any, declares: bool = True):
    """Return a topology that adds clicks up in objects of a class."""
    return summing(
        kind if declares else None,
        kind(0, *rest),
        add=lambda key, value, total: kind(total.cents + value, *rest),
    )


def test_new_fields_with_a_default_can_be_read(life):
    life.run(classy(Total), *EARLIER)

    assert life.run(classy(Noted), *LATER) == {"sums": {"ann": Noted(6), "bob": Noted(7)}}


def test_new_fields_without_a_default_cannot_be_read(life):
    life.run(classy(Total), *EARLIER)

    with pytest.raises(StoreError, match="the field 'note' is new and has no default value"):
        life.run(classy(Strict, ""), *LATER)


def test_classes_that_lambdas_made_are_found_by_the_name_of_their_module(life, tmp_path, monkeypatch):
    """Two scripts of different names define the same class; nobody declared it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    topologies, versions = [], []
    (tmp_path / "clicks.records.jsonl").write_text('{"key": "ann", "value": 5, "timestamp": 0}\n')
    for name in ("shop_of_may", "shop_of_june"):
        (tmp_path / f"{name}.py").write_text("from attrs import frozen\n\n\n@frozen\nclass Total:\n    cents: int\n")
        topology = classy(importlib.import_module(name).Total, declares=False)
        history = {clicks: tmp_path / "clicks.records.jsonl"}
        with replay(topology, history, application_id="app", executor="local", processes=1) as result:
            versions.append(Version.of(result))
        topologies.append(topology)

    assert "were written as class:shop_of_may:Total" in said(take_over(*versions), Level.CANNOT)
    life.run(topologies[0], *EARLIER)
    with pytest.raises(StreamsError, match="shop_of_may"):
        life.run(topologies[1], *LATER)


def test_stores_of_another_kind_cannot_be_read(life):
    new = windowed(name="counts")
    assert "of kind timestamped_kv in OLD and timestamped_window in NEW" in said(
        verdict(counting("counts"), new), Level.CANNOT
    )
    life.run(counting("counts"), *EARLIER)
    life.forget_all_folders()
    with pytest.raises(
        StoreError, match=r"app-counts-changelog-0 .* holds entries by key, but the topology keeps windows"
    ):
        life.run(new, *LATER)


def test_a_versioned_table_reads_the_changelog_of_a_plain_one(life):
    new = counting("counts", history=timedelta(hours=1))
    found = verdict(counting("counts"), new)

    assert found.is_clean
    assert "it was of kind timestamped_kv and is now versioned: restored from its changelog" in said(found, Level.NOTE)
    life.run(counting("counts"), *EARLIER)
    life.run(new, *LATER)
    back = verdict(new, counting("counts"))
    assert "an older value may come back" in said(back)
    assert life.run(counting("counts"), *LATER) == {"counts": {"ann": 3, "bob": 1}}


# --- windows ------------------------------------------------------------------------------

TWENTY = [(clicks, "ann", 1, minute) for minute in range(21)]


def test_windows_of_another_size_cannot_go_on(life):
    """Only their starts are kept: those of OLD would be counted on as longer ones, so NEW refuses them."""
    old, new = (windowed(size, retention=timedelta(hours=1)) for size in (10, 20))

    assert "windows of 600 s in OLD and of 1200 s in NEW" in said(verdict(old, new), Level.CANNOT)
    life.run(old, *TWENTY)
    with pytest.raises(StoreError, match="holds windows of 600000 ms, but those of the topology have 1200000 ms"):
        life.run(new, (clicks, "ann", 1, 21))


def test_joins_of_another_window_go_on():
    """Their stores hold single records, which are records whatever the window."""
    found = verdict(joined("j", "pairs", "held"), joined("j", "pairs", "held", within=30))

    assert found.is_clean


@pytest.mark.parametrize("grace", [0, 60])
def test_another_grace_takes_over_from_the_changelog(life, grace):
    """Grace is part of the retention, by which entries are laid out on disk."""
    old, new = windowed(grace=5), windowed(grace=grace)
    found = verdict(old, new)

    assert fates(found) == {"windows": "kept"}
    assert "its retention has changed, and with it the segments that hold its entries" in said(found, Level.NOTE)
    life.run(old, *TWENTY)
    later = life.run(new, (clicks, "ann", 1, 17), (clicks, "ann", 1, 21))["windows"]
    assert later[("ann", 20)] == 2
    assert later.get(("ann", 10)) == (11 if grace else None)


def test_another_grace_without_a_changelog_does_not_start(life):
    old, new = windowed(grace=5, logging=False), windowed(grace=60, logging=False)
    found = verdict(old, new)

    assert fates(found) == {"windows": "wrong"}
    assert "delete app/0_*/windows" in said(found, Level.CANNOT)
    life.run(old, *TWENTY)
    with pytest.raises(StoreError, match="delete the folder 0_0/windows of the state directory"):
        life.run(new)
    life.forget_folders("windows")
    assert life.run(new, (clicks, "ann", 1, 17))["windows"] == {("ann", 10): 1}


def test_another_grace_with_the_same_retention_needs_nothing(life):
    old, new = (windowed(grace=grace, retention=timedelta(hours=2)) for grace in (0, 30))

    assert verdict(old, new).is_clean
    life.run(old, *TWENTY)
    later = life.run(new, (clicks, "ann", 1, 17), (clicks, "ann", 1, 21))["windows"]
    assert later == {("ann", 0): 10, ("ann", 10): 11, ("ann", 20): 2}


def test_a_renamed_operator_forgets_how_late_it_is_but_not_what_it_has_emitted(life):
    """The operator's stream time goes by the name of the node, the time of emitted windows by that of the store."""
    kept = {"store": "windows", "retention": timedelta(hours=2), "closes": True}
    old, same, new = windowed(name="by-user", **kept), windowed(name="by-user", **kept), windowed(name="x", **kept)
    later = [(clicks, "ann", 1, 5), (clicks, "ann", 1, 21), (clicks, "ann", 1, 31)]

    assert verdict(old, same).is_clean
    found = verdict(old, new)
    assert fates(found) == {"windows": "kept"}
    assert "its stream time starts again: late records are accepted again" in said(found)
    assert "emitted again" not in said(found)
    assert 'name="by-user"' in said(found)
    life.run(old, *TWENTY)
    sent = life.written(closed)
    assert [key.window.start_ms // 60_000 for key, _ in sent] == [0, 10]
    life.run(new, *later)
    again = life.written(closed)[len(sent) :]
    assert [(key.window.start_ms // 60_000, count) for key, count in again] == [(20, 2)]


def test_an_operator_of_the_same_name_knows_what_is_too_late(life):
    kept = {"name": "by-user", "store": "windows", "retention": timedelta(hours=2), "closes": True}
    life.run(windowed(**kept), *TWENTY)
    sent = life.written(closed)
    life.run(windowed(**kept), (clicks, "ann", 1, 5), (clicks, "ann", 1, 21), (clicks, "ann", 1, 31))

    again = life.written(closed)[len(sent) :]
    assert [(key.window.start_ms // 60_000, count) for key, count in again] == [(20, 2)]


# --- changelogs and folders ---------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(True, False), (False, True)])
def test_without_a_changelog_only_the_state_directory_has_the_content(life, old, new):
    one, other = counting("counts", logging=old), counting("counts", logging=new)
    found = verdict(one, other)

    assert "start NEW where OLD's state directory is" in said(found)
    life.run(one, *EARLIER)
    assert life.run(other, *LATER) == {"counts": {"ann": 2, "bob": 1}}


def test_without_a_changelog_a_move_to_another_machine_loses_the_content(life):
    life.run(counting("counts", logging=False), *EARLIER)
    life.forget_all_folders()

    assert life.run(counting("counts"), *LATER) == {"counts": {"ann": 1}}


def test_a_table_that_was_restored_from_its_topic_starts_empty_without_optimization(life):
    def tables(builder: StreamsBuilder) -> None:
        builder.table(clicks, store="by-user")

    plain, optimized = planned(tables, topology_optimization="none"), planned(tables, topology_optimization="all")

    assert take_over(plain, optimized).is_clean
    assert fates(take_over(optimized, plain)) == {"by-user": "starts empty"}
    life.run(tables, *EARLIER, topology_optimization="all")
    with pytest.raises(LostRecordsError, match=r"the store on disk has it .* up to 2"):
        life.run(tables, topology_optimization="none")
    assert life.run(tables, *LATER, topology_optimization="none", lost_records="accept") == {"by-user": {"ann": 1}}


# --- sub-topologies and partitions --------------------------------------------------------


def both(first: str, **options: Any):
    """Return a topology that counts clicks and views, the one or the other first."""

    def topology(builder: StreamsBuilder) -> None:
        topics = {"clicks": clicks, "views": views}
        for name in (first, *(topics.keys() - {first})):
            builder.stream(topics[name]).group_by_key().count(f"{name}-counts", **options)

    return topology


BOTH = [(clicks, "ann", 1, 0), (views, "bob", 1, 0)]


def test_state_of_a_sub_topology_with_another_number_comes_from_the_changelog(life):
    found = verdict(both("clicks"), both("views"))

    assert found.is_clean
    assert "state of task 1_* instead of 0_*" in said(found, Level.NOTE)
    life.run(both("clicks"), *BOTH)
    assert life.run(both("views"), *BOTH) == {"views-counts": {"bob": 2}, "clicks-counts": {"ann": 2}}


def test_state_of_a_sub_topology_with_another_number_is_lost_without_changelog(life):
    old, new = both("clicks", logging=False), both("views", logging=False)

    assert set(fates(verdict(old, new)).values()) == {"starts empty"}
    life.run(old, *BOTH)
    with pytest.raises(UnknownStateError, match="folder 0_0/clicks-counts"):
        life.run(new)
    assert life.run(new, *BOTH, **AS_IT_IS) == {"views-counts": {"bob": 1}, "clicks-counts": {"ann": 1}}


def repartitioned(partitions: int | None, name: str = "by-user"):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(clicks).repartition(name, partitions=partitions).group_by_key().count("counts")

    return topology


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 2), (None, 4)])
def test_another_number_of_partitions_of_a_repartition_topic_does_not_start(life, old, new):
    found = verdict(repartitioned(old), repartitioned(new))

    assert "topic app-by-user-repartition" in said(found, Level.CANNOT)
    assert f"keep partitions={old or 1}" in said(found, Level.CANNOT)
    life.run(repartitioned(old), *EARLIER)
    with pytest.raises(TopologyError, match="app-by-user-repartition"):
        life.run(repartitioned(new), *LATER)


def test_a_count_that_is_not_fixed_any_more_stays_what_it_is(life):
    assert verdict(repartitioned(4), repartitioned(None)).is_clean
    life.run(repartitioned(4), *EARLIER)
    assert life.run(repartitioned(None), *LATER) == {"counts": {"ann": 2, "bob": 1}}


def test_a_renamed_repartition_topic_leaves_behind_what_is_on_its_way(life):
    """With a multiple of the partitions, new ones join the groups that have their keys."""
    found = verdict(repartitioned(2), repartitioned(4, "renamed"))

    assert fates(found) == {"counts": "kept"}
    assert "let OLD process it to its end" in said(found)
    life.run(repartitioned(2), *EARLIER)
    assert life.run(repartitioned(4, "renamed"), *LATER) == {"counts": {"ann": 2, "bob": 1}}


def test_a_renamed_repartition_topic_with_fewer_partitions_does_not_start(life):
    found = verdict(repartitioned(4), repartitioned(2, "renamed"))

    assert "topic app-counts-changelog" in said(found, Level.CANNOT)
    life.run(repartitioned(4), *EARLIER)
    with pytest.raises(TopologyError, match="app-counts-changelog"):
        life.run(repartitioned(2, "renamed"), *LATER)


def test_sub_topologies_that_are_merged_keep_their_state(wide):
    def merged(builder: StreamsBuilder) -> None:
        one, other = builder.stream(clicks), builder.stream(views)
        one.group_by_key().count("clicks-counts")
        other.group_by_key().count("views-counts")
        one.merge(other).group_by_key().count("all-counts")

    found = verdict(both("clicks"), merged, partitions=2)

    assert fates(found) == {"clicks-counts": "kept", "views-counts": "kept", "all-counts": "starts empty"}
    wide.run(both("clicks"), *BOTH)
    later = wide.run(merged, *BOTH)
    assert (later["clicks-counts"], later["views-counts"]) == ({"ann": 2}, {"bob": 2})
    assert later["all-counts"] == {"ann": 1, "bob": 1}


# --- topics -------------------------------------------------------------------------------


def test_a_new_source_is_read_from_its_beginning(life):
    def more(builder: StreamsBuilder) -> None:
        builder.stream(clicks).merge(builder.stream(views)).group_by_key().count("counts")

    found = verdict(counting("counts"), more)

    assert "topic views: is read by NEW only: it begins at its beginning" in said(found)
    life.run(counting("counts"), *EARLIER, (views, "ann", 1, 0))
    assert life.run(more, *LATER) == {"counts": {"ann": 3, "bob": 1}}


def test_times_of_an_operator_are_lost_where_another_task_commits_the_offsets_of_its_inputs(life):
    """The note with the times of a task lies with the offsets of its first topic."""

    def together(builder: StreamsBuilder) -> None:
        merged = builder.stream(clicks).merge(builder.stream(views))
        merged.group_by_key().count("all")
        _late(merged)

    def apart(builder: StreamsBuilder) -> None:
        builder.stream(clicks).group_by_key().count("all")
        _late(builder.stream(views))

    found = verdict(together, apart)

    assert "node windows: its offsets are committed by another task in NEW" in said(found)
    life.run(together, (views, "ann", 1, 0), (clicks, "ann", 1, 60))
    assert ("cy", 0) in life.run(apart, (views, "cy", 1, 5))["windows"]


def _late(stream: Any) -> None:
    stream.group_by_key().windowed_by(TimeWindows.of(minutes(10))).count("windows", retention=timedelta(hours=5))


def test_no_error_is_taken_for_a_verdict():
    with pytest.raises(StreamsError):
        verdict(lambda builder: None, counting("counts"))


# --- periods ------------------------------------------------------------------------------


def _idle(idle_close: timedelta | None) -> Any:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(clicks, idle_close=idle_close).group_by_key().count("counts")

    return topology


def _patient(patience: timedelta | None) -> Any:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(clicks).repartition("by-page", patience=patience).group_by_key().count("counts")

    return topology


@pytest.mark.parametrize(
    ("declare", "change", "says"),
    [
        (
            lambda ttl: counting("counts", ttl=ttl),
            (5, 1),
            "node counts: ttl is 300 s in OLD and 60 s in NEW: rows that",
        ),
        (lambda ttl: counting("counts", ttl=ttl), (1, 5), "node counts: ttl is 60 s in OLD and 300 s in NEW"),
        (
            lambda within: lambda builder: builder.stream(clicks).deduplicate(name="once", within=within).to("out"),
            (5, 1),
            "node once: within is 300 s in OLD and 60 s in NEW",
        ),
        (
            lambda tolerance: (
                lambda builder: (
                    builder.stream(clicks)
                    .join_latest(builder.stream(views), lambda one, two: one, name="last", tolerance=tolerance)
                    .to("out")
                )
            ),
            (5, 1),
            "tolerance is 300 s in OLD and 60 s in NEW",
        ),
        (_idle, (5, 1), "topic clicks: idle_close is 300 s in OLD and 60 s in NEW"),
        (_idle, (5, 0), "topic clicks: idle_close is 300 s in OLD and none in NEW"),
        (_patient, (5, 1), "topic by-page-repartition: patience is 300 s in OLD and 60 s in NEW"),
        (_patient, (5, 0), "topic by-page-repartition: patience is 300 s in OLD and none in NEW"),
    ],
    ids=["shorter ttl", "longer ttl", "within", "tolerance", "idle_close", "never idle", "patience", "no patience"],
)
def test_changed_periods_are_named(declare, change, says):
    before, after = (declare(minutes(number)) for number in change)

    assert says in said(verdict(before, after), Level.NOTE)
    assert " is 300 s in OLD and " not in said(verdict(before, before), Level.NOTE)


def test_changed_limits_are_named():
    def batching(max_records: int) -> Any:
        def topology(builder: StreamsBuilder) -> None:
            builder.stream(clicks).map_values_batches(lambda values: values, name="b", max_records=max_records)

        return topology

    assert "node b: max_records is 10 in OLD and 20 in NEW" in said(verdict(batching(10), batching(20)), Level.NOTE)
    assert "max_records" not in said(verdict(batching(10), batching(10)), Level.NOTE)


def test_a_changed_patience_of_the_settings_is_named():
    versions = [planned(_patient(None), repartition_patience_ms=patience_ms) for patience_ms in (60_000, 5_000)]

    assert "topic by-page-repartition: patience is 60 s in OLD and 5 s in NEW" in said(take_over(*versions), Level.NOTE)


def test_a_changed_idle_time_of_the_settings_is_named():
    versions = [planned(_idle(None), idle_close_ms=idle_ms) for idle_ms in (0, 60_000)]

    assert "topic clicks: idle_close is none in OLD and 60 s in NEW" in said(take_over(*versions), Level.NOTE)
    assert "idle_close" not in said(take_over(versions[1], versions[1]), Level.NOTE)
