"""``streams run`` on a cluster and by several workers, and the commands that look at a cluster, as typed."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker
from streams.clients.tcp import TcpCluster
from tests import programs
from tests.cli.conftest import Program
from tests.kafka.processes import Started
from tests.kafka.word_count import Counting
from tests.waiting import NEVER_MS, until

SCRIPT = """\
from streams import StreamsBuilder, Topic

lines = Topic("app-lines", key=str, value=str, partitions=3)
counts = Topic("app-counts", key=str, value=int, partitions=2)


def words(line: str) -> list[str]:
    if line.startswith("poison"):
        raise ValueError("this line is poisoned")
    return line.split()


def topology(builder: StreamsBuilder) -> None:
    words_ = builder.stream(lines).flat_map_values(words)
    words_.group_by(lambda _, word: word).count(name="counted").to_stream().to(counts)
"""
SETTINGS = [
    f"--set={setting}"
    for setting in (
        "processing_guarantee=exactly_once_v2",
        "commit_interval_ms=100",
        "session_timeout_ms=6000",
        "heartbeat_interval_ms=300",
    )
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(SCRIPT)
    return tmp_path


def started(folder: Path, *arguments: str) -> Started:
    command = [sys.executable, "-m", "streams", "run", str(folder / "app.py"), *SETTINGS, *arguments]
    return Started(command, folder / "said.log")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")


@needs_proc
@pytest.mark.slow
def test_workers_share_the_work_of_an_embedded_broker(folder: Path) -> None:
    """Three of them; one is killed and replaced, and every count is exact.  SIGTERM ends all, cleanly."""
    with started(folder, "--workers", "3", "--state-dir", str(folder / "state")) as run:
        servers = run.line_with("embedded broker at ").partition("broker at ")[2].partition(";")[0]
        with Counting(TcpCluster(servers), "app", are_there=True) as counting:
            folders = [folder / "state" / name for name in ("broker", "worker-1", "worker-2", "worker-3")]
            until(lambda: all(path.is_dir() for path in folders))
            for _ in range(10):
                counting.write(20)
                counting.read(100)
            os.kill(children(run.process.pid)[1], signal.SIGKILL)
            run.line_with("worker 2 was killed by SIGKILL; another one takes its place")
            for _ in range(10):
                counting.write(20)
                counting.read(100)
            until(lambda: counting.is_complete, counting.read)
            counting.check_exact()
        workers = children(run.process.pid)
        assert len(workers) == 3

        run.stop()

        assert not any(map(is_alive, workers))


@pytest.mark.killed
@needs_proc
@pytest.mark.parametrize("is_own", [False, True])
def test_workers_end_with_the_process_that_started_them(folder: Path, is_own: bool) -> None:
    """However it ends: they have nobody to report to.  With its own broker they would wait for that, to commit."""
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("app-lines", 3)
        broker.create_topic("app-counts", 2)
        options = ["--state-dir", str(folder / "state"), "--set", f"request_timeout_ms={NEVER_MS}"]
        if not is_own:
            options = ["--bootstrap-servers", server.bootstrap_servers]
        with started(folder, "--workers", "2", *options) as run:
            run.line_with("by 2 workers on ")
            locks = [folder / "state" / f"worker-{number}" for number in (1, 2)]
            until(lambda: len(children(run.process.pid)) == 2 and (not is_own or all(map(Path.is_dir, locks))))
            workers = children(run.process.pid)
            run.kill()
            until(lambda: not any(map(is_alive, workers)))


@needs_proc
@pytest.mark.slow
def test_worker_that_is_replaced_while_the_broker_is_away_waits_for_it(folder: Path) -> None:
    """It began when no broker could be reached, and ended the run of them all after 15 seconds."""
    with EmbeddedBroker(folder / "data") as broker:
        broker.create_topic("app-lines", 3)
        broker.create_topic("app-counts", 2)
        server = broker.serve("127.0.0.1:0")
        address = server.bootstrap_servers
        with started(folder, "--workers", "2", "--bootstrap-servers", address) as run:
            run.line_with("by 2 workers on ")
            with Counting(TcpCluster(address), "app", are_there=True) as counting:
                counting.write(20)
                until(lambda: counting.is_complete, counting.read)
            server.close()
            os.kill(children(run.process.pid)[1], signal.SIGKILL)
            run.line_with("worker 2 was killed by SIGKILL; another one takes its place")
            run.line_with("worker 2 waits for a broker: ")
            with broker.serve(address), Counting(TcpCluster(address), "app", are_there=True) as counting:
                counting.write(20)
                until(lambda: counting.is_complete, counting.read)
                assert len(children(run.process.pid)) == 2

                run.stop()


@pytest.mark.killed
def test_worker_that_fails_ends_the_run(folder: Path) -> None:
    """A record that user code fails on is the same for the next worker."""
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        with Counting(broker, "app") as counting:
            with started(folder, "--workers", "2", "--bootstrap-servers", server.bootstrap_servers) as run:
                run.line_with("by 2 workers on ")
                counting.put_line(b"poison")
                assert run.process.wait(300) == 1
                assert "this line is poisoned" in run.said
                assert "has ended with status 1: the run ends" in run.said


@pytest.mark.slow
def test_run_on_a_cluster_is_one_process_unless_more_are_asked_for(folder: Path) -> None:
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        with Counting(broker, "app") as counting:
            with started(folder, "--bootstrap-servers", server.bootstrap_servers) as run:
                run.line_with(f"app runs on {server.bootstrap_servers}; Ctrl-C or SIGTERM ends it")
                counting.write(10)
                until(lambda: counting.is_complete, counting.read)
                counting.check_exact()
                run.stop()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--workers", "2", "--input", "app-lines=a.txt"), "--workers needs a live run"),
        (("--bootstrap-servers", "h:1", "--input", "app-lines=a.txt"), "has a broker of its own"),
        (("--bootstrap-servers", "h:1", "--partitions", "2"), "streams topics create"),
        (("--bootstrap-servers", "h:1", "--from-snapshot", "s"), "streams golive"),
        (("--bootstrap-servers", "h"), "is not host:port"),
        (("--workers", "0"), "1 to 256"),
    ],
)
def test_what_does_not_go_together_is_said(folder: Path, arguments: tuple[str, ...], reason: str) -> None:
    result = programs.run(["-m", "streams", "run", str(folder / "app.py"), *arguments])

    assert (result.returncode, result.stdout) == (2, "")
    assert reason in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_missing_input_of_a_cluster_is_told_once(folder: Path) -> None:
    """Before any worker is started."""
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        with started(folder, "--workers", "3", "--bootstrap-servers", server.bootstrap_servers) as run:
            assert run.process.wait(300) == 2
            assert run.said.count("app-lines") == 1


# --- looking at a cluster -----------------------------------------------------------------


@pytest.fixture(params=["cluster", "folder"])
def where(request: pytest.FixtureRequest, streams: Program) -> Iterator[list[str]]:
    """The arguments that name a broker: one that is served, or one that lies in a folder."""
    if request.param == "folder":
        with EmbeddedBroker(streams.folder / "state" / "broker"):
            pass
        yield ["--state-dir", "state"]
        return
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        yield ["--bootstrap-servers", server.bootstrap_servers]


@pytest.mark.case
def test_topics_are_made_filled_shown_and_deleted(streams: Program, where: list[str]) -> None:
    assert streams("topics", "create", "t", "--partitions", "2", "--topic-set", "retention.ms=-1", *where).status == 0
    assert streams("topics", "list", *where).out == "t\n"
    streams.write("rows.txt", "alice\thello\nbob\tworld\n")
    produced = streams("produce", "t", "rows.txt", "--key-separator", "\\t", "--partition", "1", *where)
    assert (produced.status, produced.err) == (0, "streams: 2 records to t\n")
    assert streams("consume", "t", "--to-end", *where).out == "hello\nworld\n"
    shown = streams("consume", "t", "--from-beginning", "--max", "1", "--format", "key-value", *where)
    assert shown.out == "alice\thello\n"
    described = streams("topics", "describe", "t", *where).out
    assert "t: 2 partitions, 2 offsets" in described
    assert "partition 1: leader 0, offsets 0 to 2" in described
    assert streams("topics", "alter", "t", "retention.ms=5000", "cleanup.policy=compact,delete", *where).status == 0
    assert "retention.ms=5000" in streams("topics", "describe", "t", *where).out
    assert "retention.ms" in streams("topics", "alter", "t", "retention.ms=soon", *where).err
    assert streams("topics", "grow", "t", "--partitions", "3", *where).status == 0
    assert "t: 3 partitions" in streams("topics", "describe", "t", *where).out
    assert streams("topics", "delete", "t", *where).status == 0
    assert streams("topics", "list", *where).out == ""


@pytest.mark.case
def test_groups_are_shown_rewound_and_deleted(streams: Program, where: list[str]) -> None:
    streams("topics", "create", "t", "--partitions", "1", *where)
    streams.write("rows.txt", "1\n2\n3\n")
    streams("produce", "t", "rows.txt", *where)
    consume = ("consume", "t", "--group", "g", "--from-beginning", "--max", "2", *where)
    assert streams(*consume).out == "1\n2\n"
    assert streams("groups", "list", *where).out == "g\tconsumer\tEmpty\n"
    assert "t-0: committed 2, lag 1" in streams("groups", "describe", "g", *where).out
    assert streams("groups", "rewind", "g", "--to", "earliest", *where).out == "t-0: 0\n"
    assert streams("groups", "rewind", "g", "--shift", "1", "--topic", "t", *where).out == "t-0: 1\n"
    assert streams(*consume).out == "2\n3\n"
    assert streams("groups", "delete", "g", *where).status == 0
    assert streams("groups", "list", *where).out == ""


@pytest.mark.slow
def test_mistakes_are_said(streams: Program, where: list[str]) -> None:
    for arguments, reason in (
        (("consume", "none", "--to-end"), "'none'"),
        (("produce", "none", "rows.txt"), "rows.txt: cannot be read"),
        (("topics", "describe", "none"), "none"),
        (("groups", "describe", "none"), "no group 'none'"),
        (("groups", "rewind", "g", "--to", "yesterday"), "--to 'yesterday': give a time"),
    ):
        result = streams(*arguments, *where)
        assert (result.status, result.out) == (2, ""), arguments
        assert reason in result.err
