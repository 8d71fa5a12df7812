"""The sink into Parquet files: its manifest, partitions, races of two workers, object stores, and what is refused."""

import json
import re
from datetime import timedelta

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from deltalake import DeltaTable

from streams.connect import ConnectError, ParquetManifest, ParquetSink, SinkBlock, SinkFencedError
from streams.core.errors import ConfigError, InputError
from streams.core.serdes.serdes import time_windowed
from streams.core.topic import Topic
from streams.lakes import ManifestLog
from tests.connect.test_lake_sinks import DAY_MS, TOTALS, block, written
from tests.s3 import s3_bucket


@frozen
class Visit:
    country: str | None
    pages: int


VISITS = Topic("visits", key=str, value=Visit)


def values(folder, after=None, **options):
    found = ParquetManifest(folder, "to-lake", "totals", **options).table(after)
    return list(zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True))


def test_each_record_is_a_row_in_the_folder_of_its_day_and_country(tmp_path):
    records = [("a", Visit("no", 1), 0), ("b", Visit("d/k", 2), DAY_MS), ("a", Visit(None, 3), DAY_MS)]
    written(VISITS, records, ParquetSink(tmp_path, partition_by=["day", "value.country"]))

    manifest = ParquetManifest(tmp_path, "to-lake", "visits")
    assert sorted(file.path.rpartition("/")[0] for file in manifest.files()) == [
        "day=1970-01-01/country=no",
        "day=1970-01-02/country=__HIVE_DEFAULT_PARTITION__",
        "day=1970-01-02/country=d%2Fk",
    ]
    assert sorted(row["pages"] for row in manifest.table()["value"].to_pylist()) == [1, 2, 3]
    assert sum(pq.read_metadata(tmp_path / file.path).num_rows for file in manifest.files()) == 3


def test_files_of_a_commit_that_failed_are_in_no_manifest_and_deleted(tmp_path, monkeypatch):
    sink = ParquetSink(tmp_path)
    sink.open("to-lake", TOTALS, [0])
    sink.write(block(TOTALS, 0, 1))

    def failing(*_):
        assert len(list(tmp_path.glob("*.parquet"))) == 1
        assert ParquetManifest(tmp_path, "to-lake", "totals").files() == []
        raise OSError("no answer")

    monkeypatch.setattr(ManifestLog, "_check", failing)
    with pytest.raises(OSError, match="no answer"):
        sink.commit()

    assert list(tmp_path.glob("*.parquet")) == []
    with pytest.raises(ConnectError, match="has no files"):
        values(tmp_path)


def test_a_sink_that_was_overtaken_is_fenced_whatever_the_number_of_entries(tmp_path, monkeypatch):
    """Entries are in folders of three here, so that the newest one is often in the next folder."""
    monkeypatch.setattr("streams.lakes.manifest._GROUP", 3)
    first, second = ParquetSink(tmp_path), ParquetSink(tmp_path)
    for at in range(8):
        for sink in (first, second):
            assert sink.open("to-lake", TOTALS, [0]) == ({0: at} if at else {})
            sink.write(block(TOTALS, at, at))
        first.commit()
        with pytest.raises(SinkFencedError, match=f"is {at + 1}, no longer {at or None}"):
            second.commit()
        second.abort()

    assert values(tmp_path) == [(at, at) for at in range(8)]
    assert values(tmp_path, after={0: 5}) == [(5, 5), (6, 6), (7, 7)]
    assert ParquetManifest(tmp_path, "to-lake", "totals").positions() == {0: 8}


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (2, 2)])
def test_workers_that_commit_at_once_make_no_record_twice(tmp_path, monkeypatch, sizes):
    """Both have checked the positions before either has added its entry: only readers can tell, and they do."""
    first, second = ParquetSink(tmp_path), ParquetSink(tmp_path)
    for sink, size in zip((first, second), sizes, strict=True):
        sink.open("to-lake", TOTALS, [0])
        sink.write(block(TOTALS, 0, *range(size)))
    with monkeypatch.context() as patch:
        patch.setattr(ManifestLog, "_check", lambda *_: None)
        first.commit()
        second.commit()
    at = max(sizes)

    assert first.open("to-lake", TOTALS, [0]) == {0: at}
    first.write(block(TOTALS, at, at))
    first.commit()
    assert values(tmp_path) == [(number, number) for number in range(at + 1)]
    assert values(tmp_path, after={0: 1}) == [(number, number) for number in range(1, at + 1)]


