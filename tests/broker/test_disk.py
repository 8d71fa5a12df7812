"""A real disk that fills up, real processes that are killed, real bytes that are damaged.

What needs a limit or a killing runs in a child process: the limit on the size of files
(RLIMIT_FSIZE) is what a full disk is, a write that the system refuses, part of it perhaps done.
"""

import errno
import json
import os
import re
import signal
import subprocess
from random import Random

import pytest

from streams.broker import EmbeddedBroker
from streams.broker.logs.file import FileStorage
from streams.broker.logs.files import OpenFiles
from streams.broker.refusals import error_of
from streams.clients import Admin, Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from tests import programs
from tests.waiting import until

WORDS = TopicPartition("words", 0)


def one(value):
    return Block([b"k"], [value], [0])


def values(storage):
    return [value for part in storage.read(storage.start_offset, 1_000_000) for value in part.values]


def run(program, *arguments):
    """Run a program in a child process and return the JSON that it prints."""
    done = programs.run(["-c", program, *map(str, arguments)], check=True)
    return json.loads(done.stdout)


_LIMIT = """
import json, resource, signal, sys

def limit(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def unlimit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""

_FILL = (
    _LIMIT
    + """
from pathlib import Path
from streams.broker.logs.file import FileStorage
from streams.core.blocks.records import Block

storage = FileStorage(Path(sys.argv[1]), fsync=sys.argv[3], cache_bytes=0)
limit(int(sys.argv[2]))
kept, refused = [], ""
for number in range(1000):
    try:
        storage.append(Block([None], [b"%04d" % number * 20], [0]))
        kept.append(number)
    except OSError as error:
        refused = type(error).__name__ + ": " + str(error)
        break
size = Path(sys.argv[1], "00000000000000000000.log").stat().st_size
read = [int(value[:4]) for block in storage.read(0, 1000) for value in block.values]
unlimit()
base = storage.append(Block([None], [b"after" * 20], [0]))
storage.close()
print(json.dumps([kept, refused, size, read, base]))
"""
)


@pytest.mark.case(4)
@pytest.mark.parametrize("fsync", ["never", "commit", "always"])
@pytest.mark.parametrize("limit", [1_000, 1_001, 1_060, 5_000])
def test_a_full_disk_refuses_the_append_and_nothing_of_it_is_left(tmp_path, limit, fsync):
    kept, refused, size, read, base = run(_FILL, tmp_path, limit, fsync)

    assert "File too large" in refused
    assert 0 < len(kept) < 1000
    assert read == kept
    assert size % len(kept) == 0, "whole batches only"
    assert base == len(kept)
    storage = FileStorage(tmp_path)
    assert [value[:4] for value in values(storage)] == [b"%04d" % number for number in kept] + [b"afte"]


_BROKER = (
    _LIMIT
    + """
from streams.broker import EmbeddedBroker
from streams.clients import Admin, Admin, Consumer, Producer
from streams.core.errors import BrokerError
from streams.core.blocks.records import TopicPartition
from streams.protocol.messages import TopicSpec

broker = EmbeddedBroker(sys.argv[1])
broker.create_topic("words", 1)
producer = Producer(broker)
producer.send("words", b"first").result()
limit(4_000)
acknowledged, errors = 1, []
while not errors:
    try:
        producer.send("words", b"x" * 500).result()
        acknowledged += 1
    except BrokerError as error:
        errors.append([int(error.code), str(error)])
try:
    with Admin(broker) as admin:
        admin.create_topics([TopicSpec("t" * 200, 1) for _ in range(1)])
        for number in range(100):
            admin.create_topics([TopicSpec("t" * 200 + str(number), 1)])
except BrokerError as error:
    errors.append([int(error.code), str(error)])
topics = len(broker.topics())
end = broker.end_offset(TopicPartition("words", 0))
unlimit()
try:
    producer.flush()
except BrokerError:
    pass
