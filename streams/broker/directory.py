"""The data directory of a broker: lock, cluster ID and login secret."""

import fcntl
import os
import re
import uuid
from pathlib import Path

from streams.broker.logs.files import FILE_MODE, write_atomically
from streams.core.errors import ConfigError, StateLockedError
from streams.core.folders import written_folder
from streams.protocol.uuids import uuid_text

#: Lock file: the process that has locked it owns the data directory.
LOCK_FILE = "broker.lock"
#: File with the cluster id.
CLUSTER_FILE = "cluster.id"
#: File with the secret from which the salts of unknown users are derived.
SECRET_FILE = "login.secret"


def directory_of(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the path of a data directory, or None if all data is kept in memory.

    Raises:
        ConfigError: the path is empty text, which would be the current folder.
    """
    if data_dir == "":
        raise ConfigError("data_dir='': name a folder, such as '.', or leave it out to keep all data in memory")
    return None if data_dir is None else Path(data_dir)


def cluster_id(directory: Path | None) -> str:
    """Return the cluster ID of a data directory in Kafka's format; the ID is created on first use."""
    path = None if directory is None else directory / CLUSTER_FILE
    if path is not None and path.exists() and (stored := path.read_bytes().strip()):
        if re.fullmatch(rb"[A-Za-z0-9._-]{1,64}", stored):
            return stored.decode()
        raise ConfigError(
            f"{path} holds {stored[:40]!r}, which is not a cluster id; restore it, or delete it: the broker then "
            "gets a new one"
        )
    name = uuid_text(uuid.uuid4().bytes)
    if path is not None:
        write_atomically(path, f"{name}\n".encode(), is_durable=False)
    return name


def login_secret(directory: Path | None, size: int) -> bytes:
    """Return the random secret for login salts; the secret is created on first use."""
    path = None if directory is None else directory / SECRET_FILE
    if path is not None and path.exists() and len(stored := path.read_bytes()) >= size:
        return stored[:size]
    secret = os.urandom(size)
    if path is not None:
        write_atomically(path, secret, is_durable=False)
    return secret


def locked(directory: Path) -> int:
    """Lock a data directory, and return the file descriptor of the lock.

    The directory is unlocked when the descriptor is closed or the process ends.

    Raises:
        ConfigError: the directory cannot be created or written.
        StateLockedError: another broker uses it.
    """
    with written_folder(directory, "data directory"):
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StateLockedError(
            f"data directory {directory} is in use by another broker, in this process or another one: "
            "close that one or choose another directory"
        ) from error
    return descriptor