def test_an_empty_block_moves_the_position(tmp_path):
    sink = ParquetSink(tmp_path)
    sink.open("to-lake", TOTALS, [0])
    sink.write(SinkBlock(TOTALS, 0, [], [], [], [], None, 7))
    sink.commit()

    assert sink.open("to-lake", TOTALS, [0, 1]) == {0: 7}


def test_entries_of_an_earlier_version_are_refused_with_what_to_do(tmp_path):
    sink = ParquetSink(tmp_path)
    for at in range(2):
        sink.open("to-lake", TOTALS, [0])
        sink.write(block(TOTALS, at, at))
        sink.commit()
    first = min(tmp_path.glob("_manifest/to-lake/totals/00000/*/*.json"))
    files = json.loads(first.read_text())["files"]
    earlier = [{"path": path, "rows": rows} for path, rows in files.items()]
    first.write_text(json.dumps({"start": 0, "next_offset": 1, "files": earlier}))

    message = re.escape(f"{tmp_path}: has entries of an earlier version ({first.relative_to(tmp_path)}), ")
    with pytest.raises(ConfigError, match=f"ParquetSink.*: {message}.*; write to another folder"):
        sink.open("to-lake", TOTALS, [0])
    assert sink.open("to-lake", TOTALS, [1]) == {}, "which it has not written"
    for read in (ParquetManifest(tmp_path, "to-lake", "totals").files, lambda: values(tmp_path)):
        with pytest.raises(InputError, match=message):
            read()


def test_a_file_system_of_pyarrow_or_fsspec_is_written(tmp_path):
    import fsspec

    for name, system in (("arrow", fs.LocalFileSystem()), ("fsspec", fsspec.filesystem("memory"))):
        folder = str(tmp_path / name)
        sink = ParquetSink(folder, filesystem=system)
        for at in range(2):
            sink.open("to-lake", TOTALS, [0])
            sink.write(block(TOTALS, at, at))
            sink.commit()
        assert values(folder, filesystem=system) == [(0, 0), (1, 1)]


@pytest.mark.slow
def test_an_object_store_is_written():
    with s3_bucket("shop") as bucket:
        system, folder = fs.FileSystem.from_uri(f"{bucket.uri}/totals")
        first = ParquetSink(folder, filesystem=system)
        second = ParquetSink(folder, filesystem=system)
        for sink in (first, second):
            sink.open("to-lake", TOTALS, [0])
            sink.write(block(TOTALS, 0, 1, 2))
        first.commit()
        with pytest.raises(SinkFencedError):
            second.commit()
        second.close()
        assert second.open("to-lake", TOTALS, [0]) == {0: 2}
        assert values(folder, filesystem=system) == [(0, 1), (1, 2)]
        assert len(system.get_file_info(fs.FileSelector(folder))) == 2


def test_what_does_not_fit_is_refused_with_its_place(tmp_path):
    with pytest.raises(ConfigError, match="no file system is known for it"):
        ParquetSink("nowhere://bucket/x")
    with pytest.raises(ConfigError, match="filesystem is one of pyarrow or fsspec, not 's3'"):
        ParquetSink("x", filesystem="s3")
    DeltaTable.create(str(tmp_path / "table"), pa.schema({"a": pa.int64()}))
    with pytest.raises(ConfigError, match=re.escape("choose a folder outside of it")):
        ParquetSink(tmp_path / "table" / "x")
    windowed = Topic("visits", key=time_windowed(str, timedelta(seconds=1)), value=Visit)
    with pytest.raises(ConfigError, match="partition_by 'value': has type struct"):
        written(windowed, [], ParquetSink(tmp_path / "x", partition_by="value"))
    with pytest.raises(FileExistsError):
        (tmp_path / "file").touch()
        written(TOTALS, [("a", 1, 0)], ParquetSink(tmp_path / "file"))
