"""The demonstration that `make demo` runs: two bounded jobs on the embedded broker.

First an auction house: Nexmark events from a seed, joined, windowed and averaged.  Then the history of
the git repository that this file lies in.  Progress goes to standard error, the results, which
are for a person to look at, to standard output.

    python -m topology_examples.demo [--events N] [--partitions N]
"""

import argparse
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streams import StreamsBuilder, Topic, Windowed
from streams.bounded import BoundedRun, run_bounded
from streams.bounded import Progress as RunProgress
from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block
from topology_examples.nexmark import Nexmark, auctions, bids

K = TypeVar("K")
V = TypeVar("V")

#: What a bounded run reads a topic by: a function of its partitions and the rows to skip.
Reader = Callable[[int, int], Iterator[list[tuple[int, Block]]]]

# The examples' names begin with a number, so no import statement can say them.
queries = import_module("topology_examples.09_nexmark")
git = import_module("topology_examples.08_git_activity")

#: The last class of the histogram of sessions, as a power of two.
MOST_BIDS: Final = 6

BARS: Final = " ▏▎▍▌▋▊▉█"
BAR_CELLS: Final = 28


def auction_house(builder: StreamsBuilder) -> None:
    """Answer three of the queries: average prices, hottest items, sessions of bidders."""
    queries.q4(builder)
    queries.q5(builder)
    queries.q11(builder)


