"""The sources of files: lines of a file that grows and is rotated, and files that appear in a folder."""

import gzip
import json
import logging
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams import Csv
from streams.broker import EmbeddedBroker
from streams.connect import ConnectError, FolderSource, GrowingFileSource, SourceWorker
from streams.core.errors import ConfigError, InputError
from streams.core.topic import Topic
from tests.connect.topics import last_positions, records_of
from tests.waiting import until


@frozen
class Order:
    customer: str
    cents: int


ORDERS = Topic("orders", key=str, value=Order, key_from=lambda order: order.customer)
TEXTS = Topic("texts", value=str)


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as made:
        made.create_topic("orders", 1)
        made.create_topic("texts", 1)
        yield made


@pytest.fixture
def log_file(tmp_path):
    return tmp_path / "app.log"


def append(path, *lines):
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def put(path, *lines):
    """Write a file beside a source that reads every file at once: it must not see the empty one."""
    unfinished = path.with_name(f"{path.name}.tmp")
    append(unfinished, *lines)
    unfinished.rename(path)


def growing(path, **options):
    return GrowingFileSource(str(path), interval_ms=1, **options)


def folder_source(path, **options):
    return FolderSource(str(path), interval_ms=1, settle_ms=0, **options)


def worker(broker, source, topic=TEXTS):
    return SourceWorker(broker, topic, source, name="in", poll_ms=5)


def texts(broker):
    return [record.value for record in records_of(broker, TEXTS)]


def cents(broker):
    return [record.value.cents for record in records_of(broker, ORDERS)]


@contextmanager
def reading(broker, source, topic=TEXTS):
    """A worker, and a function that waits until the topic has as many records."""
    with worker(broker, source, topic) as running:
        yield lambda count: until(
            lambda: len(records_of(broker, topic)) >= count or not running.is_running, seen=lambda: running.progress
        )


def fails(broker, source, error, match, topic=TEXTS):
    with pytest.raises(error, match=match):
        worker(broker, source, topic).run()


# --- a file that grows ------------------------------------------------------------------


def test_lines_are_read_once_as_they_are_written_and_an_incomplete_one_waits(broker, log_file):
    append(log_file, "a", "", "b")
    with log_file.open("a") as file:
        file.write("half")
    with reading(broker, growing(log_file)) as has:
        has(3)
        append(log_file, " and half", "c")
        has(5)
    append(log_file, "d")
    with reading(broker, growing(log_file)) as has:
        has(6)

    assert texts(broker) == ["a", "", "b", "half and half", "c", "d"]
    position = last_positions(broker, "in")[str(log_file)]
    assert (position["offset"], position["line"]) == (log_file.stat().st_size, 7)


@pytest.mark.slow
def test_a_file_is_waited_for_and_its_folder_is_not(broker, log_file, caplog):
    with caplog.at_level(logging.WARNING), reading(broker, growing(log_file)) as has:
        until(lambda: "there is no such file yet in" in caplog.text)
        append(log_file, "a")
        has(1)
    assert texts(broker) == ["a"]
    fails(broker, growing(log_file.parent / "lgo" / "app.log"), ConfigError, "its folder .* does not exist either")


@pytest.mark.case
@pytest.mark.parametrize("is_away", [False, True], ids=["running", "away"])
@pytest.mark.parametrize("way", ["renamed", "copied", "twice", "dated"])
def test_a_rotated_file_is_read_to_its_end_before_the_next(broker, log_file, way, is_away):
    def rotate():
        append(log_file, "3")
        if way == "copied":
            shutil.copy(log_file, log_file.with_name("app.log.1"))
            os.truncate(log_file, 0)
        elif way == "twice":
            older, newer = log_file.with_name("app.log.2"), log_file.with_name("app.log.1")
            log_file.rename(newer)
            newer.rename(older)
            append(log_file, "4")
            log_file.rename(newer)
            os.utime(older, ns=(1, newer.stat().st_mtime_ns - 1))
        else:
            target = log_file.rename(log_file.with_name("app.log.1" if way == "renamed" else "app-20260102.log"))
            append(target, "4")  # By a writer that has not gone on yet.
        append(log_file, "5", "6")

    append(log_file, "1", "2")
    expected = ["1", "2", "3", *(["4"] if way != "copied" else []), "5", "6"]
    with reading(broker, growing(log_file)) as has:
        has(2)
        if not is_away:
            rotate()
            has(len(expected))
    if is_away:
        rotate()
        with reading(broker, growing(log_file)) as has:
            has(len(expected))
    assert texts(broker) == expected


