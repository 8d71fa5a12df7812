"""Spark sessions: a classic or Connect session of the user, or a session that a replay starts and ends.

A session is prepared for its first call: Python and the code on the workers, loopback addresses if all
processes are on this machine, and reduced logging.
"""

import atexit
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from attrs import define

from streams.core.errors import ConfigError
from streams.core.http.address import is_loopback
from streams.core.installation import pip_install
from streams.replay.errors import ReplayError
from streams.replay.spark.tasks import write_package

#: Default master of a new session.
DEFAULT_MASTER = "local[*]"
#: First version with job tags, in classic sessions and in Connect.
_NEEDED = (3, 5)
_CONNECT_PORT = 15002
_REACH_S = 10
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


@define(eq=False)
class SessionLease:
    """One use of a Spark session; when the last use ends, the session is stopped if a replay has started it.

    An object of this class is called a lease.
    """

    session: Any
    is_own: bool
    _is_open: bool = True

    #: Number of users of each session that a replay started, by the ID of the session.
    _users: ClassVar[dict[int, int]] = {}
    _lock: ClassVar[Lock] = Lock()

    @classmethod
    def of(
        cls, spark: Any, master: str | None, *, with_ui: bool = False, conf: Mapping[str, str] | None = None
    ) -> "SessionLease":
        """Return a lease of the given session, the active session, or a new session on ``master`` with ``conf``.

        Raises:
            ConfigError: PySpark or Java is not installed, or another session is active.
            ReplayError: Spark cannot be reached or does not start.
        """
        _require_pyspark()
        if spark is not None:
            for what, value in (("master", master), ("conf", conf)):
                if value:
                    raise ConfigError(f"a Spark session is given, and so is {what} {value!r}: give one of them")
            return cls(spark, False)
        with cls._lock:
            session = _active_session(master)
            if session is not None and conf:
                raise ConfigError(
                    f"conf {', '.join(conf)}: this process has a Spark session already, whose settings stay as they "
                    "are; set them there, or stop it"
                )
            is_own = session is None or id(session) in cls._users
            if session is None:
                session = start_session(
                    master or os.environ.get("SPARK_REMOTE") or None, with_ui=with_ui, settings=conf
                )
            if is_own:
                cls._users[id(session)] = cls._users.get(id(session), 0) + 1
            return cls(session, is_own)

    def close(self) -> None:
        """End the lease; the end of the last lease stops a session that a replay has started."""
        with self._lock:
            if not self._is_open or not self.is_own:
                return
            self._is_open = False
            self._users[id(self.session)] -= 1
            if not self._users[id(self.session)]:
                del self._users[id(self.session)]
                self.session.stop()


def is_connect(session: Any) -> bool:
    """Return whether a session reaches Spark through Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def master_of(session: Any) -> str:
    """Return the master of a session, which is empty if it is not known."""
    return str(session.conf.get("spark.master", ""))


def is_local_master(master: str) -> bool:
    """Return whether sessions on a master run in one process of this machine and its Python workers.

    >>> is_local_master("local[4,3]"), is_local_master("local-cluster[2,2,1024]")
    (True, False)
    """
    return master == "local" or master.startswith("local[")


def runs_here(session: Any) -> bool:
    """Return whether the tasks of a session run on this machine, with this machine's files and packages."""
    host = session.client.host if is_connect(session) else "localhost"
    return is_local_master(master_of(session)) and is_loopback(host)


def ui_url(session: Any) -> str | None:
    """Return the address of the Spark UI, or None if there is none or the session is remote."""
    address = None if is_connect(session) else session.sparkContext.uiWebUrl
    return None if address is None else str(address)


def ship_code(session: Any) -> None:
    """Ship the project's code to the workers of a session, whose machines may have another build or none."""
    package = str(_package())
    if is_connect(session):
        session.addArtifacts(package, pyfile=True)
    else:
        session.sparkContext.addPyFile(package)


def label_jobs(session: Any, tag: str, description: str) -> None:
    """Tag the jobs that this thread starts, for cancellation, and set their name in the Spark UI."""
    if is_connect(session):
        session.addTag(tag)
        return
    context = session.sparkContext
    # These are job tags: a classic session cannot interrupt by session tag.
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    context.setJobDescription(description)


def cancel_jobs(session: Any, tag: str) -> None:
    """Cancel the jobs with a tag; their tasks are interrupted."""
    if is_connect(session):
        session.interruptTag(tag)
    else:
        session.sparkContext.cancelJobsWithTag(tag)


