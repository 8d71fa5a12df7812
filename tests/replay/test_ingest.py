"""Reading files by several calls gives what reading them by one gives, and that is what a live run reads."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from streams import InputError, StreamsBuilder, Topic
from streams.core.clock import VirtualClock
from streams.files import FileSource, open_input
from streams.replay import ReplayError, replay
from streams.replay.calls.work import Application
from streams.replay.history.ingest import IngestReport, IngestWork, run_ingest
from streams.replay.history.intake import TopicFiles, read_files
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments

WHOLE = 1 << 60

keyed = Topic("rows", key=str, value=dict[str, Any], timestamp=lambda v: v["t"], key_from=lambda v: v.get("k"))
plain = Topic("rows", value=dict[str, Any], timestamp=lambda v: v["t"])
records = Topic("rows", key=str, value=str)
texts = Topic("rows", value=str, timestamp=lambda v: len(v))
cells = Topic("rows", key=str, value=dict[str, str], timestamp=lambda v: int(v["t"]), key_from=lambda v: v["k"] or None)
TOPICS = {".jsonl": keyed, ".records.jsonl": records, ".log": texts, ".csv": cells, ".parquet": keyed}

#: (offset, key, value, time, headers, origin).
Row = tuple[int, bytes | None, bytes | None, int, Any, int]


def application(topic: Topic[Any, Any], partitions: int) -> Application:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(topic).to("out")

    return Application.of(topology, {"application_id": "app"}, {topic.name: partitions, "out": 1})


class Ingested:
    """The rows of a topic's files as calls have read them, in one go or several."""

    def __init__(self, root: Path, topic: Topic[Any, Any], partitions: int, *, on_bad_row: str = "fail") -> None:
        self.root = Place(str(root))
        self.topic, self.partitions, self.on_bad_row = topic, partitions, on_bad_row
        self.files = TopicFiles(topic.name, [], [], partitions)
        self.works: list[IngestWork] = []
        #: Rows of each file.
        self.counts: list[int] = []

    def read(
        self,
        paths: Sequence[Path],
        part_bytes: int,
        run: Callable[[list[IngestWork]], list[IngestReport]] = lambda works: list(map(run_ingest, works)),
    ) -> "Ingested":
        """Read what is new: files that were added, and what was added to the last one known."""
        known, first = self.files, max(0, len(self.counts) - 1)
        paths = paths[first:]
        now = TopicFiles(
            self.topic.name,
            [str(path) for path in paths],
            [path.stat().st_size for path in paths],
            self.partitions,
            sum(self.counts[:first]),
            sum(self.counts[first:]),
            {number: extents[-1].last + 1 for number, extents in known.extents.items()},
            extents=known.extents,
        )
        steps = read_files(
            application(self.topic, self.partitions),
            [now],
            Segments(self.root),
            "inputs",
            on_bad_row=self.on_bad_row,
            part_bytes=part_bytes,
        )
        try:
            works = next(steps)
            while True:
                self.works += works
                works = steps.send(run(works))
        except StopIteration:
            self.files = now
            self.counts[first:] = now.rows
        return self

    def rows(self) -> dict[int, list[Row]]:
        """By partition."""
        reader = Segments(self.root).reader()
        result: dict[int, list[Row]] = {}
        for number, extents in sorted(self.files.extents.items()):
            for extent in extents:
                for block in reader.blocks([extent]):
                    result.setdefault(number, []).extend(
                        (*row, reader.origin(extent, row[0]) or 0) for row in block.rows()
                    )
        return result


def live(topic: Topic[Any, Any], paths: Sequence[Path], partitions: int, on_bad_row: Any = "fail") -> dict[int, Any]:
    """The same rows, as the inputs of a live run have them."""
    result: dict[int, list[Row]] = {}
    before = 0
    for path in paths:
        reader = open_input(
            topic, path, needs_time="a replay", rows_before=before, on_bad_row=on_bad_row, clock=VirtualClock(-1)
        )
        for batch in reader(partitions):
            for number, block in batch:
                lane = result.setdefault(number, [])
                lane += [(len(lane) + index, *row[1:], row[0]) for index, row in enumerate(block.rows())]
                before += len(block)
    return dict(sorted(result.items()))


