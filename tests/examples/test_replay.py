"""The replay example does what its text promises, as a script and from the command line."""

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import programs
from tests.waiting import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "topology_examples" / "14_replay.py"
ORDERS = 20_000


@pytest.fixture(scope="module")
def example():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("replay_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["replay_example"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["replay_example"]


@pytest.fixture
def streams(tmp_path):
    """Run `streams` in a folder with the examples; return what it says."""
    (tmp_path / "topology_examples").symlink_to(ROOT / "topology_examples")

    def run(*arguments):
        done = programs.run(["-m", "streams", *map(str, arguments)], cwd=tmp_path, timeout=WATCHDOG_S)
        assert done.returncode == 0, done.stderr
        return done

    return run


def numbers(line):
    """The product and the number behind it."""
    product, number = line.split()[:2]
    return product, int(number.replace(",", ""))


def test_counts_go_on_from_history(run_script, example):
    """One more of each in the afternoon; at midnight the day has history's half and the live order."""
    sold = Counter(order.product for order in example.history(ORDERS))
    today = Counter(order.product for order in example.history(ORDERS) if order.at >= example.LAST.replace(hour=0))

    printed = run_script("14_replay.py", "--orders", ORDERS).splitlines()

    replayed, afternoon, midnight = printed[1:7], printed[9:15], printed[16:]
    assert printed[8] == "live, 30 June 15:00: an order of each product"
    assert dict(map(numbers, replayed)) == sold
    assert dict(map(numbers, afternoon)) == {product: count + 1 for product, count in sold.items()}
    assert dict(map(numbers, midnight)) == {product: today[product] + 1 for product in sold}


@pytest.mark.slow
def test_history_and_what_follows_give_what_one_run_gives(run_script, run_stream, streams, tmp_path):
    """Replay of the months, then a run from the snapshot over what came later, against a run over all of it."""
    run_script("14_replay.py", "--write", "shop", "--orders", ORDERS)
    months = sorted((tmp_path / "shop" / "history").iterdir())
    later = tmp_path / "shop" / "later.jsonl"
    whole = tmp_path / "whole.jsonl"
    whole.write_text("".join(file.read_text() for file in [*months, later]))
    script = ("topology_examples/14_replay.py", "--partitions", 4)

    streams(
        *("replay", *script, "--executor", "local", "--input", "orders=shop/history", "--snapshot", "shop/snapshot"),
        *("--output", "totals=history.records.jsonl"),
    )
    then = streams(
        "run", *script, "--from-snapshot", "shop/snapshot", "--input", f"orders={later}", "--output", "totals=-"
    )
    expected = run_stream("14_replay.py", {"orders": whole}, ["totals"], partitions=4)["totals"]

    first = [json.loads(line) for line in (tmp_path / "history.records.jsonl").open()]
    second = [json.loads(line) for line in then.stdout.splitlines()]
    by_partition = [
        [row for row in rows if row["partition"] == number] for number in range(4) for rows in (first, second)
    ]
    assert [row for rows in by_partition for row in rows] == expected


@pytest.mark.slow
def test_section_of_the_readme_does_what_it_shows(streams, run_script, tmp_path):
    section = (ROOT / "README.md").read_text().split("## Over history, then live")[1].split("\n## ")[0]
    commands = re.findall(r"^\.venv/bin/(.*)$", section.replace("\\\n", " "), re.MULTILINE)

    said = ""
    for command in commands:
        program, *arguments = command.partition("  #")[0].split()
        if program == "python":
            run_script(Path(arguments[0]).name, *arguments[1:])
        else:
            said += streams(*arguments).stdout

    counts = {row["key"]: row["value"]["orders"] for row in map(json.loads, said.splitlines())}
    assert len(commands) == 3
    assert sum(counts.values()) == 200_006, "all of history and the six orders of the afternoon"