def require_java(environment: Mapping[str, str]) -> None:
    """Check that Java is installed.

    Raises:
        ConfigError: Java was not found.
    """
    home = environment.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH", ""))
    if program is None:
        where = f"JAVA_HOME is {home!r}, which has none" if home else "there is none on the PATH"
        raise ConfigError(
            f"executor 'spark' needs Java 17 or later: {where}; install it (on Debian: apt install "
            "openjdk-17-jre-headless), name a Spark Connect server (master 'sc://HOST:PORT'), or give "
            "executor='local' (--executor local)"
        )


def _require_server(address: str) -> None:
    """Check that a Connect server is reachable, since the client would retry for ten minutes.

    Raises:
        ReplayError: no server listens at the address.
    """
    if getproxies().keys() - {"no"}:
        return  # The server may only be reachable through the proxy.
    place = urlsplit(address)
    try:
        socket.create_connection((place.hostname or "", place.port or _CONNECT_PORT), _REACH_S).close()
    except (OSError, ValueError) as error:
        raise ReplayError(
            f"Spark Connect at {address!r} cannot be reached: {error}; is its server running there?"
        ) from None


def _require_pyspark() -> None:
    try:
        import pyspark
    except ImportError as error:
        raise ConfigError(
            f"executor 'spark' needs PySpark ({error}); install it with: {pip_install('spark')}, "
            "or give executor='local' (--executor local)"
        ) from None
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _NEEDED:
        raise ConfigError(
            f"executor 'spark' needs PySpark {_NEEDED[0]}.{_NEEDED[1]} or later, here is {pyspark.__version__}; "
            f"install it with: {pip_install('spark')}, or give executor='local' (--executor local)"
        )


def _active_session(master: str | None) -> Any:
    """Return the active session of this process, or None if there is none.

    Raises:
        ConfigError: the active session does not run on ``master``.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None and SparkContext._active_spark_context is not None:
        session = SparkSession.builder.getOrCreate()  # The session is active in another thread.
    if session is None or master is None or master_of(session) == master:
        return session
    raise ConfigError(
        f"master {master!r}: this process has a Spark session on {master_of(session)!r} already; stop it, or pass it "
        "as spark="
    )


def start_session(
    master: str | None = None, *, with_ui: bool = False, settings: Mapping[str, str] | None = None
) -> Any:
    """Start a session for replays on ``master``, which is a Connect server if it begins with ``sc://``.

    The default is the master of ``spark-submit`` if it runs the program, otherwise ``local[*]``.  Sessions on this
    machine only listen on the loopback address.  ``settings`` are Spark settings, which take precedence.

    Raises:
        ConfigError: Java is not installed.
        ReplayError: Spark cannot be reached or does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("streams replay")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    try:
        if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
            return builder.getOrCreate()
        master = master or DEFAULT_MASTER
        if master.startswith("sc://"):
            _require_server(master)
            return builder.remote(master).create()
        require_java(os.environ)
        for name, value in (_settings(master, with_ui) | dict(settings or {})).items():
            builder = builder.config(name, value)
        with _environment(master):
            return builder.master(master).getOrCreate()
    except (PySparkException, Py4JError) as error:
        lines = [line.removeprefix(": ") for line in str(error).strip().splitlines()]
        reason = next((line for line in lines if line and not line.startswith("An error occurred while")), repr(error))
        raise ReplayError(f"Spark on {master!r} does not start: {reason}") from error


def _settings(master: str, with_ui: bool) -> dict[str, str]:
    """Return the Spark settings of a session for replays."""
    settings = {
        "spark.ui.enabled": str(with_ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "spark.log.level": "ERROR",
    }
    if is_local_master(master):
        # On other machines the code arrives after the daemon has started.
        settings["spark.python.daemon.module"] = "streams.replay.spark.daemon"
    if is_local_master(master) or master.startswith("local-cluster"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """Within the ``with`` block, make Spark use this Python and the loopback address, if it runs on this machine only.

    Other machines have their own Python, so for them ``PYSPARK_PYTHON`` is not changed.
    """
    variables = {}
    if is_local_master(master) or master.startswith("local-cluster"):
        variables = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable), "SPARK_LOCAL_IP": "127.0.0.1"}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _package() -> Path:
    """Return the project's code as one zip file, which is deleted when the process exits."""
    folder = tempfile.mkdtemp(prefix="streams-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_package(Path(folder))
