"""A replay by columns gives what it gives by rows: outputs, stores, drops and snapshots, however it is divided."""

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams import EmitStrategy, StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.replay import replay
from streams.runtime.tasks.columns.runs import ColumnRuns

pytest.importorskip("streams.core.blocks.compiled_columns", reason="installed without a C compiler")
MINUTE = timedelta(minutes=1)
PARTITIONS = 3


class Trade(msgspec.Struct, frozen=True):
    symbol: str
    ts: int
    price: float
    size: int


class Bar(msgspec.Struct, frozen=True):
    open: float = 0.0
    high: float = 0.0
    low: float = 0.0
    close: float = 0.0
    volume: int = 0
    notional: float = 0.0
    n: int = 0
    vwap: float = 0.0


trades = Topic("trades", key=str, value=Trade, timestamp=lambda trade: trade.ts, key_from=lambda trade: trade.symbol)
bars = Topic("bars", key=time_windowed(str, MINUTE), value=Bar)
last = Topic("last", key=str, value=Bar)
counts = Topic("counts", key=time_windowed(str, MINUTE), value=int)


def add(_: str, trade: Trade, bar: Bar) -> Bar:
    price = trade.price
    if not bar.n:
        return Bar(price, price, price, price, trade.size, price * trade.size, 1, price)
    volume, notional = bar.volume + trade.size, bar.notional + price * trade.size
    return Bar(
        bar.open, max(bar.high, price), min(bar.low, price), price, volume, notional, bar.n + 1, notional / volume
    )


def on_close(builder: StreamsBuilder) -> None:
    stream = builder.stream(trades).filter(lambda _, trade: trade.size > 10 and trade.price < 1e6)
    windows = stream.group_by_key().windowed_by(TimeWindows.of(MINUTE, grace=timedelta(seconds=5)))
    closed = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    closed.aggregate(Bar, add, "bars").to_stream(tombstones=False).to(bars)


def each_update(builder: StreamsBuilder) -> None:
    stream = builder.stream(trades).filter_not(lambda _, trade: trade.size < 10)
    windows = TimeWindows.of(MINUTE, advance=timedelta(seconds=20), grace=timedelta(seconds=5))
    stream.group_by_key().windowed_by(windows).aggregate(Bar, add, "bars").to_stream().to(bars)


def of_keys(builder: StreamsBuilder) -> None:
    builder.stream(trades).group_by_key().aggregate(Bar, add, "bars").to_stream().to(last)


def counted(builder: StreamsBuilder) -> None:
    """Count behind a repartition topic, whose values nobody reads."""
    stream = builder.stream(trades).group_by(lambda _, trade: trade.symbol.lower(), key=str)
    stream.windowed_by(TimeWindows.of(MINUTE)).count("bars").to_stream().to(counts)


TOPOLOGIES = [on_close, each_update, of_keys, counted]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two files of trades, the second of a later time; a few are late, and one cannot be computed in C."""
    rng = random.Random(1)
    time = 1_700_000_000_000
    files = []
    for number in range(2):
        path = tmp_path_factory.mktemp("trades") / f"{number}.jsonl"
        lines = []
        for _ in range(2500):
            time += rng.choice([0, 10, 100, 300])
            price = round(rng.uniform(1, 1000), 2) if rng.random() < 0.9 else rng.choice([1e16, 0.1, -0.0, 1.5e6])
            lines.append(
                {
                    "symbol": rng.choice(["AAPL", "MSFT", "é", "GOOG", "A", "B", "C"]),
                    "ts": time - rng.choice([0] * 30 + [40_000, 90_000]),
                    "price": price,
                    "size": rng.choice([9 * 10**17 if rng.random() < 0.01 else 20, rng.randrange(1, 5000)]),
                }
            )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(path)
    return files


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many records columns have taken in each run."""
    counts: list[int] = []
    original = ColumnRuns._run

    def counted(self: ColumnRuns, *arguments: Any) -> int:
        counts.append(original(self, *arguments))
        return counts[-1]

    monkeypatch.setattr(ColumnRuns, "_run", counted)
    return counts


def outcome(topology: Callable[..., None], files: list[Path], columns: str, **options: Any) -> Any:
    with replay(
        topology,
        {"trades": files[0].parent if len(files) == 1 else files[0]},
        executor="local",
        processes=1,
        partitions=PARTITIONS,
        application_id="app",
        columns=columns,
        order="as_given",
        **options,
    ) as result:
        outputs = {
            str(topic): [
                (number, block.keys, block.values, block.timestamps, block.offsets)
                for number, block in result.read(topic)
            ]
            for topic in result.outputs
        }
        stores = {
            name: sorted(
                (number, bytes(key), value, time)
                for number, block in result.stores[name].blocks()
                for key, value, time in zip(block.keys, block.values, block.timestamps, strict=True)
            )
            for name in result.stores
        }
        return repr(outputs), stores, result.dropped, sorted(map(str, result._tallies.items()))


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("slices", [None, 4])
def test_a_replay_gives_the_same(
    history: list[Path], taken: list[int], topology: Callable[..., None], slices: int | None
) -> None:
    options = {"slices": slices} if slices else {}
    by_columns = outcome(topology, history[:1], "auto", **options)
    assert by_columns == outcome(topology, history[:1], "off", **options)
    assert sum(taken) > 2000
    taken.clear()
    assert outcome(topology, history[:1], "check", **options) == by_columns
    assert sum(taken) > 2000


@pytest.mark.parametrize("topology", [on_close, each_update])
def test_a_snapshot_by_columns_is_continued_by_rows_and_the_other_way(
    history: list[Path], tmp_path: Path, topology: Callable[..., None]
) -> None:
    found = []
    for first, second in [("off", "off"), ("auto", "off"), ("off", "auto"), ("auto", "auto")]:
        folder = tmp_path / f"{first}-{second}"
        outcome(topology, history[:1], first, snapshot=folder / "one", slices=3)
        found.append(outcome(topology, history[1:], second, state_from=folder / "one", slices=2))
    assert all(each == found[0] for each in found)
