"""``streams produce`` and ``consume`` with the types of a script, and ``streams run --listen``."""

import io
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from streams import ConfigError, EmbeddedBroker, StreamsBuilder, Topic, run
from streams.cli.program import main
from streams.core.blocks.partitioning import partition_for
from tests.cli.conftest import Program
from tests.waiting import WATCHDOG_S

SHOP = """\
from datetime import datetime, timedelta

from attrs import frozen

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed


@frozen
class Order:
    customer: str
    cents: int
    at: datetime


MINUTE = timedelta(minutes=1)
orders = Topic("orders", key=str, value=Order, key_from=lambda order: order.customer, timestamp=lambda order: order.at)
notes = Topic("notes", key=str, value=str)
totals = Topic("totals", key=time_windowed(str, MINUTE), value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(notes).to(Topic("copies", key=str, value=str))
    by_minute = builder.stream(orders).group_by_key().windowed_by(TimeWindows.of(MINUTE))
    by_minute.count("totals").to_stream().to(totals)
"""
ANN = {"at": "2026-03-01T00:00:10Z", "cents": 250, "customer": "ann"}
ANN_MS = 1_772_323_210_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as made:
        for topic in ("orders", "notes", "totals"):
            made.create_topic(topic, 2)
        yield made


@pytest.fixture
def where(broker: EmbeddedBroker) -> Iterator[list[str]]:
    with broker.serve("127.0.0.1:0") as server:
        yield ["--bootstrap-servers", server.bootstrap_servers]


