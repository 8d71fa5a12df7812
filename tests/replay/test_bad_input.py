"""What a user can get wrong: each is said in one line, and what was there before is unharmed."""

import json
import resource
import signal
import sys
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from streams import CalendarWindows, StreamsBuilder, TimeWindows, Topic
from streams.core.errors import ConfigError, InputError
from streams.replay import Plan, ReplayError, ReplayTaskError, explain, replay
from streams.replay.storage.places import LOCK


@frozen
class Order:
    """An order of a shop."""

    id: int
    amount: float
    at: datetime


orders = Topic("orders", key=int, value=Order, timestamp=lambda order: order.at, key_from=lambda order: order.id)
totals = Topic("totals", key=int, value=float)


def topology(builder: StreamsBuilder) -> None:
    (
        builder.stream(orders)
        .group_by_key()
        .aggregate(lambda: 0.0, lambda key, order, total: total + order.amount, name="sums", value=float)
        .to_stream()
        .to(totals)
    )


def dividing(builder: StreamsBuilder) -> None:
    builder.stream(orders).map_values(lambda order: 1 / (order.amount - 50)).to(totals)


def leaving(builder: StreamsBuilder) -> None:
    builder.stream(orders).map_values(lambda order: sys.exit(0), name="leave").to(totals)


def rows(count: int, first: int = 0) -> list[dict]:
    return [
        {"id": number % 5, "amount": float(number), "at": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
        for number in range(first, first + count)
    ]


def write(path: Path, given: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def run(source, history, **options):
    return replay(source, {orders: history}, executor="local", processes=1, **options)


def contents(folder: Path) -> dict[str, str]:
    # The lock says who held it last.
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def test_missing_file_is_named_with_what_may_be_meant(tmp_path):
    write(tmp_path / "orders.jsonl", rows(3))
    with pytest.raises(InputError, match=r"order\.jsonl: there is no such file; did you mean '.*orders\.jsonl'"):
        run(topology, tmp_path / "order.jsonl")


def test_pattern_without_a_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"\*\.jsonl: no file matches"):
        run(topology, str(tmp_path / "*.jsonl"))


def test_topic_that_is_not_read_is_named(tmp_path):
    path = write(tmp_path / "orders.jsonl", rows(3))
    with pytest.raises(ReplayError, match=r"reads no topic 'order' .did you mean 'orders'"):
        replay(topology, {"order": path}, executor="local")


def test_row_of_another_schema_is_named_by_file_and_line(tmp_path):
    path = write(tmp_path / "orders.jsonl", [*rows(3), {"id": 1, "amount": "much", "at": "2026-01-01T00:00:00Z"}])
    with pytest.raises(InputError, match=r"orders\.jsonl:4: .*amount"):
        run(topology, path)


def test_parquet_of_other_columns_is_named(tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "price": [1.0, 2.0]}), tmp_path / "orders.parquet")
    with pytest.raises(
        InputError, match=r"orders\.parquet as input of topic 'orders': column 'amount' \(float\) is missing"
    ):
        run(topology, tmp_path / "orders.parquet")


def test_row_without_a_time_is_refused(tmp_path):
    plain = Topic("orders", value=str)
    path = tmp_path / "orders.txt"
    path.write_text("one\ntwo\n")
    with pytest.raises(InputError, match=r"orders\.txt:1: the row has no time, which an end in event time"):
        replay(lambda builder: builder.stream(plain).to("out"), {"orders": path}, executor="local", until=1)


def test_failing_user_code_is_named_by_node_record_and_row(tmp_path):
    path = write(tmp_path / "orders.jsonl", rows(100))
    with pytest.raises(ReplayTaskError) as caught:
        run(dividing, path, partitions=3)

    error = caught.value
    assert "KSTREAM-MAPVALUES" in str(error.node)
    assert (error.topic, error.offset is not None) == ("orders", True)
    assert f"row 51 of {path}" in str(error)
    assert "ZeroDivisionError" in str(error)
    assert f"{Path(__file__).name}:" in str(error.place)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slices": "often"}, "give a span of event time"),
        ({"slices": 0}, "give a number above 0"),
        ({"until": "tomorrow"}, "give a time such as"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path, options, message):
    with pytest.raises((ConfigError, InputError), match=message):
        run(topology, write(tmp_path / "orders.jsonl", rows(5)), **options)


def test_unknown_executor_and_setting_are_refused(tmp_path):
    path = write(tmp_path / "orders.jsonl", rows(5))
    with pytest.raises(ConfigError, match="give 'spark' or 'local'"):
        replay(topology, {orders: path}, executor="flink")
    with pytest.raises(ConfigError, match="commit_interval"):
        run(topology, path, comit_interval_ms=5)


