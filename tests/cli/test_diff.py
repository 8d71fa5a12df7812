"""``streams diff``: two versions of a script over the same history."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

SHOP = """\
from datetime import timedelta

from attrs import frozen
from prices import in_cents
from streams import StreamsBuilder, TimeWindows, Topic, time_windowed


@frozen
class Order:
    customer: str
    amount: int


orders = Topic("orders", key=str, value=Order)
revenue = Topic("revenue", key=time_windowed(str, timedelta(minutes=1)), value=int)
customers = Topic("customers", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    paid = builder.stream(orders)
    (
        paid.group_by_key()
        .windowed_by(TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=10)))
        .aggregate(int, lambda key, order, total: total + in_cents(order.amount), value=int)
        .to_stream()
        .to(revenue)
    )
    paid.group_by_key().count("by-customer").to_stream().to(customers)
"""
SVG = "{http://www.w3.org/2000/svg}"
PRICES = "def in_cents(amount: int) -> int:\n    return amount * 100\n"
ORDERS = [("ann", 3, 0), ("bob", 0, 10_000), ("ann", 2, 20_000), ("bob", 5, 70_000)]


@pytest.fixture
def shop(streams):
    """Two folders with the same script and the same helper module in each, and a history."""
    for folder in ("v1", "v2"):
        (streams.folder / folder).mkdir()
        streams.write(f"{folder}/shop.py", SHOP)
        streams.write(f"{folder}/prices.py", PRICES)
    rows = [
        {"key": key, "value": {"customer": key, "amount": amount}, "timestamp": time} for key, amount, time in ORDERS
    ]
    streams.write("orders.records.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    return streams


def change(shop, before: str, after: str, file: str = "v2/shop.py") -> None:
    """Change the new version."""
    path = Path(shop.folder / file)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def diff(shop, *options: str):
    return shop("diff", "v1/shop.py", "v2/shop.py", "--input", "orders=orders.records.jsonl", *options)


def test_nothing_differs(shop):
    done = diff(shop)

    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "shop: OLD v1/shop.py, NEW v2/shop.py\n"
        "\n"
        "OUTPUTS\n"
        "  customers: 4 records, the same\n"
        "  revenue: 4 records, the same\n"
        "\n"
        "STORES\n"
        "  KSTREAM-AGGREGATE-STATE-STORE-0000000001: 3 entries, the same\n"
        "  by-customer: 2 entries, the same\n"
        "\n"
        "TAKING OVER\n"
        "  can take over\n"
        "  kept: KSTREAM-AGGREGATE-STATE-STORE-0000000001, by-customer\n"
    )


@pytest.mark.slow
def test_a_changed_function_of_a_module_beside_the_script_is_seen(shop):
    """Each version imports the module of its own folder, though both have the same name."""
    change(shop, "amount * 100", "amount * 100 + 1", "v2/prices.py")

    done = diff(shop)

    assert done.status == 1
    assert "customers: 4 records, the same" in done.out
    assert (
        "    ann@[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z): last value differs\n"
        "      OLD record 0-0 1970-01-01T00:00:00Z: 300\n"
        "      NEW record 0-0 1970-01-01T00:00:00Z: 301\n"
        "      last: 500 -> 502\n"
    ) in done.out
    assert "ann@[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z): 500 -> 502" in done.out
    assert "3 of 3 entries are not what NEW would have made" in " ".join(done.out.split())


def test_an_inserted_filter_shifts_the_numbered_store(shop):
    change(shop, "builder.stream(orders)", "builder.stream(orders).filter(lambda key, order: order.amount > 0)")

    done = diff(shop)

    assert done.status == 1
    assert "  revenue: 4 records in OLD, 3 in NEW\n    1 key is in OLD only (of 3)\n" in done.out
    assert "  can, but 1 of 2 stores starts empty and 1 more thing must be checked\n" in done.out
    assert 'store="KSTREAM-AGGREGATE-STATE-STORE-0000000001"' in done.out
    assert (
        "  starts empty: KSTREAM-AGGREGATE-STATE-STORE-0000000002 (in OLD KSTREAM-AGGREGATE-STATE-STORE-0000000001)\n"
    ) in done.out


@pytest.mark.slow
def test_examples_are_limited(shop):
    change(shop, "amount * 100", "amount + 1", "v2/prices.py")

    assert "and 2 more; --limit shows more of them" in diff(shop, "--limit", "1").out
    assert "3 more; --limit shows more of them" in diff(shop, "--limit", "0").out


def test_take_over_alone_needs_no_history(shop):
    change(shop, "timedelta(seconds=10)", "timedelta(minutes=10)")

    done = shop("diff", "v1/shop.py", "v2/shop.py", "--only-state")

    assert (done.status, done.err) == (0, "")
    assert "OUTPUTS" not in done.out
    assert "KSTREAM-AGGREGATE-STATE-STORE-0000000001" in done.out
    assert shop("diff", "v1/shop.py", "v1/shop.py", "--only-state").status == 0


@pytest.mark.slow
def test_the_answer_for_programs(shop):
    change(shop, "builder.stream(orders)", "builder.stream(orders).filter(lambda key, order: order.amount > 0)")

    done = diff(shop, "--format", "json", "--application-id", "shop-live")

    answer = json.loads(done.out)
    assert (done.status, answer["application_id"], answer["same"]) == (1, "shop-live", False)
    assert answer["take_over"]["level"] == "but"
    topics = {topic["topic"]: topic for topic in answer["topics"]}
    assert topics["customers"]["records"] == {"old": 4, "new": 3}
    assert topics["customers"]["differences"] == {"last value differs": 1}
    assert topics["customers"]["examples"][0] == {
        "key": "bob",
        "kind": "last value differs",
        "old": {"partition": 0, "number": 1, "timestamp_ms": 10_000, "value": 1},
        "new": {"partition": 0, "number": 2, "timestamp_ms": 70_000, "value": 1},
        "last": {"old": 2, "new": 1},
        "records": {"old": 2, "new": 1},
    }
    assert [(store["old"], store["new"]) for store in answer["stores"]] == [
        ("KSTREAM-AGGREGATE-STATE-STORE-0000000001", "KSTREAM-AGGREGATE-STATE-STORE-0000000002"),
        ("by-customer", "by-customer"),
    ]


@pytest.mark.slow
def test_partitions_slices_and_an_earlier_end(shop):
    done = diff(shop, "--partitions", "3", "--slices", "2", "--until", "60000")

    assert done.status == 0
    assert "customers: 3 records, the same" in done.out


@pytest.mark.slow
def test_a_topic_that_only_the_new_version_reads(shop):
    change(shop, "customers = Topic", 'refunds = Topic("refunds", key=str, value=Order)\ncustomers = Topic')
    change(shop, "paid = builder.stream(orders)", "paid = builder.stream(orders).merge(builder.stream(refunds))")
    shop.write("refunds.records.jsonl", '{"key": "ann", "value": {"customer": "ann", "amount": 1}, "timestamp": 5}\n')

    done = diff(shop, "--input", "refunds=refunds.records.jsonl")

    assert (done.status, done.err) == (1, "")
    assert "topic refunds: is read by NEW only" in done.out


@pytest.mark.case(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["v1/shop.py", "v2/shop.py"], "give the history, --input TOPIC=PATH, or --only-state"),
        (["v1/shop.py", "v2/shp.py", "--only-state"], "v2/shp.py: there is no such script; did you mean 'v2/shop.py'?"),
        (["v1/shop.py", "v2/shop.py:topologie", "--only-state"], "no function 'topologie'; did you mean 'topology'?"),
        (["v1/shop.py", "v2/shop.py", "--only-state", "--input", "a=b"], "--only-state replays nothing"),
        (["v1/shop.py", "v2/shop.py", "--input", "order=x"], "no topic 'order' (did you mean 'orders'?)"),
        (["v1/shop.py", "v2/shop.py", "--input", "orders=order.jsonl"], "order.jsonl: there is no such file"),
        (["v1/shop.py", "v2/shop.py", "--input", "orders=x", "--limit", "-1"], "not a number of examples"),
        (["v1/shop.py", "v2/shop.py", "--input", "orders=x", "--master", "local[1]"], "give --executor spark too"),
    ],
)
def test_mistakes_are_told_in_one_line(shop, arguments, message):
    done = shop("diff", *arguments)

    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_an_input_that_one_version_cannot_read_names_the_version(shop):
    change(shop, "    amount: int\n", "    amount: int\n    note: str\n")

    done = diff(shop)

    assert done.status == 2
    assert "v2/shop.py: the replay failed" in done.err
    assert "missing required field `note`" in done.err


COUNTING = """\
from streams import StreamsBuilder, Topic