def test_the_last_line_of_a_rotated_file_needs_no_line_end(broker, log_file):
    append(log_file, "1")
    with log_file.open("a") as file:
        file.write("2")
    with reading(broker, growing(log_file)) as has:
        has(1)
        log_file.rename(log_file.with_name("app.log.1"))
        append(log_file, "3")
        has(3)
    assert texts(broker) == ["1", "2", "3"]


@pytest.mark.slow
def test_a_copy_of_the_name_with_the_same_beginning_goes_on(broker, log_file):
    append(log_file, *(f"line {number}" for number in range(1_000)))
    with reading(broker, growing(log_file)) as has:
        has(1_000)
    copy = log_file.with_name("copy")
    shutil.copy(log_file, copy)
    append(copy, "new")
    copy.replace(log_file)
    with reading(broker, growing(log_file)) as has:
        has(1_001)
    assert texts(broker)[-2:] == ["line 999", "new"]
    assert len(texts(broker)) == 1_001


@pytest.mark.slow
@pytest.mark.parametrize("change", ["truncated", "written over", "replaced"])
def test_a_rest_that_cannot_be_found_is_said(broker, log_file, change, caplog):
    append(log_file, "1", "2")
    with reading(broker, growing(log_file)) as has:
        has(2)
    if change == "truncated":
        log_file.write_text("3\n")
    elif change == "written over":
        log_file.write_text("3\n4\n5\n")
    else:
        log_file.unlink()
        append(log_file, "3")
    match = r"line 2 was read last, at byte 4, but .* lines may be missing; with lost_lines='continue'"
    fails(broker, growing(log_file), ConnectError, match)

    with worker(broker, growing(log_file, lost_lines="continue")) as running:
        until(lambda: texts(broker)[2:3] == ["3"])
        assert running.progress.lost == 1
    assert "lines may be missing; goes on with the file of the name" in caplog.text


def test_rows_of_csv_and_json_have_their_lines_in_messages(broker, tmp_path):
    csv = tmp_path / "orders.csv"
    append(csv, "customer,cents", "ann,1", '"bob', ' the builder",2')
    with reading(broker, growing(csv), ORDERS) as has:
        has(2)
        append(csv, '"carl')
        append(csv, '",3')
        has(3)
    assert [record.key for record in records_of(broker, ORDERS)] == ["ann", "bob\n the builder", "carl\n"]
    append(csv, "dora,4", "emil,many")
    fails(broker, growing(csv), InputError, r"orders.csv:8: .* leave such rows out with bad_rows='continue'", ORDERS)

    append(csv, "fred,6")
    with worker(broker, growing(csv, bad_rows="continue"), ORDERS) as running:
        until(lambda: running.progress.records == 2)
        assert running.progress.skipped == 1
    assert cents(broker) == [1, 2, 3, 4, 6]


@pytest.mark.slow
def test_a_quote_within_a_cell_of_csv_is_text_and_holds_up_no_row(broker, tmp_path):
    csv = tmp_path / "orders.csv"
    append(csv, "customer,cents", '5" pipe,1', '"a ""b""', 'c",2', '"",3', 'x"y"",4')
    with reading(broker, growing(csv), ORDERS) as has:
        has(4)

    assert [record.key for record in records_of(broker, ORDERS)] == ['5" pipe', 'a "b"\nc', "", 'x"y""']


@pytest.mark.slow
def test_line_ends_within_cells_of_csv_are_read_as_they_are(broker, tmp_path):
    csv = tmp_path / "orders.csv"
    csv.write_bytes(b'customer,cents\r\n"a\r\nb",1\r\n')
    with reading(broker, growing(csv), ORDERS) as has:
        has(1)
        with csv.open("ab") as stream:
            stream.write(b'"c\nd\r",2\r\n')
        has(2)

    assert [record.key for record in records_of(broker, ORDERS)] == ["a\r\nb", "c\nd\r"]


@pytest.mark.parametrize("heading", ["customer;cents\n", ""])
def test_csv_of_another_dialect_grows(broker, tmp_path, heading):
    csv = tmp_path / "orders.txt"
    columns = "" if heading else "&columns=customer,cents"
    file_format = f"csv?delimiter=;&quote='&encoding=latin-1{columns}"
    csv.write_bytes(f"{heading}'Zo\xeb;\n';1\n".encode("latin-1"))
    with reading(broker, growing(csv, file_format=file_format), ORDERS) as has:
        has(1)
        with csv.open("ab") as stream:
            stream.write(b"'b\n")
            stream.write(b"';2\n")
        has(2)

    assert [record.key for record in records_of(broker, ORDERS)] == ["Zo\xeb;\n", "b\n"]


