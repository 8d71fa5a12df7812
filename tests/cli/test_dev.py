"""``streams dev``: a run at each save, and what it changes."""

import json
import signal
import threading
from contextlib import contextmanager

import pytest

from tests.waiting import WATCHDOG_S, until

TAX = "def taxed(cents: int) -> int:\n    return cents * 2\n"
SHOP = """\
from tax import taxed

from streams import StreamsBuilder, Topic

orders = Topic("orders", key=str, value=int)
totals = Topic("totals", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(orders).map_values(taxed).group_by_key().reduce(lambda a, b: a + b, "totals").to_stream().to(totals)
"""


@pytest.fixture
def shop(streams):
    """A script, a module that it imports, and a sample without times."""
    streams.write("shop.py", SHOP)
    streams.write("tax.py", TAX)
    rows = [{"key": key, "value": cents} for key, cents in (("ann", 3), ("bob", 5), ("ann", 4))]
    streams.write("orders.records.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    return streams


@contextmanager
def developing(shop, *arguments):
    """Start ``streams dev``; yield a function that awaits a text of its output and forgets what came before."""
    with shop.start("dev", "shop.py", "--input", "orders=orders.records.jsonl", *arguments) as process:
        texts: list[str] = []

        pipes = (process.stdout, process.stderr)
        readers = [threading.Thread(target=texts.extend, args=(pipe,)) for pipe in pipes]
        for reader in readers:
            reader.start()

        def awaited(*wanted):
            until(lambda: all(text in "".join(texts) for text in wanted) or process.poll() is not None)
            lines = list(texts)
            del texts[: len(lines)]
            found = "".join(lines)
            assert all(text in found for text in wanted), found
            return found

        try:
            yield process, awaited
        finally:
            process.kill()
            for reader in readers:
                reader.join()


WAITING = "waiting for a change"


def test_each_save_shows_what_it_changes(shop):
    """The script, a module that it imports, the sample; a mistake is shown with its line, and the next save runs."""
    with developing(shop) as (process, awaited):
        first = awaited("totals: 3 records", WAITING)
        assert "ann: 14 at" in first

        shop.write("tax.py", TAX.replace("* 2", "* 3"))
        assert "last: 14 -> 21" in awaited("changed: tax.py", "OUTPUTS", WAITING)

        shop.write("shop.py", SHOP.replace("a + b", "a + c"))
        assert "shop.py:10" in awaited("NameError", WAITING)

        shop.write("shop.py", SHOP + "x = = 1\n")
        awaited("the script is not Python", WAITING)

        shop.write("shop.py", SHOP)
        awaited("no output and no store differs", WAITING)

        with (shop.folder / "orders.records.jsonl").open("a") as file:
            file.write('{"key": "cy", "value": 1}\n')
        assert "cy: only in NEW" in awaited("changed: orders.records.jsonl", WAITING)

        process.send_signal(signal.SIGINT)
        assert process.wait(WATCHDOG_S) == 0


@pytest.mark.slow
def test_once_for_programs(shop):
    ran = shop("dev", "shop.py", "--input", "orders=orders.records.jsonl", "--once", "--max", "2", "--limit", "1")

    assert ran.status == 0
    assert [line.partition(" at ")[0] for line in ran.out.splitlines()] == [
        "totals: 2 records",
        "  ann: 6",
        "  and 1 more; --limit shows more of them",
    ]


def test_mistakes_end_a_single_run(shop, refused):
    assert "give a sample, --input TOPIC=PATH" in refused("dev", "shop.py", "--once")
    assert "there is no topic 'order'" in refused("dev", "shop.py", "--input", "order=orders.records.jsonl", "--once")
    assert "no such" in refused("dev", "shop.py", "--input", "orders=other.jsonl", "--once")
