"""``why`` over history: files, several partitions and hops, joins by foreign key, and errors."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import JoinWindows, StreamsBuilder, Topic
from streams.replay import replay, why

orders = Topic("orders", value=dict[str, Any])
products = Topic("products", key=str, value=str)
sold = Topic("sold", key=str, value=int)


def shop(builder: StreamsBuilder) -> None:
    """Two repartitions: orders by user, then counts by the number of orders."""
    by_user = (
        builder.stream(orders).filter(lambda _, order: order["amount"] > 0).group_by(lambda _, order: order["user"])
    )
    counts = by_user.count("by-user").to_stream()
    counts.group_by(lambda user, count: f"level {count}").count("by-level").to_stream().to(sold)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    file = tmp_path / "orders.records.jsonl"
    rows = [("ann", 3, 0), ("bob", 0, 10), ("ann", 2, 20), ("cid", 5, 30)]
    lines = [json.dumps({"value": {"user": user, "amount": amount}, "timestamp": at}) for user, amount, at in rows]
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 3])
def test_output_leads_through_two_repartition_topics_to_its_records(history: Path, partitions: int) -> None:
    story = why(shop, {orders: str(history)}, "level 1", "sold", partitions=partitions)

    text = story.text
    assert "'level 1': 2 at 1970-01-01T00:00:00.030Z" in text
    assert "'user': 'ann'" in text
    assert "'user': 'cid'" in text
    assert "'bob'" not in text
    assert "via topic by-user-repartition" in text


@pytest.mark.slow
def test_missing_output_is_explained_at_its_first_hop(history: Path) -> None:
    story = why(shop, {orders: str(history)}, "bob")
    assert story.reasons == ("filtered",)


@pytest.mark.slow
def test_story_is_also_json(history: Path) -> None:
    told = json.loads(json.dumps(why(shop, {orders: str(history)}, "level 2").as_json()))
    assert told["outputs"][0]["causes"][0]["causes"][0]["causes"][0]["offset"] == 0
    assert told["text"].startswith("sold: 1 record of key 'level 2'")


@pytest.mark.slow
def test_record_that_fails_the_replay_ends_the_story(history: Path) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).map(lambda _, order: (order["user"], 6 // order["amount"])).to(sold)

    story = why(topology, {orders: str(history)}, "bob")
    assert story.reasons == ("failed", "not yet read")
    assert "ZeroDivisionError" in story.text


def foreign(builder: StreamsBuilder) -> None:
    people, towns = Topic("people", key=str, value=str), Topic("towns", key=str, value=str)
    joined = builder.table(people).join(
        builder.table(towns), lambda town, country: f"{town}, {country}", foreign_key=lambda _, town: town
    )
    joined.to_stream().to("homes", value=str)


def _records(file: Path, rows: list[tuple[str, str, int]]) -> str:
    lines = [json.dumps({"key": key, "value": value, "timestamp": at}) for key, value, at in rows]
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


@pytest.mark.slow
def test_join_by_foreign_key_leads_to_both_rows_and_names_the_one_that_is_missing(tmp_path: Path) -> None:
    inputs = {
        "people": _records(tmp_path / "people.records.jsonl", [("ann", "Oslo", 0), ("bob", "Nowhere", 5)]),
        "towns": _records(tmp_path / "towns.records.jsonl", [("Oslo", "Norway", 10)]),
    }

    found = why(foreign, inputs, "ann", "homes", partitions=2)
    missing = why(foreign, inputs, "bob", "homes", partitions=2)

    assert "'ann': 'Oslo, Norway' at 1970-01-01T00:00:00.010Z" in found.text
    assert "towns-" in found.text
    assert "people-" in found.text
    assert missing.reasons == ("no partner",)
    assert "had no row 'Nowhere'" in missing.text


@pytest.mark.slow
def test_traced_replay_gives_the_same_outputs(history: Path) -> None:
    """The story's value is that of the output."""
    with replay(shop, {orders: str(history)}, executor="local", partitions=3) as result:
        rows = [row for row in result.outputs[sold].to_pylist() if row["key"] == "level 1"]
    story = why(shop, {orders: str(history)}, "level 1", partitions=3)
    assert story.outputs[0].value == rows[-1]["value"]


@pytest.mark.slow
def test_time_selects_the_output(history: Path) -> None:
    story = why(shop, {orders: str(history)}, "level 1", at=0)
    assert story.outputs[0].value == 1


@pytest.mark.slow
def test_partner_of_another_side_is_found_in_files(tmp_path: Path) -> None:
    left, right = Topic("left", key=str, value=str), Topic("right", key=str, value=str)

    def topology(builder: StreamsBuilder) -> None:
        windows = JoinWindows.of(timedelta(milliseconds=10))
        builder.stream(left).join(builder.stream(right), lambda one, two: one + two, windows).to("both", value=str)

    inputs = {
        "left": _records(tmp_path / "left.records.jsonl", [("a", "l", 0), ("b", "l", 0)]),
        "right": _records(tmp_path / "right.records.jsonl", [("a", "r", 7), ("b", "r", 12)]),
    }
    assert "its partner, which is 7 ms earlier" in why(topology, inputs, "a").text
    assert "2 ms outside of the window" in why(topology, inputs, "b").text