def test_csv_whose_rows_are_not_seen_to_be_whole_does_not_grow(broker, tmp_path):
    path = tmp_path / "orders.csv"
    path.write_bytes(b"customer,cents\rann,1\r")
    fails(broker, growing(path), ConnectError, "lines end with carriage returns alone; FolderSource", ORDERS)
    path.write_bytes(b"sep=;\ncustomer;cents\nann;1\n")
    fails(broker, growing(path), ConnectError, "begins with a line sep=", ORDERS)
    with pytest.raises(ConfigError, match="files in utf-16 do not end with a byte of their own"):
        growing(path, file_format="csv?encoding=utf-16")


def test_files_of_a_folder_have_its_columns_and_its_dialect(broker, tmp_path):
    (tmp_path / "customer=Zo%C3%AB").mkdir()
    put(tmp_path / "customer=Zo%C3%AB" / "a.dat", "cents;x", "5;1")
    with reading(broker, folder_source(tmp_path, file_format=Csv(delimiter=";")), ORDERS) as has:
        has(1)

    assert [(record.key, record.value.cents) for record in records_of(broker, ORDERS)] == [("Zo\xeb", 5)]
    put(tmp_path / "b.csv", "cents;customer", "5;a")
    fails(broker, folder_source(tmp_path, pattern="*.csv"), InputError, f'csv:{tmp_path}.delimiter=;" .*', ORDERS)


@pytest.mark.slow
def test_a_file_that_cannot_grow_and_settings_that_are_wrong_are_refused():
    def refused(match, path="a.log", **options):
        with pytest.raises(ConfigError, match=match):
            GrowingFileSource(path, **options)

    refused("the suffix names no kind of file", "syslog")
    refused("only files of lines can grow: .*; FolderSource reads whole files", "a.parquet")
    refused("only files of lines can grow", "a.log.gz")
    refused("there is no file format 'xml': there are: csv, json", file_format="xml")
    refused("bad_rows is 'fail' or 'continue', not 'skip'", bad_rows="skip")
    refused("interval_ms is at least 1, not 0", interval_ms=0)
    with pytest.raises(ConfigError, match="interval_ms is at least 1, not -5"):
        FolderSource("x", interval_ms=-5)
    with pytest.raises(ConfigError, match="settle_ms is at least 0, not -1"):
        FolderSource("x", settle_ms=-1)
    with pytest.raises(ConfigError, match=r"FolderSource\('x'\): there is no file format 'xml'"):
        FolderSource("x", file_format="xml")
    with pytest.raises(ConfigError, match="changed_files is 'fail' or 'continue'"):
        FolderSource("x", changed_files="skip")
    assert repr(GrowingFileSource("syslog", file_format="text")) == "GrowingFileSource('syslog')"


STEPS = st.lists(st.sampled_from(["write", "half", "rename", "copy", "restart", "poll"]), max_size=30)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_is_written_and_rotated_is_read_once_and_in_order(steps, tmp_path_factory):
    """The source alone, with a restart at its position at any moment."""
    path = tmp_path_factory.mktemp("grown") / "app.log"
    written, read, position, open_line = [], [], {}, ""
    source = growing(path)
    source.open("in", TEXTS, {})

    def poll():
        for block in source.poll(0):
            read.extend(value.decode() for value in block.values)
            position[block.partition] = json.loads(json.dumps(block.position))

    def finish(text):
        nonlocal open_line
        with path.open("a") as file:
            file.write(f"{text}\n")
        written.append(open_line + text)
        open_line = ""

    for number, step in enumerate(steps):
        if step == "write":
            finish(f"line {number}")
        elif step == "half":
            with path.open("a") as file:
                file.write(f"{number}-")
            open_line += f"{number}-"
        elif step == "poll":
            poll()
        elif step == "restart":
            source.close()
            source = growing(path)
            source.open("in", TEXTS, position)
        elif path.exists() and path.stat().st_size:
            finish(f"end {number}")
            poll()  # What was rotated before the first look is not read.
            for old in sorted(path.parent.glob("app.log.*"), key=lambda it: -int(it.suffix[1:])):
                old.rename(path.with_name(f"app.log.{int(old.suffix[1:]) + 1}"))
            if step == "rename":
                path.rename(path.with_name("app.log.1"))
            else:
                shutil.copy(path, path.with_name("app.log.1"))
                os.truncate(path, 0)
            # Rotations are further apart than the times of this file system.
            os.utime(path.with_name("app.log.1"), ns=(number, number))
            finish(f"begin {number}")
    finish("last")
    until(lambda: read[-1:] == written[-1:], turn=poll, seen=lambda: (read, written))

    source.close()
    assert read == written