@pytest.mark.parametrize("entry", [replay, explain])
@pytest.mark.parametrize(
    ("executor", "name", "given", "owner"),
    [
        ("spark", "processes", {"processes": 2}, "local"),
        ("local", "master", {"plan": Plan(master="local[2]")}, "spark"),
        ("local", "conf", {"plan": Plan(conf={"spark.executor.memory": "1g"})}, "spark"),
        ("local", "spark", {"spark": object()}, "spark"),
    ],
)
def test_arguments_of_the_other_executor_are_refused(tmp_path, entry, executor, name, given, owner):
    """They would be ignored: ``processes`` does not limit what Spark uses."""
    path = write(tmp_path / "orders.jsonl", rows(5))
    with pytest.raises(ConfigError, match=f"{name} is of executor='{owner}', but executor='{executor}'"):
        entry(topology, {orders: path}, executor=executor, **given)


def test_snapshot_of_another_topology_is_refused(tmp_path):
    path = write(tmp_path / "orders.jsonl", rows(5))
    with run(topology, path) as result:
        result.save(tmp_path / "snapshot")
    with pytest.raises(ReplayError, match=r"snapshot of another topology.*store 'sums' is gone"):
        run(dividing, path, state_from=tmp_path / "snapshot")


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (TimeWindows.of(timedelta(hours=3)), "store 'n' has window_size_ms 10800000 instead of 7200000"),
        (CalendarWindows.hours("UTC"), "store 'n' has calendar .* instead of None"),
    ],
)
def test_snapshot_with_other_windows_is_refused(tmp_path, windows, message):
    def counted(windows):
        def declare(builder: StreamsBuilder) -> None:
            builder.stream(orders).group_by_key().windowed_by(windows).count("n").to_stream().to("counts")

        return declare

    path = write(tmp_path / "orders.jsonl", rows(5))
    with run(counted(TimeWindows.of(timedelta(hours=2))), path) as result:
        result.save(tmp_path / "snapshot")
    with pytest.raises(ReplayError, match=message):
        run(counted(windows), path, state_from=tmp_path / "snapshot")


def test_gap_between_snapshot_and_history_is_refused(tmp_path):
    """An archive whose first records are gone does not continue a snapshot taken before them."""
    from streams import EmbeddedBroker
    from streams.replay import archive_topic

    path = write(tmp_path / "orders.jsonl", rows(5))
    with run(topology, path) as result:
        result.save(tmp_path / "snapshot")
    from streams.core.blocks.records import Block, TopicPartition

    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 1)
        partition = TopicPartition("orders", 0)
        raw = json.dumps(rows(1)[0]).encode()
        broker.append(partition, Block([b"\0" * 8] * 12, [raw] * 12, [0] * 12))
        broker.delete_records(partition, 8)
        archive_topic(broker, "orders", tmp_path / "archive")

    with pytest.raises(ReplayError, match="begins at offset 8, but the snapshot continues at 5: a gap of 3 records"):
        run(topology, tmp_path / "archive", state_from=tmp_path / "snapshot")


def test_changed_history_is_not_gone_on_with(tmp_path):
    path = write(tmp_path / "orders.jsonl", rows(50))
    run(topology, path, slices=3, directory=tmp_path / "work").close()
    before = contents(tmp_path / "work")
    write(path, rows(60, first=1))

    with pytest.raises(ReplayError, match="was read before, but has changed since"):
        run(topology, path, slices=3, directory=tmp_path / "work", resume=True)
    assert contents(tmp_path / "work") == before


def test_folder_of_another_replay_is_not_taken(tmp_path):
    path = write(tmp_path / "orders.jsonl", rows(50))
    run(topology, path, directory=tmp_path / "work").close()

    with pytest.raises(ReplayError, match="resume it, or choose another folder"):
        run(topology, path, directory=tmp_path / "work")
    with pytest.raises(ReplayError, match="a topology that has changed since"):
        run(dividing, path, directory=tmp_path / "work", resume=True)


@pytest.mark.slow
def test_full_disk_is_named_and_harms_nothing(tmp_path):
    """A write that the system refuses ends the replay; what it had, and the snapshot before it, stay valid."""
    path = write(tmp_path / "orders.jsonl", rows(200))
    with run(topology, path, slices=4, directory=tmp_path / "work") as result:
        saved = result.save(tmp_path / "snapshot")
        whole = result.rows(totals)
    write(path, rows(3000))
    before = contents(tmp_path / "snapshot")

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))
    try:
        with pytest.raises(ReplayError, match=r"cannot be written: .*make room or choose another place"):
            run(topology, path, directory=tmp_path / "work", resume=True, slices=1, plan=Plan(store="in_memory"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert contents(tmp_path / "snapshot") == before
    assert saved.verify() == []
    with run(topology, path, directory=tmp_path / "work", resume=True, slices=1) as result:
        assert result.slices_skipped == 4
        assert result.rows(totals)[: len(whole)] == whole
        assert len(result.rows(totals)) == 3000


def test_function_that_would_end_the_program_is_a_failure_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(3)))

    with pytest.raises(ReplayTaskError, match="SystemExit: 0") as caught:
        replay(leaving, {orders: tmp_path / "orders.jsonl"}, application_id="a", executor="local")

    assert caught.value.node == "leave"
    assert "sys.exit(0)" in caught.value.place
