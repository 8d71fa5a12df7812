"""State whose classes change: what is found at the start, and what migrations make of the entries."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from streams import (
    EmbeddedBroker,
    Migration,
    Producer,
    State,
    StoreError,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopologyError,
    migrate,
)
from streams.core.blocks.records import TopicPartition
from streams.testing import TopologyTestDriver
from tests import programs
from tests.waiting import until

orders = Topic("orders", key=str, value=int)
KEYS = [f"key-{number}" for number in range(20)]


@frozen
class Total:
    amount: int


@frozen
class TotalInCurrency:
    cents: int
    currency: str


def totals(make: Callable[[int], Any], add: Callable[[Any, int], Any], kind: type, *migrations: Migration) -> Any:
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by_key()
        grouped.aggregate(lambda: make(0), lambda _, new, old: add(old, new), name="totals", value=kind)
        builder.migrate(*migrations)

    return topology


OLD = totals(Total, lambda old, new: Total(old.amount + new), Total)


class Converted(list[Any]):
    """Makes the newer topology; notes each value that is converted, and fails at the one of a number."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at

    def topology(self) -> Any:
        @migrate("totals", 1, 2)
        def in_cents(old: Total) -> dict[str, Any]:
            self.append(old.amount)
            if len(self) == self.fails_at:
                raise ValueError("not this one")
            return {"cents": old.amount * 100}

        @migrate("totals", 2, 3)
        def with_currency(old: dict[str, int]) -> TotalInCurrency:
            return TotalInCurrency(old["cents"], "EUR")

        def add(old: TotalInCurrency, euros: int) -> TotalInCurrency:
            return TotalInCurrency(old.cents + euros * 100, old.currency)

        # The order in which they are given does not matter.
        return totals(lambda _: TotalInCurrency(0, "EUR"), add, TotalInCurrency, with_currency, in_cents)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 1)
        yield broker


def test_entries_that_come_over_the_network_are_converted(broker: EmbeddedBroker):
    """They are backed by the bytes of a batch."""
    run(broker, OLD, None, {"a": 1, "b": 2})

    with broker.serve("127.0.0.1:0") as server:
        found = run(broker, Converted().topology(), None, {"b": 3}, bootstrap_servers=server.bootstrap_servers)

    assert found == {"a": TotalInCurrency(100, "EUR"), "b": TotalInCurrency(500, "EUR")}


def run(
    broker: EmbeddedBroker, topology: Any, folder: Path | None, amounts: dict[str, int], **where: Any
) -> dict[str, Any]:
    """Run until the amounts are processed and committed; return the content of the store."""
    settings = {"commit_interval_ms": 10, "poll_ms": 1, "state_dir": str(folder or "")}
    settings |= where or {"broker": broker}
    with Streams(topology, application_id="shop", **settings) as streams, Producer(broker) as producer:
        for key, amount in amounts.items():
            producer.send(orders, amount, key=key, timestamp_ms=0)
        producer.flush()
        end = broker.end_offset(TopicPartition("orders", 0))
        until(lambda: streams.failure is not None or streams.metrics.get("process-total") >= len(amounts))
        until(lambda: streams.failure is not None or (committed(broker) == end and streams.state is State.RUNNING))
        if streams.failure is not None:
            raise streams.failure
        return {key: row.value for key, row in streams.store("totals").all()}


def committed(broker: EmbeddedBroker) -> int:
    from streams import Admin

    with Admin(broker) as admin:
        return sum(found.offset for found in admin.committed_offsets("shop").values())


@pytest.mark.slow
@pytest.mark.parametrize("is_on_disk", [True, False], ids=["disk", "memory"])
def test_each_entry_is_converted_once_whatever_wrote_it(broker: EmbeddedBroker, tmp_path: Path, is_on_disk: bool):
    folder = tmp_path if is_on_disk else None
    run(broker, OLD, folder, {key: number for number, key in enumerate(KEYS)})
    first, second = Converted(), Converted()

    found = run(broker, first.topology(), folder, {"key-3": 1, "new": 5})

    assert found.pop("new") == TotalInCurrency(500, "EUR")
    assert found.pop("key-3") == TotalInCurrency(400, "EUR")
    assert found == {key: TotalInCurrency(n * 100, "EUR") for n, key in enumerate(KEYS) if n != 3}
    assert sorted(first) == list(range(20))

    again = run(broker, second.topology(), folder, {"new": 1})

    # On disk all entries have been converted; the changelog still has the others, beside those of the new version.
    assert {key: row for key, row in again.items() if key in found} == found
    assert (again["key-3"], again["new"]) == (TotalInCurrency(400, "EUR"), TotalInCurrency(600, "EUR"))
    assert sorted(second) == ([] if is_on_disk else [*range(20)])


def test_a_conversion_that_fails_names_its_entry_and_is_done_again_from_the_start(
    broker: EmbeddedBroker, tmp_path: Path
):
    run(broker, OLD, tmp_path, {key: number for number, key in enumerate(KEYS)})
    message = r"store 'totals': changelog offset 9, key b'key-9': migration '.*in_cents' from version 1 to 2 failed: .*"
    with pytest.raises(StoreError, match=message):
        run(broker, Converted(fails_at=10).topology(), tmp_path, {})

    found = run(broker, Converted().topology(), tmp_path, {"new": 1})

    assert {key: row.cents for key, row in found.items()} == {key: n * 100 for n, key in enumerate(KEYS)} | {"new": 100}