after = producer.send("words", b"last").result().offset
broker.close()
print(json.dumps([acknowledged, errors, topics, end, after]))
"""
)


def test_a_broker_on_a_full_disk_names_the_error_and_goes_on_when_there_is_room(tmp_path):
    """Records, and the list of topics, which is replaced as a whole or stays."""
    acknowledged, errors, topics, end, after = run(_BROKER, tmp_path)

    (append_code, append_text), (create_code, create_text) = errors
    assert (append_code, create_code) == (56, 56)
    assert "words-0" in append_text
    assert "STORAGE_ERROR" in create_text
    assert end == after == acknowledged
    with EmbeddedBroker(tmp_path) as broker:
        read = [value for block in broker.read(WORDS, 0) for value in block.values]
        assert read == [b"first", *[b"x" * 500] * (acknowledged - 1), b"last"]
        assert len(broker.topics()) == topics


_WRITER = """
import sys
from pathlib import Path
from streams.broker.logs.file import FileStorage
from streams.core.blocks.records import Block

storage = FileStorage(Path(sys.argv[1]), segment_bytes=20_000, fsync=sys.argv[2])
number = storage.end_offset
print(number, flush=True)
while True:
    size = 1 + number % 7
    storage.append(Block([None] * size, [b"%d" % n * 50 for n in range(number, number + size)], [number] * size))
    number += size
    if number % 5 == 0:
        storage.flush()
    if number % 400 < 7:
        storage.truncate_before(number - 1500)
    print(number, flush=True)