@pytest.fixture
def shop(tmp_path, monkeypatch, broker) -> str:
    (tmp_path / "typed_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return "typed_shop.py"


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Give lines to standard input."""
    data = "".join(f"{line}\n" for line in lines).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))


def records(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    """Return what `streams consume` shows."""
    assert main(["consume", *arguments, "--to-end", "--format", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_rows_get_the_keys_times_and_types_of_the_script(shop, where, monkeypatch, capsys):
    typed(monkeypatch, json.dumps(ANN))
    assert main(["produce", f"{shop}:orders", *where]) == 0
    assert capsys.readouterr().err == "streams: 1 record to orders\n"

    (record,) = records(capsys, f"{shop}:orders", *where)
    assert (record["key"], record["value"], record["timestamp"]) == ("ann", ANN, ANN_MS)
    # Without the script the topic has bytes.
    (plain,) = records(capsys, "orders", *where)
    assert json.loads(plain["value"]) == ANN


def test_files_are_read_as_by_a_run(shop, where, tmp_path, capsys):
    (tmp_path / "orders.csv").write_text(
        "customer,cents,at\nann,250,2026-03-01T00:00:10Z\nben,1,2026-03-01T00:00:11Z\n"
    )
    assert main(["produce", f"{shop}:orders", "orders.csv", "--partition", "1", "--timestamp-ms", "5", *where]) == 0
    capsys.readouterr()

    found = records(capsys, f"{shop}:orders", *where)
    assert [(record["value"], record["partition"], record["timestamp"]) for record in found] == [
        (ANN, 1, 5),
        ({"at": "2026-03-01T00:00:11Z", "cents": 1, "customer": "ben"}, 1, 5),
    ]


def test_keys_may_stand_before_the_rows(shop, where, monkeypatch, capsys):
    typed(monkeypatch, f"office\t{json.dumps(ANN)}")
    assert main(["produce", f"{shop}:orders", "--key-separator", "\\t", *where]) == 0
    capsys.readouterr()

    (record,) = records(capsys, f"{shop}:orders", *where)
    assert record["key"] == "office"


def test_text_is_not_in_quotes(shop, where, monkeypatch, capsys):
    typed(monkeypatch, 'say "hello"', "bye")
    assert main(["produce", f"{shop}:notes", *where]) == 0
    typed(monkeypatch, "ann,hello, again")
    assert main(["produce", f"{shop}:notes", "--key-separator", ",", "--partition", "0", *where]) == 0
    capsys.readouterr()

    found = [(record["key"], record["value"]) for record in records(capsys, f"{shop}:notes", *where)]
    assert sorted(found, key=repr) == [("ann", "hello, again"), (None, "bye"), (None, 'say "hello"')]


def test_windowed_keys_are_written_and_shown(shop, where, monkeypatch, capsys):
    typed(monkeypatch, '{"key":"ann","start":60000,"end":120000}\t7')
    assert main(["produce", f"{shop}:totals", "--key-separator", "\\t", *where]) == 0
    capsys.readouterr()
    assert main(["consume", f"{shop}:totals", "--to-end", "--format", "key-value", *where]) == 0
    assert capsys.readouterr().out == '{"key":"ann","start":60000,"end":120000}\t7\n'


def order(number: int) -> str:
    return json.dumps({"customer": f"c{number % 17}", "cents": number, "at": "2026-03-01T00:00:10Z"})


ORDERS = [order(number) for number in range(3_000)]
BAD = '{"customer":"ben","cents":"much"}'


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "standard input"])
def test_each_row_is_written_once_to_the_partition_of_its_key(
    shop, where, broker, monkeypatch, tmp_path, capsys, partitions, is_file
):
    broker.create_topic("many", partitions)
    (tmp_path / "many.py").write_text(SHOP.replace('"orders"', '"many"'))
    (tmp_path / "many.jsonl").write_text("\n".join(ORDERS))
    typed(monkeypatch, *ORDERS)

    assert main(["produce", "many.py:many", *(["many.jsonl"] if is_file else []), *where]) == 0
    assert capsys.readouterr().err == "streams: 3,000 records to many\n"

    rows = records(capsys, "many.py:many", *where)
    assert sorted(row["value"]["cents"] for row in rows) == list(range(3_000))
    assert all(row["partition"] == partition_for(row["key"].encode(), partitions) for row in rows)
    assert all(row["key"] == f"c{row['value']['cents'] % 17}" for row in rows)


@pytest.mark.parametrize(
    ("topic", "name", "lines", "options"),
    [
        ("typed_shop.py:orders", "orders.jsonl", [*ORDERS, BAD, order(0)], []),
        ("orders", "orders.txt", ["a=1"] * 3_000 + ["b"], ["--key-separator", "="]),
    ],
    ids=["rows", "lines"],
)
def test_a_file_with_a_bad_row_is_not_written_at_all(shop, where, tmp_path, capsys, topic, name, lines, options):
    (tmp_path / name).write_text("\n".join(lines))

    assert main(["produce", topic, name, *options, *where]) == 2
    message = capsys.readouterr().err
    assert re.match(rf"streams: {name}(:|, line )3001: ", message)
    assert message.endswith("; nothing was written\n")
    assert records(capsys, "orders", *where) == []


@pytest.mark.parametrize(
    ("topic", "lines", "bad", "options"),
    [
        ("typed_shop.py:orders", ORDERS, BAD, []),
        ("orders", [f"{number}=x" for number in range(3_000)], "x", ["--key-separator", "="]),
    ],
    ids=["rows", "lines"],
)
def test_standard_input_goes_on_after_the_rows_before_a_bad_one(
    shop, where, monkeypatch, capsys, topic, lines, bad, options
):
    typed(monkeypatch, *lines[:2_000], bad)
    assert main(["produce", topic, *options, *where]) == 2
    message = capsys.readouterr().err
    assert message.endswith("; rows acknowledged: 2,000 of 2,000; go on with --skip-rows 2000\n")

    typed(monkeypatch, *lines)
    assert main(["produce", topic, *options, "--skip-rows", "2000", *where]) == 0
    assert capsys.readouterr().err == "streams: 1,000 records to orders\n"
    shown = "value" if topic != "orders" else "key"
    assert len({json.dumps(row[shown]) for row in records(capsys, topic, *where)}) == 3_000
    assert len(records(capsys, topic, *where)) == 3_000


def test_records_that_the_broker_refuses_are_told_from_those_it_has(shop, where, broker, tmp_path, capsys):
    broker.create_topic("small", 2, {"max.message.bytes": "200"})
    rows = [{"value": "x" * (500 if at == 2 else 10), "partition": at % 2} for at in range(5)]
    (tmp_path / "small.py").write_text(SHOP.replace('"notes"', '"small"'))
    (tmp_path / "small.records.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    assert main(["produce", "small.py:small", "small.records.jsonl", *where]) == 1

    message = capsys.readouterr().err
    assert message.endswith("; rows acknowledged: 2 of 5; go on with --skip-rows 0, which writes 2 of them again\n")
    assert [row["partition"] for row in records(capsys, "small.py:small", *where)] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["produce", "typed_shop.py:nosuch"], "its topics are copies, notes, orders, totals"),
        (["produce", "nosuch.py:orders"], "nosuch.py"),
        (
            ["produce", "typed_shop.py:orders", "x.csv", "--key-separator", ","],
            "--key-separator is for lines of standard",
        ),
        (["produce", "typed_shop.py:orders", "--partition", "2"], "topic 'orders' has the partitions 0 to 1"),
        (["consume", "typed_shop.py:orders", "--type", "long"], "the script declares the types of 'orders'"),
    ],
)
def test_mistakes_are_explained(shop, where, monkeypatch, capsys, arguments, reason):
    typed(monkeypatch)
    assert main([*arguments, *where]) == 2
    found = capsys.readouterr()
    assert (reason in found.err, found.out) == (True, "")


def test_run_serves_its_broker_to_other_programs(streams: Program):
    streams.write("orders.jsonl", json.dumps(ANN) + "\n")
    streams.write("shop.py", SHOP)
    process = streams.start("run", "shop.py", "--listen", "127.0.0.1:0", "--set", "commit_interval_ms=10")
    try:
        address = re.search(r"broker listens on (\S+)\n", process.stderr.readline())[1]
        assert "runs on an embedded broker" in process.stderr.readline()
        where = ("--bootstrap-servers", address)
        assert streams("produce", "shop.py:orders", "orders.jsonl", *where).status == 0
        shown = streams("consume", "shop.py:totals", "--from-beginning", "--max", "1", "--format", "key-value", *where)
        assert shown.out == '{"key":"ann","start":1772323200000,"end":1772323260000}\t1\n'
    finally:
        process.terminate()
        with process:
            process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 0


def test_listening_needs_an_embedded_broker(refused):
    message = refused("run", "halves.py", "--listen", "127.0.0.1:0", "--bootstrap-servers", "127.0.0.1:1")
    assert "--listen serves the embedded broker of a live run" in message
    assert "HOST:PORT" in refused("run", "halves.py", "--listen", "nowhere")


def test_run_in_code_listens_too():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(Topic("lines", value=str)).to(Topic("copies", value=str))

    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        with pytest.raises(ConfigError, match=re.escape(server.address.rpartition(":")[2])):
            run(topology, application_id="app", listen=server.address)
        with pytest.raises(ConfigError, match=r"listen='127\.0\.0\.1:0' serves an embedded broker"):
            run(topology, application_id="app", listen="127.0.0.1:0", bootstrap_servers=server.bootstrap_servers)


def test_topics_that_exist_are_left_if_that_is_fine(broker):
    broker.create_topic("orders", exist_ok=True)
    broker.create_topic("orders", 2, exist_ok=True)
    broker.create_topic("new", 3, exist_ok=True)
    assert broker.topics()["new"] == 3
    with pytest.raises(Exception, match="topic 'orders' exists with 2 partitions, not 3"):
        broker.create_topic("orders", 3, exist_ok=True)