@pytest.mark.slow
def test_the_former_topology_does_not_read_newer_values(broker: EmbeddedBroker, tmp_path: Path):
    run(broker, Converted().topology(), tmp_path, {"a": 1})

    with pytest.raises(StoreError, match="has values of version 3, but the topology has version 1"):
        run(broker, OLD, tmp_path, {"a": 1})
    with pytest.raises(StoreError, match="a value has version 3, but the topology has version 1"):
        run(broker, OLD, None, {"a": 1})


def _class(**fields: Any) -> type:
    import msgspec

    return msgspec.defstruct("Total", [(name, int, *default) for name, default in fields.items()])


@pytest.mark.case
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"amount": [], "tax": []}, r"the field 'tax' is new and has no default value; .* @migrate\('totals', 1, 2\)"),
        ({"sum": []}, "the field 'amount' is gone and 'sum' is new, which may be another name for it"),
        ({"sum": [0]}, "the field 'amount' is gone and 'sum' is new, which may be another name for it"),
    ],
)
def test_a_class_that_would_lose_or_misread_values_is_told(
    broker: EmbeddedBroker, tmp_path: Path, fields: dict[str, list[int]], message: str
):
    run(broker, OLD, tmp_path, {"a": 1})

    with pytest.raises(StoreError, match=message):
        kind = _class(**fields)
        run(broker, totals(lambda _: None, lambda old, new: None, kind), tmp_path, {"a": 1})


@pytest.mark.slow
def test_a_field_with_a_default_needs_no_migration(broker: EmbeddedBroker, tmp_path: Path):
    kind = _class(amount=[], tax=[0])
    run(broker, OLD, tmp_path, {"a": 1, "b": 1})

    found = run(broker, totals(lambda _: kind(0), lambda old, new: kind(old.amount + new, 7), kind), tmp_path, {"a": 2})

    assert found == {"a": kind(3, 7), "b": kind(1, 0)}


def test_a_class_that_has_lost_a_field_is_warned_of_once(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    kind, fewer = _class(amount=[], tax=[]), _class(amount=[])
    run(broker, totals(lambda _: kind(0, 0), lambda old, new: kind(old.amount + new, 1), kind), tmp_path, {"a": 1})
    newer = totals(lambda _: fewer(0), lambda old, new: fewer(old.amount + new), fewer)

    found = [run(broker, newer, tmp_path, {"a": 1})["a"] for _ in range(2)]

    assert found == [fewer(2), fewer(3)]
    (warning,) = [record.getMessage() for record in caplog.records if "any more" in record.getMessage()]
    assert "store 'totals': the class of its values has no field 'tax' any more" in warning
    assert "@migrate('totals', 1, 2)" in warning


def _cannot(store: str, one: int = 1, two: int = 2) -> Migration:
    return migrate(store, one, two)(lambda old: old)


@pytest.mark.case
@pytest.mark.parametrize(
    ("migrations", "message"),
    [
        ([_cannot("none")], "there is no such store; there are free, totals, untyped"),
        ([_cannot("free")], "has no changelog, from which its entries would be converted"),
        ([_cannot("untyped")], "the type of its values is not declared"),
        ([_cannot("totals", 1, 2), _cannot("totals", 3, 4)], "from version 3 to 4 does not follow .* from version 1"),
        ([_cannot("totals", 1, 2), _cannot("totals", 1, 3)], "does not follow"),
    ],
)
def test_migration_that_cannot_be_is_refused(migrations: list[Migration], message: str):
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(orders).group_by_key()
        grouped.count("totals")
        grouped.windowed_by(TimeWindows.of(timedelta(seconds=10))).count("free", logging=False)
        grouped.aggregate(lambda: None, lambda key, value, old: value, name="untyped")
        builder.migrate(*migrations)

    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(topology)


def test_versions_that_do_not_ascend_are_refused():
    with pytest.raises(TopologyError, match="must ascend from 1"):
        migrate("totals", 2, 2)


@pytest.mark.slow
def test_diff_converts_all_entries_in_advance(tmp_path: Path):
    """One of three cannot be converted: this is said before anything is deployed."""
    source = """\
from attrs import frozen
from streams import StreamsBuilder, Topic, migrate

orders = Topic("orders", key=str, value=int)


@frozen
class Total:
    {field}: int


{migration}


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream(orders).group_by_key()
    grouped.aggregate(lambda: Total(0), lambda _, new, old: Total(old.{field} + new), "totals", value=Total)
    {use}
"""
    migration = '@migrate("totals", 1, 2)\ndef renamed(old):\n    return Total(1 // (old["amount"] - 2))'
    (tmp_path / "old.py").write_text(source.format(field="amount", migration="", use=""))
    (tmp_path / "new.py").write_text(source.format(field="sum", migration=migration, use="builder.migrate(renamed)"))
    rows = [f'{{"key": "k{number}", "value": {number}, "timestamp": 0}}\n' for number in (1, 2, 3)]
    (tmp_path / "rows.records.jsonl").write_text("".join(rows))

    done = programs.run(
        ["-m", "streams", "diff", "old.py", "new.py", "--input", "orders=rows.records.jsonl"], cwd=tmp_path
    )

    assert "migrations convert 2 of 3 entries of OLD" in done.stdout
    assert "1 entries fail, the first one: key k2: migration 'renamed' from version 1 to 2 failed" in done.stdout
    assert "cannot: NEW must not continue" in done.stdout
