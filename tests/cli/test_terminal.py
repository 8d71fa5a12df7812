"""What a terminal shows of ``why``, ``diff`` and ``dev``, and what a pipe gets."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import programs
from tests.cli.conftest import Program

SHOP = """\
from datetime import timedelta

from attrs import frozen

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed


@frozen
class Order:
    number: int
    cents: int


orders = Topic("orders", key=str, value=Order)
totals = Topic("totals", key=time_windowed(str, timedelta(minutes=1)), value=int)


def topology(builder: StreamsBuilder) -> None:
    paid = builder.stream(orders).filter(lambda customer, order: order.cents > 0, name="paid")
    by_minute = paid.group_by_key().windowed_by(TimeWindows.of(timedelta(minutes=1)))
    by_minute.aggregate(int, lambda key, order, total: total + order.cents, "sums").to_stream().to(totals)
"""
ORDERS = """\
{"key": "ann", "value": {"number": 1, "cents": 300}, "timestamp": 1767607200000}
{"key": "bob", "value": {"number": 2, "cents": 0}, "timestamp": 1767607210000}
{"key": "ann", "value": {"number": 3, "cents": 250}, "timestamp": 1767607220000}
"""
INPUT = ("shop.py", "--input", "orders=orders.records.jsonl")
#: A sequence that sets a color, and one that sets any style.
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|9\d)m")
STYLE = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def shop(streams: Program) -> Program:
    streams.write("shop.py", SHOP)
    streams.write("new.py", SHOP.replace("total + order.cents", "total + order.cents + 1"))
    streams.write("orders.records.jsonl", ORDERS)
    return streams


def lines_of(out: str) -> list[str]:
    return [line.rstrip() for line in STYLE.sub("", out).splitlines()]


def test_why_is_a_tree_of_records_as_all_commands_show_them(shop: Program) -> None:
    shown = shop.on_terminal("why", *INPUT, "--key", "ann")

    assert (shown.status, shown.err) == (0, "")
    assert lines_of(shown.out) == [
        "totals: 2 records of key 'ann'; the last is explained",
        "ann  [2026-01-05T10:00:00Z, 2026-01-05T10:01:00Z)  550",
        "└── sums: 2 records of key 'ann' in window 2026-01-05T10:00:00Z to",
        "    2026-01-05T10:01:00Z, store sums",
        '    ├── 2026-01-05T10:00:00Z  orders-0 offset 0  ann  {"number": 1, "cents":',
        "    │   300}",
        '    └── 2026-01-05T10:00:20Z  orders-0 offset 2  ann  {"number": 3, "cents":',
        "        250}",
    ]
    assert lines_of(shop.on_terminal("why", *INPUT, "--key", "ann", columns=120).out)[-1] == (
        '    └── 2026-01-05T10:00:20Z  orders-0 offset 2  ann  {"number": 3, "cents": 250}'
    )


def test_why_shows_the_line_of_a_lambda_that_has_dropped_the_record(shop: Program) -> None:
    shown = shop.on_terminal("why", *INPUT, "--key", "bob")

    assert shown.status == 1
    assert lines_of(shown.out)[2:] == [
        "paid: filtered",
        '├── 2026-01-05T10:00:10Z  orders-0 offset 1  bob  {"number": 2, "cents": 0}',
        "└── the condition of filter 'topology.<locals>.<lambda>' (shop.py:19) is not",
        "    true for it",
        "    paid = builder.stream(orders).filter(lambda customer, order: order.cents >",
        '    0, name="paid")',
    ]


def test_diff_begins_with_what_differs_and_shows_it_in_tables(shop: Program) -> None:
    shown = shop.on_terminal("diff", "shop.py", "new.py", *INPUT[1:], columns=120)

    assert (shown.status, shown.err) == (1, "")
    lines = lines_of(shown.out)
    assert lines[:3] == [
        "shop: OLD shop.py, NEW new.py",
        "Differing: 1 of 1 keys of totals, store sums",
        "Taking over: can, but 1 thing must be checked",
    ]
    window = "ann@[2026-01-05T10:00:00Z, 2026-01-05T10:01:00Z)"
    assert f"    {'key':50}OLD  NEW  first differs at" in lines
    assert f"    {window}  550  552  2026-01-05T10:00:00Z" in lines
    assert f"    {window}  550  552" in lines_of(shop.on_terminal("diff", "shop.py", "new.py", *INPUT[1:]).out)


def test_versions_that_do_not_differ_are_said_to(shop: Program) -> None:
    shown = shop.on_terminal("diff", "shop.py", "shop.py", *INPUT[1:])

    assert shown.status == 0
    assert lines_of(shown.out) == [
        "shop: OLD shop.py, NEW shop.py",
        "No output and no store differs",
        "Taking over: can take over",
        "",
        "The same: totals, store sums",
        "",
        "Taking over",
        "  kept: sums",
    ]


def test_dev_shows_records_as_run_does(shop: Program) -> None:
    shown = shop.on_terminal("dev", *INPUT, "--once")
    ran = shop.on_terminal("run", *INPUT, "--output", "totals=-")

    assert shown.out.splitlines() == ["totals: 2 records", *(f"  {line}" for line in ran.out.splitlines())]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("why", *INPUT, "--key", "ann"), ("diff", "shop.py", "new.py", *INPUT[1:]), ("dev", *INPUT, "--once")],
    ids=lambda command: command[0],
)
def test_a_pipe_gets_lines_of_text_and_format_says_otherwise(shop: Program, command: tuple[str, ...]) -> None:
    piped = shop(*command)

    assert not STYLE.search(piped.out)
    if command[0] == "dev":
        return
    assert shop.on_terminal(*command, "--format", "text").out == piped.out
    assert shop.on_terminal(*command, "--json").out == shop(*command, "--json").out
    table = shop(*command, "--format", "table").out
    assert table.splitlines() == lines_of(shop.on_terminal(*command).out)


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_a_terminal_without_colors_gets_none(shop: Program, environment: dict[str, str]) -> None:
    command = ("diff", "shop.py", "new.py", *INPUT[1:])

    assert COLOR.search(shop.on_terminal(*command).out)
    plain = shop.on_terminal(*command, **environment).out
    assert not COLOR.search(plain)
    assert ("\x1b" in plain) is (environment != {"TERM": "dumb"})


@pytest.mark.slow
def test_control_characters_of_records_do_not_reach_the_terminal(shop: Program) -> None:
    line = '{"key": "a[red]\\\\u001b[2J", "value": {"number": 1, "cents": 0}, "timestamp": 0}\n'.replace("\\\\u", "\\u")
    Path(shop.folder / "orders.records.jsonl").write_text(line)

    shown = shop.on_terminal("why", *INPUT, "--key", "a[red]\x1b[2J")

    assert "\x1b[2J" not in shown.out
    assert "a[red]" in shown.out


def test_produce_says_that_it_reads_the_keyboard(streams: Program) -> None:
    """It waited without a word."""
    streams("topics", "create", "t", "--partitions", "1", "--state-dir", "state")
    keyboard, theirs = os.openpty()
    os.write(keyboard, b"one\n\x04")
    pipes = {"stdin": theirs, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = programs.start(["-m", "streams", "produce", "t", "--state-dir", "state"], cwd=streams.folder, **pipes)
    os.close(theirs)
    _, err = process.communicate()
    os.close(keyboard)

    assert err == "streams: reading lines from the keyboard; Ctrl-D ends\nstreams: 1 record to t\n"


def test_a_capsule_that_is_missing_is_said_to_be(refused: Callable[..., str]) -> None:
    assert "cap.zip: there is no such file" in refused("reproduce", "cap.zip")
