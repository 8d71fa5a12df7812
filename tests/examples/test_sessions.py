"""The sessions example against sessions computed in plain Python: sort a client's times, cut at the gaps."""

import gzip
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pytest

GAP_MS = 30 * 60_000


def lines_of(path: Path) -> list[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        return [line.rstrip("\n") for line in stream]


def time_ms(line: str) -> int:
    text = line.split("[", 1)[1].split("]", 1)[0]
    return int(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()) * 1000


def sessions_of(lines: list[str]) -> dict[tuple[str, int, int], int]:
    """Return (client, first, last) of each session and how many requests it has; a gap may be just as long."""
    times = defaultdict(list)
    for line in lines:
        times[line.split()[0]].append(time_ms(line))
    sessions = {}
    for client, seen in times.items():
        seen.sort()
        first, count = seen[0], 0
        for time, following in zip(seen, [*seen[1:], None], strict=True):
            count += 1
            if following is None or following - time > GAP_MS:
                sessions[client, first, time] = count
                first, count = following, 0
    return sessions


def test_oracle_joins_what_lies_just_a_gap_apart_and_no_further():
    line = 'a - - [01/Jan/2026:{} +0000] "GET / HTTP/1.1" 200 1'
    start = time_ms(line.format("10:00:00"))

    just = sessions_of([line.format("10:30:00"), line.format("10:00:00")])
    over = sessions_of([line.format("10:30:01"), line.format("10:00:00")])

    assert just == {("a", start, start + GAP_MS): 2}
    assert over == {("a", start, start): 1, ("a", start + GAP_MS + 1000, start + GAP_MS + 1000): 1}


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 4, 7])
def test_sessions_equal_those_of_the_sorted_log(access_log, partitions, run_stream, table_of):
    """Half of the lines are older than the line before them; none of them is late for its session."""
    lines = lines_of(access_log)

    rows = run_stream("02_sessions.py", {"access": access_log}, ["sessions"], partitions=partitions)["sessions"]

    found = table_of(rows)
    assert found == sessions_of(lines)
    assert sum(found.values()) == len(lines)
    assert {row["partition"] for row in rows} == set(range(partitions))


def test_a_client_stays_in_one_partition_and_updates_follow_the_log(access_log, run_stream):
    """The updates of one client come in the order of its lines: each ends where a new count was written."""
    rows = run_stream("02_sessions.py", {"access": access_log}, ["sessions"], partitions=4)["sessions"]

    partitions = defaultdict(set)
    for row in rows:
        partitions[row["key"]["key"]].add(row["partition"])
    assert all(len(where) == 1 for where in partitions.values())
    written = [row for row in rows if row["value"] is not None]
    assert len(written) == len(lines_of(access_log)), "each line writes one session, each other record deletes one"
    assert all(row["timestamp"] == row["key"]["end"] for row in written)


@pytest.mark.slow
def test_sessions_do_not_depend_on_how_much_is_polled_at_once(access_log, run_stream):
    """The same records in the same order, not merely the same table."""
    runs = [
        run_stream(
            "02_sessions.py",
            {"access": access_log},
            ["sessions"],
            partitions=4,
            options=["--set", f"max_poll_records={size}"],
        )
        for size in (10, 10_000)
    ]

    assert runs[0] == runs[1]


SCRIPT = """
import runpy
from streams import StreamsBuilder, Topic

access = runpy.run_path({path!r})["access"]
copy = Topic("copy", key=str, value=str)

def topology(builder: StreamsBuilder) -> None:
    builder.stream(access).to(copy)
"""


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 4, 7])
def test_the_log_itself_lies_in_all_partitions(access_log, partitions, run_stream, tmp_path):
    example = Path(__file__).resolve().parents[2] / "topology_examples" / "02_sessions.py"
    script = tmp_path / "copy_topology.py"
    script.write_text(SCRIPT.format(path=str(example)))

    rows = run_stream(script, {"access": access_log}, ["copy"], partitions=partitions)["copy"]

    assert sorted(row["value"] for row in rows) == sorted(lines_of(access_log))
    assert all(row["key"] == row["value"].split()[0] for row in rows)
    assert all(row["timestamp"] == time_ms(row["value"]) for row in rows)
    assert {row["partition"] for row in rows} == set(range(partitions))


@pytest.mark.slow
def test_sessions_do_not_depend_on_the_number_of_threads(access_log, run_stream):
    """Several times, for threads meet differently each time."""
    options = {"partitions": 4}
    alone = run_stream("02_sessions.py", {"access": access_log}, ["sessions"], **options)

    for _ in range(3):
        several = run_stream(
            "02_sessions.py", {"access": access_log}, ["sessions"], **options, options=["--set", "num_stream_threads=3"]
        )
        assert several == alone