# --- a folder ---------------------------------------------------------------------------


def test_each_file_of_a_folder_is_read_once_in_the_order_of_times_and_names(broker, tmp_path):
    drop = tmp_path / "drop"
    (drop / "sub").mkdir(parents=True)
    with gzip.open(drop / "sub" / "c.jsonl.gz", "wt") as file:
        file.write('{"customer": "ann", "cents": 1}\n')
    pq.write_table(pa.table({"customer": ["bob", "carl"], "cents": [2, 3]}), drop / "b.parquet")
    append(drop / "a.csv", "customer,cents", "dora,4")
    (drop / "empty.jsonl").touch()
    for name, time in (("sub/c.jsonl.gz", 1), ("b.parquet", 2), ("a.csv", 2), ("empty.jsonl", 3)):
        os.utime(drop / name, (time, time))
    for name in ("_SUCCESS", ".hidden.jsonl", "d.jsonl.tmp", "_temporary/e.jsonl"):
        (drop / name).parent.mkdir(exist_ok=True)
        (drop / name).write_text("{")

    with reading(broker, folder_source(drop), ORDERS) as has:
        has(4)
        put(drop / "f.jsonl", '{"customer": "emil", "cents": 5}')
        has(5)
    with reading(broker, folder_source(drop), ORDERS) as has:
        put(drop / "g.jsonl", '{"customer": "fred", "cents": 6}')
        has(6)

    assert cents(broker) == [1, 4, 2, 3, 5, 6]
    assert set(last_positions(broker, "in")) == {
        *("a.csv", "b.parquet", "sub/c.jsonl.gz", "empty.jsonl", "f.jsonl", "g.jsonl")
    }


@pytest.mark.slow
def test_a_file_is_read_when_it_no_longer_changes(tmp_path):
    from streams.core.clock import SystemClock

    drop = tmp_path / "drop"
    drop.mkdir()
    append(drop / "a.txt", "1")
    source = FolderSource(str(drop), settle_ms=50, interval_ms=1)
    source.open("in", TEXTS, {})
    changed_ms = SystemClock().monotonic_ms()
    for number in range(2, 6):
        if any(len(block) for block in source.poll(0)):
            pytest.skip("the machine was away for as long as a file has to be unchanged")
        append(drop / "a.txt", str(number))
        changed_ms = SystemClock().monotonic_ms()
    found = []
    until(lambda: found, turn=lambda: found.extend(source.poll(1)))

    assert SystemClock().monotonic_ms() - changed_ms >= 50
    assert found[0].values == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.slow
def test_a_file_that_is_gone_is_forgotten_unless_nothing_is_there(tmp_path):
    drop, away = tmp_path / "drop", tmp_path / "away"
    drop.mkdir()
    append(drop / "a.txt", "1")
    source = folder_source(drop)
    source.open("in", TEXTS, {})

    def polled():
        return [(block.partition, block.position is None, block.values) for block in source.poll(0)]

    assert polled() == [("a.txt", False, [b"1"])]
    drop.rename(away)
    assert polled() == []
    drop.mkdir()
    assert polled() == []
    drop.rmdir()
    away.rename(drop)
    append(drop / "b.txt", "2")
    assert polled() == [("b.txt", False, [b"2"])]
    (drop / "a.txt").unlink()
    assert polled() == [("a.txt", True, [])]
    append(drop / "a.txt", "3")
    assert polled() == [("a.txt", False, [b"3"])]