numbers = Topic("numbers", key=str, value=int)
seen = []


def position(number: int) -> int:
    seen.append(number)
    return len(seen)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).map_values(position).to(Topic("positions", key=str, value=int))
"""


@pytest.mark.slow
def test_a_script_that_is_compared_with_itself_runs_twice(streams):
    """What its module keeps belongs to one version."""
    streams.write("counting.py", COUNTING)
    rows = [{"key": "a", "value": number, "timestamp": number} for number in range(2)]
    streams.write("numbers.records.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))

    done = streams("diff", "counting.py", "counting.py", "--input", "numbers=numbers.records.jsonl")

    assert (done.status, done.err) == (0, "")
    assert "positions: 2 records, the same" in done.out


def test_both_versions_are_one_drawing(shop):
    change(
        shop, "paid = builder.stream(orders)", "paid = builder.stream(orders).filter(lambda key, order: order.amount)"
    )
    change(shop, '.count("by-customer").to_stream().to(customers)', '.count("per-customer").to_stream().to(customers)')

    drawing = shop("diff", "v1/shop.py", "v2/shop.py", "--only-state", "--application-id", "a", "--format", "svg").out
    boxes = {group.get("data-name"): group.get("class") for group in ElementTree.fromstring(drawing).iter(f"{SVG}g")}
    marks = {
        name: mark for name, classes in boxes.items() for mark in ("new", "gone", "changed") if mark in classes.split()
    }
    assert marks == {"KSTREAM-FILTER-0000000001": "new", "per-customer": "new", "by-customer": "gone"}
