"""The pytest plugin: its fixtures, what a failing comparison says, and snapshots, each in a pytest of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).resolve().parents[2]
SHOP = """
from dataclasses import dataclass

from streams import StreamsBuilder, Topic

@dataclass(frozen=True)
class Total:
    orders: int
    cents: int

orders = Topic("orders", key=str, value=int)
totals = Topic("totals", key=str, value=Total)

def topology(builder: StreamsBuilder) -> None:
    large = builder.stream(orders).filter(lambda _, cents: cents >= 100, name="large-only").group_by_key()
    large.aggregate(
        lambda: Total(0, 0), lambda _, cents, old: Total(old.orders + 1, old.cents + cents), "totals", value=Total
    ).to_stream().to(totals)
"""


@pytest.fixture
def run(tmp_path):
    """Run tests of a shop with the plugin; return the exit status and what is printed."""
    (tmp_path / "shop.py").write_text(SHOP)

    def run_tests(tests: str, *options: str) -> tuple[int, str]:
        text = "from shop import Total, orders, topology, totals\n" if "topology" in tests else ""
        (tmp_path / "test_shop.py").write_text(text + tests)
        done = programs.run(
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "streams_pytest", *options],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
        return done.returncode, done.stdout + done.stderr

    return run_tests


OTHER = """
import sys

def test_nothing():
    assert "streams_pytest" in sys.modules
    assert [it for it in sys.modules if it.split(".")[0] == "streams"] == []
"""


def test_a_project_that_uses_no_fixture_does_not_import_streams(tmp_path):
    """In an interpreter of its own: that of ``programs`` has imported streams."""
    (tmp_path / "test_other.py").write_text(OTHER)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "streams_pytest"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


FIXTURES = """
from streams import Producer, SystemClock

def test_driver(driver):
    one = driver(topology, partitions=2)
    one.pipe(orders, 100, key="ann")
    assert one.read(totals) == [("ann", Total(1, 100))]

def test_broker(broker, virtual_clock):
    virtual_clock.advance(5_000)
    broker.create_topic(orders, partitions=1)
    with Producer(broker) as producer:
        assert producer.send(orders, 100, key="ann").result().offset == 0
    assert broker._clock is virtual_clock

def test_broker_of_real_time(broker):
    assert isinstance(broker._clock, SystemClock)

def test_worlds(simulate):
    report = simulate(topology, {orders: [("ann", 100, 0), ("bob", 200, 1)]}, storm_ms=500, partitions=1)
    assert report.seeds == 1

def test_all_drivers_are_closed():
    import gc
    from streams.testing import TopologyTestDriver
    assert not [it for it in gc.get_objects() if isinstance(it, TopologyTestDriver) and it._tasks]
"""


@pytest.mark.slow
def test_fixtures(run):
    status, printed = run(FIXTURES, "--simulation-seeds=1")

    assert status == 0, printed
    assert "5 passed" in printed


DIFFERENT = """
def test_totals(driver):
    one = driver(topology)
    one.pipe_all(orders, [("ann", 100, 0), ("ann", 250, 1), ("bob", 20, 2)])
    assert one.read(totals) == [("ann", Total(1, 100)), ("ann", Total(2, 300)), ("bob", Total(1, 20))]

def test_order(driver):
    one = driver(topology)
    one.pipe_all(orders, [("ann", 100, 0), ("bob", 100, 1)])
    assert [("bob", Total(1, 100)), ("ann", Total(1, 100))] == one.read(totals)
"""


STORY = """
def test_story(driver):
    one = driver(topology)
    one.pipe(orders, 99, key="bob", timestamp_ms=0)
    assert one.read(totals), one.why("bob", totals)
"""


def test_a_story_is_the_message_of_an_assertion(run):
    _, printed = run(STORY)
    assert "E       AssertionError: totals: no record of key 'bob'\n" in printed
    assert "large-only: filtered\n" in printed
    assert "orders-0 offset 0: 'bob': 99" in printed


def test_a_difference_says_which_records_and_why(run):
    status, printed = run(DIFFERENT, "-vv")

    assert status == 1
    said = [line[1:].strip() for line in printed.splitlines() if line.startswith("E  ")]
    assert said[0].endswith("topic 'totals': 2 records read, 3 expected")
    assert said[1] == "'bob': no record, expected Total(orders=1, cents=20)"
    assert any("large-only: filtered" in line for line in said[2:8]), printed
    assert "'ann', record 2: read Total(orders=2, cents=350), expected Total(orders=2, cents=300)" in said
    assert "cents: read 350, expected 300" in said
    assert "each key has the expected records; only the order across keys differs" in said


SNAPSHOT = """
def test_totals(driver, output_snapshot):
    one = driver(topology)
    one.pipe_all(orders, [("ann", CENTS, 0), ("bob", 200, 1)])
    output_snapshot.check(one, totals)
    one.pipe(orders, 300, key="ann", timestamp_ms=7)
    output_snapshot.check(one, orders, totals)
"""


@pytest.mark.slow
def test_snapshots_are_compared_and_written_on_demand(run, tmp_path):
    first = SNAPSHOT.replace("CENTS", "100")
    folder = tmp_path / "test_shop.outputs"

    status, printed = run(first)
    assert status == 1
    assert "run pytest with --update-outputs to write it" in printed

    status, printed = run(first, "--update-outputs")
    assert status == 0, printed
    assert f"outputs written: {folder / 'test_totals.jsonl'}" in printed
    rows = [json.loads(line) for line in (folder / "test_totals.2.jsonl").open()]
    assert rows[-1] == {"topic": "totals", "key": "ann", "value": {"orders": 2, "cents": 400}, "timestamp": 7}
    assert run(first)[0] == 0

    status, printed = run(SNAPSHOT.replace("CENTS", "500"))
    assert status == 1
    assert '-{"topic": "totals", "key": "ann", "value": {"cents":100,"orders":1}, "timestamp": 0}' in printed
    assert '+{"topic": "totals", "key": "ann", "value": {"cents":500,"orders":1}, "timestamp": 0}' in printed
