"""Handlers in runs over files, in replays and in simulated worlds: asked as in a live application."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams import ErrorHandlerContext, HandlerResponse, ProducerRecord, Serde, StreamsBuilder, Topic
from streams.bounded import run_bounded
from streams.core.blocks.records import Block
from streams.files import open_input
from streams.replay import replay
from streams.replay.calls.work import pickled
from streams.testing import simulate

numbers = Topic("numbers", key=str, value=int)
shares = Topic("shares", key=str, value=int)
own = Topic("own", key=bytes, value=bytes)
#: Keys and values; what cannot be read, and what cannot be divided by, between others.
ROWS = [("a", 1), ("b", 0), ("c", None), ("d", 4), ("e", 0)]


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(lambda number: 100 // number, name="divide").to(shares)


def told(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
    """Say in a dead letter of its own what it was asked."""
    text = f"{context.node} {context.topic}-{context.partition}@{context.offset} {type(error).__name__}"
    letter = ProducerRecord("own", context.source_raw_key, text.encode(), context.timestamp_ms)
    return HandlerResponse.resume([letter])


def _readable(data: bytes) -> str:
    if data.startswith(b"bad"):
        raise ValueError("bad")
    return data.decode()


FRAGILE = Serde("fragile", str.encode, _readable, is_immutable=True)
HANDLERS = {"processing_handler": told, "deserialization_handler": told}


def _raw(value: int | None) -> bytes:
    return b"short" if value is None else value.to_bytes(8, "big")


def _rows(partitions: int, skip_rows: int = 0) -> Iterator[list[tuple[int, Block]]]:
    keys = [key.encode() for key, _ in ROWS]
    yield [(0, Block(keys, [_raw(value) for _, value in ROWS], [1, 2, 3, 4, 5], None, range(len(ROWS))))]


def test_bounded_run_and_replay_ask_the_same(tmp_path: Path) -> None:
    history = tmp_path / "numbers.records.jsonl"
    lines = [
        {"key": key, "value": "not a number" if value is None else value, "timestamp": 1 + index}
        for index, (key, value) in enumerate(ROWS)
    ]
    history.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    with run_bounded(topology, {"numbers": _rows}, application_id="handled", settings=HANDLERS) as run:
        live = [value for _, block in run.read_output("own") for value in block.values]
        drops = [(found.node, found.reason, found.count) for found in run.drops()]
    with replay(topology, {numbers: history}, executor="local", processes=2, **HANDLERS) as result:
        replayed = [record.value for record in result.rows(own)]
        assert [(found.node, found.reason, found.count) for found in result.drops()] == drops
        first = next(found for found in result.drops() if found.node == "divide").example

    assert live == [
        b"divide numbers-0@1 ZeroDivisionError",
        b"KSTREAM-SOURCE-0000000000 numbers-0@2 SerializationError",
        b"divide numbers-0@4 ZeroDivisionError",
    ]
    assert replayed == live
    assert drops == [
        ("divide", "failed, ZeroDivisionError", 2),
        ("KSTREAM-SOURCE-0000000000", "unreadable, SerializationError", 1),
    ]
    assert first.startswith("numbers-0 at offset 1: ZeroDivisionError")


@pytest.mark.slow
def test_simulated_worlds_ask() -> None:
    asked: list[int] = []

    def handler(context: ErrorHandlerContext, record: Any, error: Exception) -> str:
        asked.append(context.offset)
        return "continue"

    rows = [(key, value, 1 + index) for index, (key, value) in enumerate(ROWS) if value is not None]
    simulate(topology, {numbers: rows}, seeds=[1], partitions=1, storm_ms=2_000, processing_handler=handler)

    assert set(asked) == {1, 3}


@pytest.mark.slow
def test_handler_of_a_module_beside_the_script_travels_by_value(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "own_handlers.py").write_text("ANSWER = 'continue'\ndef lenient(c, r, e):\n    return ANSWER\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_handlers  # type: ignore[import-not-found]

    data = pickled({"processing_handler": own_handlers.lenient}, "the settings")

    code = "import sys, cloudpickle; print(cloudpickle.loads(sys.stdin.buffer.read())['processing_handler'](1, 2, 3))"
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, cwd="/", check=True)
    assert done.stdout == b"continue\n"


def test_bad_row_of_a_file_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = tmp_path / "numbers.records.jsonl"
    history.write_text('{"key": "a", "value": "x", "timestamp": 1}\n{"key": "b", "value": 4, "timestamp": 2}\n')

    with replay(
        topology, {numbers: history}, executor="local", processes=1, deserialization_handler="continue"
    ) as result:
        (found,) = result.drops()

    assert "numbers.records.jsonl:1: the row does not match topic 'numbers'" in found.example
    assert sum("numbers.records.jsonl:1" in message for message in caplog.messages) <= 1


def test_dead_letters_of_several_tasks_to_a_topic_of_a_handler_have_one_order(tmp_path: Path) -> None:
    """Nobody but the handler names it; with four tasks it is kept in lanes, as what sinks choose is."""
    rows = [(f"k{number}", number % 3, number) for number in range(60)]
    history = tmp_path / "numbers.records.jsonl"
    lines = [{"key": key, "value": value, "timestamp": time} for key, value, time in rows]
    history.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    found = []
    for threads in (1, 4):
        inputs = {"numbers": open_input(numbers, str(history))}
        settings = {**HANDLERS, "num_stream_threads": threads}
        with run_bounded(topology, inputs, application_id="many", partitions=4, settings=settings) as run:
            found.append([(number, block.values) for number, block in run.read_output("own")])
    with replay(topology, {numbers: history}, executor="local", processes=2, partitions=4, **HANDLERS) as result:
        replayed = [(number, list(block.values)) for number, block in result.read("own")]

    merged: list[dict[int, list[bytes | None]]] = []
    for blocks in (*found, replayed):
        merged.append({})
        for number, values in blocks:
            merged[-1].setdefault(number, []).extend(values)
    assert merged[0] == merged[1] == merged[2]
    assert sum(map(len, merged[0].values())) == 20


def test_records_of_several_tasks_that_cannot_be_read_have_one_order(tmp_path: Path) -> None:
    """They are dropped in the order in which they would be processed, whichever task has written them."""
    pairs = Topic("pairs", key=str, value=str)

    def regrouped(builder: StreamsBuilder) -> None:
        keyed = builder.stream(pairs).select_key(lambda _, __: "all")
        keyed.repartition(partitions=1, key=str, value=FRAGILE).to(Topic("read", key=str, value=str))

    history = tmp_path / "pairs.records.jsonl"
    values = [f"bad{time}" if time % 3 else f"good{time}" for time in range(40)]
    lines = [{"key": f"k{time % 7}", "value": value, "timestamp": time} for time, value in enumerate(values)]
    history.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    settings = {"deserialization_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}

    inputs = {"pairs": open_input(pairs, str(history))}
    with run_bounded(regrouped, inputs, application_id="order", partitions=4, settings=settings) as run:
        letters = [value for _, block in run.read_output("dead") for value in block.values]
    with replay(regrouped, {pairs: history}, executor="local", processes=2, partitions=4, **settings) as result:
        replayed = [value for _, block in result.read("dead") for value in block.values]

    assert letters == [value.encode() for value in values if value.startswith("bad")]
    assert replayed == letters