def bar(value: float, highest: float) -> Text:
    """Return a bar of eighths of a cell."""
    eighths = round(value / highest * BAR_CELLS * 8) if highest else 0
    return Text("█" * (eighths // 8) + BARS[eighths % 8].strip(), style="cyan")


def clock(time_ms: int) -> str:
    """Return the time of day, UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S}"


def table_of(run: BoundedRun, topic: Topic[K, V]) -> dict[K, V]:
    """Return what a topic of updates says in the end."""
    table: dict[Any, Any] = {}
    for _, block in run.read_output(topic.name):
        keys, values = topic.key_serde.deserialize_all(block.keys), topic.value_serde.deserialize_all(block.values)
        table.update(zip(keys, values, strict=True))
    return {key: value for key, value in table.items() if value is not None}


@contextmanager
def shown_progress(console: Console, what: str, total: int) -> Iterator[Callable[[RunProgress], None]]:
    """Show how a run advances: a bar on a terminal, otherwise a line for every quarter."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    started = time.perf_counter()
    quarter = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total, detail="")

        def show(state: RunProgress) -> None:
            nonlocal quarter
            rate = state.records_in / max(time.perf_counter() - started, 1e-3)
            done = min(state.records_in, total)
            progress.update(task, completed=done, detail=f"{rate:,.0f} records/s, {state.records_out:,} results")
            if not console.is_terminal and done * 4 // total > quarter:
                quarter = done * 4 // total
                line = f"{what}: {done:,} of {total:,} records, {state.records_out:,} results"
                console.print(line, highlight=False)

        yield show


def run_job(
    console: Console,
    what: str,
    topology: Callable[[StreamsBuilder], None],
    inputs: Mapping[str, Reader],
    total: int,
    partitions: int,
) -> tuple[BoundedRun, float]:
    """Run a topology over its inputs; return the finished run and how many seconds it took."""
    started = time.perf_counter()
    with shown_progress(console, what, total) as show:
        done = run_bounded(
            topology,
            inputs,
            application_id=what.replace(" ", "-"),
            partitions=partitions,
            state_dir=None,
            final_flush=True,
            settings={},
            progress=show,
        )
    return done, time.perf_counter() - started


def hottest_items(found: Mapping[int, Any]) -> Table:
    """Return the hottest item of every so many windows, with a bar for its bids."""
    table = Table("ten seconds from", "hottest item", "bids", "", title="Hot items (hopping windows, final results)")
    starts = sorted(found)
    shown = starts[:: max(1, len(starts) // 12)]
    highest = max((found[start].bids for start in shown), default=0)
    for start in shown:
        item = found[start]
        table.add_row(clock(start), f"auction {item.auction}", f"{item.bids}", bar(item.bids, highest))
    return table


def mean_prices(found: Mapping[int, float]) -> Table:
    """Return the average closing price of each category."""
    table = Table("category", "average", "", title="Closing prices (auctions joined with bids)")
    highest = max(found.values(), default=0.0)
    for category, price in sorted(found.items()):
        table.add_row(str(category), f"{price / 100:,.2f}", bar(price, highest))
    return table


def session_lengths(found: Mapping[Windowed[int], int]) -> Table:
    """Return a histogram of how many bids a session has."""
    classes = Counter(min(count.bit_length() - 1, MOST_BIDS) for count in found.values())
    table = Table("bids", "sessions", "", title="Sessions of bidders (ten seconds without a bid end one)")
    for power in range(max(classes, default=-1) + 1):
        low, high = 1 << power, (2 << power) - 1
        label = f"{low} and more" if power == MOST_BIDS else str(low) if low == high else f"{low}-{high}"
        table.add_row(label, f"{classes[power]:,}", bar(classes[power], max(classes.values())))
    return table


def show_auctions(err: Console, out: Console, events: int, partitions: int) -> None:
    """Run the auction house and print its answers."""
    generator = Nexmark()
    inputs = {topic.name: generator.reader(topic, events) for topic in (auctions, bids)}
    total = events - -(-events // 50)  # One event in fifty is a person, whom no query here asks for.
    run, seconds = run_job(err, "auction house", auction_house, inputs, total, partitions)
    with run:
        hot = hottest_items(table_of(run, queries.q5_out))
        prices = mean_prices(table_of(run, queries.q4_out))
        lengths = session_lengths(table_of(run, queries.q11_out))
    out.print(f"Auction house: {total:,} events, half of them late, in {partitions} partitions: {seconds:.1f} s")
    out.print(Panel(Group(hot, prices, lengths), expand=False))


def commit_reader(history: Sequence[Any]) -> Reader:
    """Return a reader of commits, which have their author as key."""
    topic: Topic[str, Any] = git.commits
    keys = [topic.key_serde.serialize(commit.author) or b"" for commit in history]
    values = topic.value_serde.serialize_all(list(history))
    times = [int(commit.time.timestamp() * 1000) for commit in history]

    def read(partitions: int, skip_rows: int) -> Iterator[list[tuple[int, Block]]]:
        where = partitions_for(keys, partitions)
        for partition in range(partitions):
            rows = [row for row in range(skip_rows, len(history)) if where[row] == partition]
            if rows:
                picked = [keys[row] for row in rows], [values[row] for row in rows], [times[row] for row in rows]
                yield [(partition, Block(*picked))]

    return read


def show_history(err: Console, out: Console, folder: Path, partitions: int) -> None:
    """Run the git example over the repository that holds ``folder`` and print its answers."""
    try:
        history = git.read_log(folder)
    except (OSError, subprocess.SubprocessError):
        err.print("There is no git history here, so its activity is left out.")
        return
    if not history:
        return
    run, seconds = run_job(
        err, "git activity", git.topology, {"commits": commit_reader(history)}, len(history), partitions
    )
    with run:
        sessions = table_of(run, git.sessions)
        churn = table_of(run, git.churn)
    days: Counter[str] = Counter()
    for (_, window), work in sessions.items():
        days[f"{datetime.fromtimestamp(window.start_ms / 1000, UTC):%Y-%m-%d}"] += work.commits
    recent = Table("day", "commits", "", title="Commits by the day on which their session began")
    for day, count in sorted(days.items())[-10:]:
        recent.add_row(day, str(count), bar(count, max(days.values())))
    busiest: dict[str, int] = {}
    for (folder_name, _), lines in churn.items():
        busiest[folder_name] = max(busiest.get(folder_name, 0), lines)
    folders = Table("folder", "lines", "", title="Most lines changed within seven days")
    for name, lines in sorted(busiest.items(), key=lambda item: -item[1])[:8]:
        folders.add_row(name, f"{lines:,}", bar(lines, max(busiest.values())))
    out.print(f"This repository: {len(history):,} commits, {len(sessions):,} sessions of work; {seconds:.1f} s")
    out.print(Panel(Group(recent, folders), expand=False))


def main() -> None:
    """Run both jobs and print what comes out."""
    parser = argparse.ArgumentParser(prog="python -m topology_examples.demo", description="Two bounded jobs.")
    parser.add_argument("--events", type=int, default=200_000, help="of the auction house (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of each topic (default: %(default)s)")
    options = parser.parse_args()
    err, out = Console(stderr=True), Console(highlight=False)
    show_auctions(err, out, options.events, options.partitions)
    show_history(err, out, Path(__file__).parent, options.partitions)


if __name__ == "__main__":
    main()
