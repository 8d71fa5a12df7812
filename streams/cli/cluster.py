"""The broker that a command uses: a cluster at an address, or the embedded broker in a folder."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.cli.mistakes import UsageError
from streams.cli.options import add_config, add_settings, all_settings_of, names_of

if TYPE_CHECKING:
    from streams.broker import EmbeddedBroker
    from streams.clients.tcp import TcpCluster

#: Subfolder of ``streams run --state-dir`` with the broker's data.
BROKER = "broker"


def add_where(parser: argparse.ArgumentParser, state_dir: str = "which must not be running") -> None:
    """Add the arguments that select the broker and configure the connection."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        *names_of("--bootstrap-servers"), metavar="HOST:PORT", help="a cluster; several servers with commas"
    )
    where.add_argument("--state-dir", metavar="DIR", help=f"the embedded broker of this folder, {state_dir}")
    add_settings(parser, "a setting of the connection, such as security_protocol=sasl_ssl (may be repeated)")
    add_config(parser)
    parser.set_defaults(settle=_settle)


def _settle(options: argparse.Namespace) -> None:
    """Add the settings of the environment and of ``--config`` to the options, also the broker if none is given.

    Raises:
        UsageError: no broker is given anywhere.
        ConfigError: a setting is unknown or invalid.
    """
    options.all_settings = all_settings_of(options)
    servers = options.all_settings.pop("bootstrap_servers", "")
    folder = options.all_settings.get("state_dir", "")
    if options.bootstrap_servers or options.state_dir:
        return
    options.bootstrap_servers = servers or None
    # With both, the folder is that of an application on the cluster.
    options.state_dir = None if servers else folder or None
    if not (servers or folder):
        raise UsageError("give the broker: --bootstrap-servers HOST:PORT, or --state-dir DIR of `streams run`")


def cluster_at(servers: str, settings: dict[str, Any] | None = None) -> "TcpCluster":
    """Return the cluster at an address; ``settings`` are those of its connection.

    Raises:
        ConfigError: the address or a setting is invalid.
    """
    from streams.clients.tcp import TcpCluster
    from streams.core.settings.config import StreamsConfig

    return TcpCluster.of(StreamsConfig.of(**{**(settings or {}), "bootstrap_servers": servers}))


def broker_folder(state_dir: str) -> Path:
    """Return the folder of the embedded broker in a state directory.

    Raises:
        UsageError: the state directory has no embedded broker.
    """
    folder = Path(state_dir) / BROKER
    if not folder.is_dir():
        raise UsageError(f"--state-dir {state_dir}: has no embedded broker of `streams run`")
    return folder


@contextmanager
def opened(options: argparse.Namespace, *, makes: bool = False) -> Iterator["TcpCluster | EmbeddedBroker"]:
    """Open the broker that the arguments select; with ``makes``, a missing embedded broker is created.

    Raises:
        UsageError: the folder has no embedded broker.
        StateLockedError: the embedded broker is running in another process.
    """
    if options.bootstrap_servers:
        yield cluster_at(options.bootstrap_servers, options.all_settings)
        return
    from streams.broker import EmbeddedBroker

    folder = Path(options.state_dir) / BROKER if makes else broker_folder(options.state_dir)
    with EmbeddedBroker(folder, maintenance_interval_ms=None, auto_create_topics=False) as broker:
        yield broker


def place_of(text: str) -> int:
    """Return the place that ``--to`` names: a time in epoch milliseconds, or the start or end of a partition.

    Raises:
        InputError: the text is not "earliest", "latest" or a time.
    """
    from streams.clients import EARLIEST, LATEST
    from streams.core.event_time.time_texts import time_ms

    ends = {"earliest": EARLIEST, "latest": LATEST}
    return ends[text] if text in ends else time_ms(text, "--to")