@pytest.mark.slow
def test_a_file_that_changes_after_it_was_read_is_said(broker, tmp_path, caplog):
    drop = tmp_path / "drop"
    drop.mkdir()
    append(drop / "a.txt", "1")
    with reading(broker, folder_source(drop)) as has:
        has(1)
    append(drop / "a.txt", "2")
    match = r"a.txt has changed after it was read: it had 2 bytes, and has 4.* changed_files='continue'"
    fails(broker, folder_source(drop), ConnectError, match)

    for number in (1, 0):
        with worker(broker, folder_source(drop, changed_files="continue")) as running:
            put(drop / f"b{number}.txt", "3")
            until(lambda running=running: running.progress.records == 1)
        assert running.progress.skipped == number
    assert caplog.text.count("a.txt has changed after it was read") == 1
    assert texts(broker) == ["1", "3", "3"]


@pytest.mark.slow
def test_a_link_to_a_folder_above_does_not_bring_its_files_again(broker, tmp_path):
    drop = tmp_path / "drop"
    (drop / "inner").mkdir(parents=True)
    append(drop / "inner" / "a.txt", "1")
    (drop / "inner" / "again").symlink_to(drop)
    with reading(broker, folder_source(drop)) as has:
        has(1)
        put(drop / "b.txt", "2")
        has(2)

    assert texts(broker) == ["1", "2"]


def test_what_is_wrong_in_a_folder_is_said_with_its_place(broker, tmp_path, caplog):
    drop = tmp_path / "drop"
    fails(broker, folder_source(drop), ConfigError, "there is no such folder")
    drop.mkdir()
    append(drop / "a.jsonl", '{"customer": "ann", "cents": 1}', '{"customer": "bob"}')
    os.utime(drop / "a.jsonl", (2, 2))
    append(drop / "b.csv", "customer,cents", "carl,2")
    os.utime(drop / "b.csv", (1, 1))
    append(drop / "README.md", "hello")
    fails(broker, folder_source(drop), InputError, r"drop/a.jsonl:2: .*`cents`.* bad_rows='continue'", ORDERS)
    assert cents(broker) == [2]
    assert "README.md is left out: its suffix is none of .records.jsonl" in caplog.text
    fails(broker, folder_source(drop / "a.jsonl"), ConfigError, "is a file: give its folder")
    odd = tmp_path / "odd"
    odd.mkdir()
    Path(os.fsdecode(os.fsencode(odd) + b"/\xff.txt")).touch()
    fails(broker, folder_source(odd), ConnectError, r"the name of .*xff.txt is not UTF-8; rename the file")
    fails(broker, FolderSource("nowhere://bucket/x"), ConfigError, "no file system is known for it")

    with worker(broker, folder_source(drop, bad_rows="continue", pattern="*.jsonl"), ORDERS) as running:
        until(lambda: running.progress.records == 1)
        assert running.progress.skipped == 1
    (drop / "c.parquet").write_text("no")
    fails(broker, folder_source(drop, bad_rows="continue"), InputError, "c.parquet: row 1: not a whole Parquet", ORDERS)
    (drop / "c.parquet").unlink()
    (drop / "_delta_log").mkdir()
    (drop / "_delta_log" / "0.json").touch()
    fails(broker, folder_source(drop, bad_rows="continue"), ConfigError, "is a table of Delta Lake", ORDERS)


@pytest.mark.slow
def test_a_large_file_goes_on_within_it_after_a_restart(broker, tmp_path):
    drop = tmp_path / "drop"
    drop.mkdir()
    append(drop / "a.txt", *range(30_000))
    source = folder_source(drop)
    source.open("in", TEXTS, {})
    blocks, positions, seen = [], {}, []
    while len(seen) < 30_000:
        blocks = source.poll(0)
        positions |= {block.partition: block.position for block in blocks}
        seen += [int(value) for block in blocks for value in block.values]
        source.close()
        source = folder_source(drop)
        source.open("in", TEXTS, positions)
    assert seen == list(range(30_000))
    assert positions["a.txt"]["is_whole"]
    append(drop / "a.txt", "more")
    with pytest.raises(ConnectError, match=r"a.txt has changed after it was read"):
        source.poll(0)


@pytest.mark.slow
def test_a_bucket_is_read_as_a_folder(broker):
    fsspec = pytest.importorskip("fsspec")
    bucket = fsspec.filesystem("memory")
    bucket.pipe("/shop/in/a.jsonl", b'{"customer": "ann", "cents": 1}')
    try:
        with reading(broker, FolderSource("memory://shop/in", interval_ms=1), ORDERS) as has:
            has(1)
            bucket.pipe("/shop/in/b.csv", b"customer,cents\nbob,2\n")
            has(2)
        assert cents(broker) == [1, 2]
    finally:
        bucket.rm("/shop", recursive=True)