def write(folder: Path, name: str, rows: Sequence[Any], *, end: str = "\n") -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        table = pa.table({"t": [row["t"] for row in rows], "k": [row.get("k") for row in rows]})
        pq.write_table(table, path, row_group_size=3)
        return path
    if ".csv" in name:
        lines = ["t,k,note", *(f'{row["t"]},{row.get("k") or ""},"a\nb"' for row in rows)]
    elif ".records.jsonl" in name:
        lines = [json.dumps(row) for row in rows]
    elif ".log" in name:
        lines = [str(row) for row in rows]
    else:
        lines = [json.dumps(row) for row in rows]
    data = (end.join(lines) + end).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def history(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Rows with keys, every third one without."""
    return [{"t": number, "k": None if number % 3 == 0 else f"k{number % 7}"} for number in range(start, start + count)]


def recorded(count: int) -> list[dict[str, Any]]:
    """Records, some without key, some with a partition or headers of their own."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        row: dict[str, Any] = {"value": f"v{number}", "timestamp": number}
        row |= {"key": f"k{number % 5}"} if number % 3 else {}
        row |= {"partition": 0} if number % 4 == 1 else {}
        row |= {"headers": [["n", str(number)], ["none", None]]} if number % 5 == 2 else {}
        rows.append(row)
    return rows


def rows_for(suffix: str, count: int) -> list[Any]:
    if suffix == ".records.jsonl":
        return recorded(count)
    return ["x" * (number % 4) for number in range(count)] if suffix == ".log" else history(count)


@pytest.mark.case(4)
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("part_bytes", [1, 40, 300, WHOLE])
@pytest.mark.parametrize("suffix", [".jsonl", ".records.jsonl", ".log", ".csv", ".parquet", ".jsonl.gz", ".csv.gz"])
def test_every_kind_of_file_gives_what_a_live_run_reads(tmp_path: Path, suffix: str, part_bytes: int, partitions: int):
    kind = suffix.removesuffix(".gz")
    topic = TOPICS[kind]
    paths = [
        write(tmp_path, f"{name}{suffix}", rows_for(kind, count)) for name, count in (("a", 11), ("b", 2), ("c", 5))
    ]

    found = Ingested(tmp_path, topic, partitions).read(paths, part_bytes)

    assert found.rows() == live(topic, paths, partitions)
    assert found.counts == [11, 2, 5]
    if part_bytes == WHOLE:
        assert len(found.works) == 1
    elif part_bytes == 1:
        assert len(found.works) >= 3


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet", ".jsonl.gz", ".parquet.gz"])
def test_files_of_other_file_systems_are_read_alike(tmp_path: Path, suffix: str):
    """Those that pyarrow opens."""
    path = write(tmp_path, f"a{suffix.removesuffix('.gz')}", history(10))
    if suffix == ".parquet.gz":
        path = tmp_path / "a.parquet.gz"
        path.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    elif suffix.endswith(".gz"):
        path = write(tmp_path, f"a{suffix}", history(10))

    def run(works: list[IngestWork]) -> list[IngestReport]:
        return [
            run_ingest(work, lambda name: FileSource(name, lambda: LocalFileSystem().open_input_file(name)))
            for work in works
        ]

    topic = TOPICS[suffix.removesuffix(".gz")]
    assert Ingested(tmp_path, topic, 2).read([path], 40, run).rows() == live(topic, [path], 2)


def test_one_large_file_is_read_by_several_calls(tmp_path: Path):
    path = write(tmp_path, "a.jsonl", history(100))

    found = Ingested(tmp_path, keyed, 4).read([path], path.stat().st_size // 4)

    assert [work.name for work in found.works] == [
        *(f"rows-rows-{number:05d}" for number in range(4)),
        *(f"input-rows-{number:05d}" for number in range(4)),
    ]
    assert found.rows() == live(keyed, [path], 4)


def test_neighbouring_small_files_are_read_by_one_call(tmp_path: Path):
    paths = [write(tmp_path, f"{number:02d}.jsonl", history(3)) for number in range(20)]

    found = Ingested(tmp_path, plain, 2).read(paths, 10 * paths[0].stat().st_size)

    assert [len(work.pieces) for work in found.works if not work.counts_only] == [10, 10]
    assert found.rows() == live(plain, paths, 2)


@st.composite
def line_files(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A kind of lines, and the contents of some files of it, with all that lines may have."""
    suffix = draw(st.sampled_from([".jsonl", ".records.jsonl", ".log"]))
    files = []
    for _ in range(draw(st.integers(1, 3))):
        rows = rows_for(suffix, draw(st.integers(0, 9)))
        lines = [(row if suffix == ".log" else json.dumps(row)).encode() for row in rows]
        for _ in range(draw(st.integers(0, 3))):
            lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from([b"", b"  ", b"\t"])))
        end = draw(st.sampled_from([b"\n", b"\r\n"]))
        data = end.join(lines) + (end if draw(st.booleans()) else b"")
        files.append((b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + data)
    return suffix, files


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(line_files(), st.integers(1, 120), st.integers(1, 4))
def test_any_cut_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, given_files: Any, part_bytes: int, count: int
):
    suffix, contents = given_files
    folder = tmp_path_factory.mktemp("cut")
    paths = []
    for number, data in enumerate(contents):
        paths.append(folder / f"{number}{suffix}")
        paths[-1].write_bytes(data)

    found = Ingested(folder, TOPICS[suffix], count).read(paths, part_bytes)

    assert found.rows() == live(TOPICS[suffix], paths, count)


@pytest.mark.world
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=4),
    st.lists(st.integers(1, 150), min_size=4, max_size=4),
    st.integers(1, 3),
    st.booleans(),
)
def test_grown_and_added_files_give_what_all_at_once_gives(
    tmp_path_factory: pytest.TempPathFactory, growth: list[int], sizes: list[int], partitions: int, adds: bool
):
    """Each time the last file has grown, or another one has come."""
    folder = tmp_path_factory.mktemp("grown")
    found = Ingested(folder, keyed, partitions)
    paths: list[Path] = []
    rows = start = 0
    for count, part_bytes in zip(growth, sizes, strict=False):
        if not paths or (adds and len(paths) < 2):
            paths.append(folder / f"{len(paths)}.jsonl")
            start = rows
        rows += count
        write(folder, paths[-1].name, history(rows - start, start))
        found.read(paths, part_bytes)

    assert found.rows() == live(keyed, paths, partitions)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl.gz"])
def test_what_a_file_that_is_not_cut_has_got_is_read_alone(tmp_path: Path, suffix: str):
    path = write(tmp_path, f"a{suffix}", history(5))
    topic = TOPICS[suffix.removesuffix(".gz")]
    found = Ingested(tmp_path, topic, 2).read([path], 1)
    write(tmp_path, f"a{suffix}", history(8))

    found.read([path], 1)

    assert found.rows() == live(topic, [path], 2)
    assert found.counts == [8]


# --- mistakes -------------------------------------------------------------------------------


def outcome(read: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize("part_bytes", [1, 60, WHOLE])
@pytest.mark.parametrize("suffix", [".jsonl", ".records.jsonl", ".csv", ".parquet"])
def test_bad_row_is_named_as_one_call_names_it(tmp_path: Path, suffix: str, part_bytes: int):
    """The first of several, by file and line; blank lines count."""
    topic = TOPICS[suffix]
    good = write(tmp_path, f"a{suffix}", rows_for(suffix, 9))
    bad = write(tmp_path, f"b{suffix}", rows_for(suffix, 9))
    if suffix == ".parquet":
        pq.write_table(pa.table({"t": [1, 2, None, None], "k": ["a"] * 4}), bad, row_group_size=2)
    elif suffix == ".csv":
        bad.write_text('t,k,note\n1,a,"x\ny"\nnever,a,b\nnor,a,b\n')
    else:
        lines = bad.read_text().splitlines()
        bad.write_text("\n".join([*lines[:4], "", "{never}", *lines[4:], "{nor}", ""]))

    message = outcome(lambda: Ingested(tmp_path, topic, 3).read([good, bad], part_bytes))

    assert message == outcome(lambda: live(topic, [good, bad], 3))
    assert (
        f"b{suffix}: row 3" in message
        if suffix == ".parquet"
        else f"b{suffix}:{4 if suffix == '.csv' else 6}: " in message
    )


def test_calls_behind_a_bad_row_do_not_go_on(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text("{never}\n" + "\n".join(json.dumps(row) for row in history(50)))
    reports: list[IngestReport] = []

    def run(works: list[IngestWork]) -> list[IngestReport]:
        reports[:] = [run_ingest(work) for work in works]
        return reports

    assert "a.jsonl:1: not JSON" in outcome(lambda: Ingested(tmp_path, keyed, 1).read([path], 300, run))
    assert len(reports) > 2
    assert all(report.failure and "not read further" in report.failure for report in reports[1:])
    assert sorted(path.name for path in (tmp_path / "inputs").rglob("*")) == []


@pytest.mark.parametrize("part_bytes", [1, 50, WHOLE])
def test_rows_that_are_let_pass_have_their_place_and_no_time(tmp_path: Path, part_bytes: int):
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": 5}\n{never}\n{"t": 6}\n\n{nor}\n{"t": 7}\n')

    found = Ingested(tmp_path, plain, 2, on_bad_row="continue").read([path], part_bytes)

    assert found.rows() == live(plain, [path], 2, "continue")
    assert [row[3] for lane in found.rows().values() for row in lane] == [5, 6, 7, -1, -1]
    extents = [extent for lane in found.files.extents.values() for extent in lane]
    assert min(extent.lowest_ms for extent in extents if extent.highest_ms >= 0) == 5


def topology(builder: StreamsBuilder) -> None:
    builder.stream(keyed).to("out")


LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "app"}


def test_failed_reading_leaves_nothing_that_counts(tmp_path: Path):
    path = write(tmp_path, "a.jsonl", history(5))
    with path.open("a") as file:
        file.write('{"t": "never"}\n')
    options = {**LOCAL, "directory": tmp_path / "replay"}

    message = outcome(lambda: replay(topology, {keyed: path}, **options))
    assert f"{path}:6: " in message
    write(tmp_path, "a.jsonl", history(6))

    with replay(topology, {keyed: path}, resume=True, **options) as result:
        assert result.records == {"out": 6}


def test_several_topics_are_read_side_by_side(tmp_path: Path):
    def both(builder: StreamsBuilder) -> None:
        builder.stream(keyed).merge(builder.stream(Topic("more", key=str, value=dict, timestamp=lambda v: v["t"]))).to(
            "out"
        )

    paths = [write(tmp_path, "a.jsonl", history(5)), write(tmp_path, "b.jsonl", history(7))]

    with replay(both, {keyed: paths[0], "more": paths[1]}, **LOCAL) as result:
        assert result.records == {"out": 12}


def test_last_line_that_was_not_whole_when_it_was_read_is_an_error(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": 1}\n{"t": 2}')
    options = {**LOCAL, "directory": tmp_path / "replay", "slices": 2}
    replay(topology, {keyed: path}, **options)

    path.write_text('{"t": 1}\n{"t": 2}\n{"t": 3}\n')
    with replay(topology, {keyed: path}, resume=True, **options) as result:
        assert result.records == {"out": 3}
    path.write_text('{"t": 1}\n{"t": 2}\n{"t": 3}\n{"t": 4}')
    replay(topology, {keyed: path}, resume=True, **options)
    path.write_text('{"t": 1}\n{"t": 2}\n{"t": 3}\n{"t": 4} \n')

    with pytest.raises(InputError, match=r"a\.jsonl: row 4 had no line end when it was read, and has grown since"):
        replay(topology, {keyed: path}, resume=True, **options)


def test_compressed_file_that_grows_while_it_is_read_is_an_error(tmp_path: Path):
    path = write(tmp_path, "a.jsonl.gz", history(5))

    def run(works: list[IngestWork]) -> list[IngestReport]:
        write(tmp_path, "a.jsonl.gz", history(500))
        return list(map(run_ingest, works))

    message = outcome(lambda: Ingested(tmp_path, keyed, 1).read([path], WHOLE, run))
    assert "a.jsonl.gz: has changed while it was read" in message


def test_what_is_written_behind_a_file_meanwhile_is_left_to_the_next_time(tmp_path: Path):
    path = write(tmp_path, "a.jsonl", history(5))

    def run(works: list[IngestWork]) -> list[IngestReport]:
        write(tmp_path, "a.jsonl", history(9))
        return list(map(run_ingest, works))

    found = Ingested(tmp_path, keyed, 2).read([path], 40, run)
    assert found.counts == [5]
    assert found.read([path], 40).rows() == live(keyed, [path], 2)


def test_file_that_has_changed_is_refused(tmp_path: Path):
    path = write(tmp_path, "a.jsonl", history(5))
    options = {**LOCAL, "directory": tmp_path / "replay", "slices": 1}
    replay(topology, {keyed: path}, **options)
    write(tmp_path, "a.jsonl", history(6, start=1))

    with pytest.raises(ReplayError, match="was read before, but has changed since"):
        replay(topology, {keyed: path}, resume=True, **options)


def test_failed_record_is_named_by_its_file_and_row(tmp_path: Path):
    """Rows of the second file, behind others that were read by another call."""

    def failing(builder: StreamsBuilder) -> None:
        builder.stream(keyed).map_values(lambda value: 1 / (value["t"] - 104)).to("out", value=float)

    paths = [write(tmp_path, "a.jsonl", history(50)), write(tmp_path, "b.jsonl", history(50, 100))]

    with pytest.raises(ReplayError, match=rf"row 5 of {paths[1]}"):
        replay(failing, {keyed: paths}, **LOCAL)
