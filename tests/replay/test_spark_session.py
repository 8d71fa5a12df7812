"""Sessions of Spark: given, made and ended; what they listen on; what is said if there can be none."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from streams.core.errors import ConfigError
from streams.replay import ReplayError, replay
from streams.replay.spark.executor import SparkExecutor
from streams.replay.spark.sessions import (
    SessionLease,
    is_connect,
    is_local_master,
    master_of,
    require_java,
    start_session,
    ui_url,
)
from streams.replay.spark.tasks import build_digest, check_build, write_package
from streams.replay.storage.places import Place


@pytest.mark.spark
def test_session_that_is_given_stays_open(any_spark: Any, tmp_path: Path) -> None:
    with closing(SparkExecutor.of(any_spark, None, Place(str(tmp_path)))) as executor:
        assert executor.session is any_spark
        assert executor.ui_url is None

    assert any_spark.range(3).count() == 3


@pytest.mark.spark
def test_active_session_is_used_and_stays_open(spark: Any) -> None:
    lease = SessionLease.of(None, None)
    other = SessionLease.of(None, "local[4,3]")
    assert lease.session is spark
    assert other.session is spark

    lease.close()
    other.close()

    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_session_of_another_thread_is_used_and_stays_open(spark: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        lease = pool.submit(SessionLease.of, None, None).result()
        pool.submit(lease.close).result()

    assert lease.session is spark
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_another_master_than_the_active_one_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match=r"master 'local\[1\]': this process has a Spark session on 'local\[4,3\]'"):
        SessionLease.of(None, "local[1]")
    with pytest.raises(ConfigError, match="a Spark session is given, and so is master"):
        SessionLease.of(spark, "local[1]")


@pytest.mark.spark
def test_both_kinds_of_session_tell_what_they_are(spark: Any, connect: Any) -> None:
    assert not is_connect(spark)
    assert is_connect(connect)
    assert master_of(spark) == master_of(connect) == "local[4,3]"
    assert ui_url(connect) is None
    assert is_local_master("local")
    assert is_local_master("local[*]")
    assert not is_local_master("spark://host:7077")
    assert not is_local_master("")


@pytest.mark.spark
def test_settings_of_a_session_that_is_there_are_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match="a Spark session is given, and so is conf"):
        SessionLease.of(spark, None, conf={"spark.executor.memory": "1g"})
    with pytest.raises(ConfigError, match=r"conf spark.executor.memory: this process has a Spark session already"):
        SessionLease.of(None, None, conf={"spark.executor.memory": "1g"})


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at Linux's own table of sockets")
def test_session_of_this_machine_listens_on_loopback_only(spark: Any) -> None:
    """Driver, block manager, Connect server, gateway and Python workers."""
    spark.range(8).mapInArrow(lambda batches: batches, "id long").count()
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    addresses = set(_listening({jvm, os.getpid(), *_children(jvm)}))

    assert len(addresses) >= 3
    assert {address for address, _ in addresses} == {"127.0.0.1"}


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found = ""
        # Threads of Java end at any time.
        with suppress(OSError):
            found = task.read_text()
        for child in map(int, found.split()):
            yield child
            yield from _children(child)


def _listening(pids: set[int]) -> Iterator[tuple[str, int]]:
    """Yield (address, port) of the sockets that processes listen on."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            target = ""
            # What it names may be closed by now.
            with suppress(OSError):
                target = os.readlink(link)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                # The last four bytes are those of IPv4, in the machine's order.
                parts = bytes.fromhex(host[-8:])
                mapped = len(host) == 8 or host[:24] == "0000000000000000FFFF0000"
                address = ".".join(map(str, reversed(parts))) if mapped else host
                yield address, int(port, 16)


# --- what is missing ----------------------------------------------------------------------


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(ConfigError, match=r"needs PySpark .*pip install .*\[spark\]', or give executor='local'"):
        SparkExecutor.of(None, None, Place(str(tmp_path)))


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs Java 17 or later: there is none on the PATH; install it"):
        require_java({"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="JAVA_HOME is '/nowhere', which has none"):
        require_java({"PATH": os.environ["PATH"], "JAVA_HOME": "/nowhere"})
    require_java(os.environ)


def test_connect_server_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ReplayError, match=r"Spark Connect at 'sc://127.0.0.1:1' cannot be reached: .*refused"):
        start_session("sc://127.0.0.1:1")


def test_mistake_in_the_replay_is_said_before_spark_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="executor 'flink': give 'spark' or 'local'"):
        replay(lambda builder: None, {}, executor="flink")  # type: ignore[arg-type]


# --- code on other machines ---------------------------------------------------------------


@pytest.mark.slow
def test_package_that_is_shipped_is_the_same_build(tmp_path: Path) -> None:
    """Its digest is that of the folder, computed by what is imported from the zip."""
    package = write_package(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r}); import streams.replay.spark.tasks as found; "
        "print(found.__file__); print(found.build_digest()); "
        # Names that are loaded when they are used.
        "import streams, streams.files; streams.Streams, streams.files.open_input"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)

    place, digest = run.stdout.split()
    assert place.startswith(str(package))
    assert digest == build_digest()


def test_another_build_on_the_workers_is_refused() -> None:
    check_build("aa", "aa")
    with pytest.raises(
        ReplayError, match=r"workers of Spark have another build of streams \(bb\) than the driver \(aa\)"
    ):
        check_build("aa", "bb")
