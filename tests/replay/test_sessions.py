"""Sessions of a web site's visitors: three days from the archive, the fourth live, as if all had been live."""

import gzip
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from streams.bounded import Begins, run_bounded
from streams.files import open_input
from streams.replay import Snapshot, lay_down, replay
from streams.replay.storage.places import Place

example = import_module("topology_examples.02_sessions")
access, sessions, topology = example.access, example.sessions, example.topology
LOG = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log.gz"
PARTITIONS = 4


def lines() -> list[str]:
    """Return the access log, or one like it where that is not at hand."""
    if LOG.exists():
        return gzip.decompress(LOG.read_bytes()).decode().splitlines()
    rng, start = Random(5), datetime(2015, 5, 17, tzinfo=UTC)
    times = sorted(rng.uniform(0, 4 * 86_400) for _ in range(4000))
    return [
        f"10.0.0.{rng.randrange(60)} - - "
        f'[{start + timedelta(seconds=time - rng.choice((0, 0, 0, 40))):%d/%b/%Y:%H:%M:%S %z}] "GET / HTTP/1.1" 200 9'
        for time in times
    ]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The whole log, its first three days, and the rest."""
    folder = tmp_path_factory.mktemp("logs")
    whole = lines()
    cut = next(index for index, line in enumerate(whole) if "20/May/2015" in line)
    for name, part in (("whole", whole), ("first", whole[:cut]), ("rest", whole[cut:])):
        (folder / f"{name}.log").write_text("\n".join(part) + "\n")
    return folder


def by_partition(blocks) -> dict[int, list]:
    result = defaultdict(list)
    for number, block in blocks:
        result[number] += zip(block.keys, block.values, block.timestamps, strict=True)
    return dict(result)


def live(log: Path, folder: Path | None = None, begins: Begins | None = None, **options) -> dict[int, list]:
    reader = open_input(access, log, **options.pop("reading", {}))
    with run_bounded(
        topology,
        {"access": reader if begins is None else [(reader, begins)]},
        application_id="visits",
        partitions=PARTITIONS,
        state_dir=folder,
        **options,
    ) as run:
        return by_partition(run.read_output("sessions"))


def hand_over(logs, folder, **options) -> None:
    """Replay three days, go live with the fourth, and compare."""
    with replay(
        topology, {access: logs / "first.log"}, application_id="visits", partitions=PARTITIONS, **options
    ) as result:
        result.save(folder / "snapshot")
        first = by_partition(result.read(sessions))
    snapshot = Snapshot.open(Place(str(folder / "snapshot")))
    lay_down(snapshot, folder / "state")
    ends = snapshot.ends("access")
    rest = live(
        logs / "rest.log",
        folder / "state",
        reading={"rows_before": snapshot.rows("access")},
        begins=lambda _: [ends[number] for number in range(PARTITIONS)],
    )

    whole = live(logs / "whole.log")
    assert {number: first.get(number, []) + rest.get(number, []) for number in whole} == whole
    # The whole log, of which three days are known already, gives the same.
    lay_down(snapshot, folder / "again")
    assert live(logs / "whole.log", folder / "again") == rest


@pytest.mark.case
@pytest.mark.parametrize("slices", [None, "1d"])
def test_three_days_in_local_processes_and_the_fourth_live(logs, tmp_path, slices):
    hand_over(logs, tmp_path, executor="local", processes=1, slices=slices)


@pytest.mark.spark
def test_three_days_on_spark_and_the_fourth_live(logs, tmp_path, spark):
    hand_over(logs, tmp_path, spark=spark)
