"""A real Postgres on a socket of its own, for tests of sinks and sources.

Its programs come from PATH or from the distribution's package ``postgresql``.  They refuse to run as root, so they run
as the user ``nobody`` there.  Durability is off: a test that needs it kills clients, not the machine.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from tests.waiting import until

_USER = "nobody"
_OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "30",
    "wal_level": "logical",
    "max_wal_senders": "5",
    "max_replication_slots": "10",
    "max_prepared_transactions": "5",
}


@frozen
class Postgres:
    """A running server; ``dsn`` is a connection string of its superuser, ``folder`` has the socket."""

    folder: Path

    @property
    def dsn(self) -> str:
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        return f"host={self.folder} port=5432 user=postgres dbname={database}"

    def url_of(self, database: str, driver: str = "postgresql+psycopg") -> str:
        """The address for SQLAlchemy."""
        return f"{driver}://postgres@/{database}?host={self.folder}&port=5432"


def program(name: str) -> str | None:
    """Return the path of a program of Postgres, the newest one, or None."""
    found = shutil.which(name)
    if found is not None:
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda it: it.parts[-3].zfill(4))
    return str(installed[-1]) if installed else None


def _as_user(command: list[str]) -> list[str]:
    """Return the command as it has to be given so that it does not run as root."""
    if os.getuid() != 0:
        return command
    return ["setpriv", f"--reuid={_USER}", "--regid=nogroup", "--clear-groups", "--", *command]


@contextmanager
def running() -> Iterator[Postgres]:
    """Run a new server, which is deleted at the end; skip the test where there is no Postgres."""
    initdb, server = program("initdb"), program("postgres")
    if initdb is None or server is None:
        pytest.skip("there is no Postgres: install the distribution's package postgresql")
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("Postgres refuses to run as root, and there is no setpriv to run it as another user")
    # The path of a socket is at most 107 bytes long, which folders of pytest can exceed.
    folder = Path(tempfile.mkdtemp(prefix="streams-pg-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if os.getuid() == 0:
            shutil.chown(folder, _USER, "nogroup")
            shutil.chown(data, _USER, "nogroup")
        made = [initdb, "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(_as_user(made), capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        command = _as_user([server, "-D", str(data), "-k", str(folder), *options])
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            postgres = Postgres(folder)
            until(lambda: process.poll() is not None or _answers(postgres), seen=(folder / "log").read_text)
            assert process.poll() is None, (folder / "log").read_text()
            yield postgres
        finally:
            # A fast shutdown: connections are closed.
            process.send_signal(signal.SIGINT)
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(postgres: Postgres) -> bool:
    import psycopg

    try:
        psycopg.connect(postgres.dsn, connect_timeout=60).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def new_database(postgres: Postgres, name: str) -> Iterator[str]:
    """Create a database, yield its connection string, and drop it."""
    import psycopg

    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield postgres.dsn_of(name)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