"""


@pytest.mark.case
@pytest.mark.parametrize("fsync", ["never", "commit", "always"])
def test_a_process_killed_again_and_again_loses_nothing_acknowledged(tmp_path, fsync):
    """Each number is printed after its append has returned; the killing comes wherever it comes."""
    rng = Random(fsync)
    acknowledged = 0
    for _ in range(4):
        process = programs.start(["-c", _WRITER, str(tmp_path), fsync], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert int(process.stdout.readline()) >= acknowledged
        for _ in range(rng.randrange(1, 600)):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        # The last line may be cut short by the killing.
        acknowledged = max([acknowledged, *map(int, lines[:-1])])

        storage = FileStorage(tmp_path, segment_bytes=20_000)

        assert storage.end_offset >= acknowledged
        assert storage.start_offset <= max(0, storage.end_offset - 1000)
        offsets = range(storage.start_offset, storage.end_offset)
        assert values(storage) == [b"%d" % number * 50 for number in offsets]
        storage.close()
        acknowledged = storage.end_offset


class Unsyncable(OpenFiles):
    """Files of a disk that fails to make them durable."""

    is_broken = False

    def sync(self, path):
        if self.is_broken:
            raise OSError(5, "Input/output error")
        super().sync(path)


def test_a_failed_fsync_takes_the_write_back(tmp_path):
    files = Unsyncable()
    storage = FileStorage(tmp_path, fsync="always", files=files)
    storage.append(one(b"0"))

    files.is_broken = True
    with pytest.raises(OSError, match="Input/output"):
        storage.append(one(b"lost"))
    files.is_broken = False

    assert storage.append(one(b"1")) == 1
    assert values(storage) == [b"0", b"1"]
    storage.close()
    assert values(FileStorage(tmp_path)) == [b"0", b"1"]


class Counting(OpenFiles):
    """Files that count how often they are forced to the disk."""

    count = 0

    def sync(self, path):
        self.count += 1
        super().sync(path)


@pytest.mark.parametrize(("policy", "counts"), [("never", (0, 0)), ("commit", (0, 1)), ("always", (2, 2))])
def test_the_fsync_policy_decides_when_the_disk_is_asked(tmp_path, policy, counts):
    files = Counting()
    storage = FileStorage(tmp_path, fsync=policy, files=files)
    storage.append(one(b"a"))
    storage.append(one(b"b"))
    before_flush = files.count
    storage.flush()

    assert (before_flush, files.count) == counts


def test_what_a_broker_keeps_is_its_owners_alone(tmp_path):
    """Records, offsets, and what logins are checked by; whatever the umask is."""
    before = os.umask(0)
    try:
        with EmbeddedBroker(tmp_path / "data") as broker, broker.serve("127.0.0.1:0", users={"alice": "x"}):
            broker.create_topic("words")
            broker.append(TopicPartition("words", 0), Block([None], [b"a"], [1]))
            broker.delete_records(TopicPartition("words", 0), 1)
    finally:
        os.umask(before)

    folder = tmp_path / "data"
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"topics.json", "broker.lock", "cluster.id", "login.secret"} < {path.name for path in files}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (folder / "logs").iterdir()} == {0o700}


def test_a_full_disk_is_in_the_log_of_the_broker_once_a_minute(tmp_path, caplog, monkeypatch):
    """The client is told to see the log and the disk; the message has the path, the room and what to do."""
    clock = VirtualClock(0)
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.create_topic("words", partitions=2)

        def full(self, block):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(FileStorage, "append", full)
        reason = r"disk full: .*words-0 \([\d,]+ bytes are free, 1 are needed\): make room"
        # The end of the producer tells the error of the last delivery too.
        with pytest.raises(BrokerError), Producer(broker, linger_ms=0, enable_idempotence=False) as producer:
            for pause_ms in (0, 0, 60_000, 0):
                with pytest.raises(BrokerError, match=reason):
                    producer.send("words", b"v", partition=0).result()
                clock.advance(pause_ms)

            monkeypatch.undo()
            for partition in (1, 0):
                producer.send("words", b"v", partition=partition).result()

    lines = [record.message for record in caplog.records if record.name.startswith("streams.broker")]
    assert [line.rpartition("intact")[2] for line in lines] == [
        "",
        " (2 times within a minute)",
        "the storage is written again, after 60 s",
    ]


def test_each_record_that_is_given_up_says_that_the_disk_was_full(tmp_path, monkeypatch):
    """Also those of the batches behind the one that was refused: to the broker these are out of order."""

    def full(self, block):
        raise OSError(errno.ENOSPC, "No space left on device")

    clock = VirtualClock(0)
    with EmbeddedBroker(tmp_path) as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("words")
        producer = Producer(server.bootstrap_servers, batch_size=1, linger_ms=0, clock=clock, background_sender=False)

        def turn():
            producer.poll(10)
            clock.advance(1)

        written = producer.send("words", b"v", partition=0)
        until(written.done, turn)
        monkeypatch.setattr(FileStorage, "append", full)
        deliveries = [producer.send("words", b"v", partition=0) for _ in range(4)]
        # Not while a response is awaited, which would be late then.
        until(lambda: producer.storage_failures and not producer._sender.in_flight, turn)
        clock.advance(200_000)
        until(lambda: all(delivery.done() for delivery in deliveries), turn)

        errors = [str(delivery.exception()) for delivery in deliveries]
        assert all("not sent in time; produce to words-0: STORAGE_ERROR" in error for error in errors), errors
        with pytest.raises(BrokerError):
            producer.close()


@pytest.mark.parametrize(("is_private", "count"), [(True, 0), (False, 1)])
def test_a_group_that_cannot_be_written_is_in_that_log_too(tmp_path, caplog, monkeypatch, is_private, count):
    """The broker of one process leaves it to its clients, whose error is the one line that the user sees."""
    with EmbeddedBroker(tmp_path, clock=VirtualClock(0), is_private=is_private) as broker:
        broker.create_topic("words")

        def full(self, block):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(FileStorage, "append", full)
        for _ in range(2):
            with pytest.raises(BrokerError, match=r"disk full"):
                Admin(broker).alter_group_configs("readers", {"consumer.session.timeout.ms": "50000"})

    assert sum("writing __consumer_offsets failed" in record.message for record in caplog.records) == count


def test_a_topic_that_finds_no_room_is_refused_with_what_to_do(tmp_path):
    file = tmp_path / "topics.json"
    code, text = error_of(OSError(errno.ENOSPC, "No space left on device", str(file)))

    assert code is ErrorCode.STORAGE_ERROR
    assert re.fullmatch(
        rf"the storage failed: disk full: {re.escape(str(file))} \([\d,]+ bytes are free\): make room .*", text
    )
