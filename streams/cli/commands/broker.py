"""``streams broker``: run the embedded broker as a server for any Kafka client."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.lines import say
from streams.cli.mistakes import FAILED, UsageError
from streams.cli.options import (
    Commands,
    add_execute,
    add_log,
    add_settings,
    names_of,
    number_of,
    partition_count,
    texts_of,
)
from streams.cli.serving import announce
from streams.core.folders import secret_text

if TYPE_CHECKING:
    from streams.broker import ServerTls
    from streams.broker.registry import RegistryServer

LISTEN = "127.0.0.1:9092"
#: Settings that have an option of their own.
_SETTINGS = {
    "fsync": "streams.fsync",
    "maintenance_interval": "log.retention.check.interval.ms",
    "rack": "broker.rack",
    "partitions": "num.partitions",
    "no_auto_create": "auto.create.topics.enable",
}


def add_parser(commands: Commands) -> None:
    """Add ``streams broker`` and its arguments to the program."""
    parser = commands.add_parser(
        "broker",
        description="Serve a broker that speaks Kafka's protocol, until SIGINT or SIGTERM.",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=LISTEN,
        help=f"where to listen; port 0 is a free one (default {LISTEN})",
    )
    parser.add_argument("--advertise", metavar="HOST:PORT", help="address given to clients (default: where it listens)")
    parser.add_argument(
        "--registry", metavar="HOST:PORT", help="also serve a schema registry there, such as 127.0.0.1:8081"
    )
    parser.add_argument("--data", metavar="DIR", help="folder that keeps everything (default: memory)")
    parser.add_argument(
        "--fsync",
        choices=("never", "commit", "always"),
        help="when files are synced to disk: never (a power failure may lose records, a killed broker loses none), "
        "with every commit of offsets, always (default never)",
    )
    parser.add_argument(
        "--maintenance-interval",
        metavar="MS",
        type=number_of("milliseconds", 1),
        help="milliseconds between two passes of retention and compaction (default 300000)",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="do not serve: show which records of damaged logs in --data are lost; with --execute rewrite these logs "
        "without them, and keep the damaged files as .damaged",
    )
    add_execute(parser)
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate chain (PEM); enables TLS")
    parser.add_argument("--tls-key", metavar="FILE", help="its key (PEM), unless it is in the same file")
    parser.add_argument("--tls-key-password-file", metavar="FILE", help="file of the password of an encrypted key")
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="authorities (PEM) of clients, which then need a certificate that one of them has issued",
    )
    parser.add_argument(
        "--users", metavar="FILE", help="lines of NAME:PASSWORD: clients have to authenticate (SASL PLAIN, SCRAM)"
    )
    parser.add_argument("--rack", metavar="NAME", help="rack or zone that clients are told (default: none)")
    parser.add_argument(
        *names_of("--partitions"),
        metavar="N",
        type=partition_count,
        help="partition count of topics created without one (default 1)",
    )
    parser.add_argument(
        "--no-auto-create", action="store_const", const="false", help="do not create topics that clients request"
    )
    add_settings(
        parser,
        "a setting of the broker, of groups, or of topics that have none of their own, with the name that Kafka's "
        "brokers have for it, such as log.retention.ms=3600000 (may be repeated)",
    )
    add_log(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Serve the embedded broker until SIGINT or SIGTERM."""
    from streams import EmbeddedBroker
    from streams.broker.logs import descriptors
    from streams.runtime.instance import collector

    tls = _tls_of(options)
    settings = _settings_of(options)
    if options.repair:
        return _repair(options)
    if options.is_executed:
        raise UsageError("--execute needs --repair")
    # Idle clients must not exhaust the file descriptors; only a program may change the limits of its process.
    descriptors.raise_limit()
    with EmbeddedBroker(options.data, serves_damaged=True, settings=settings) as broker:
        server = broker.serve(
            options.listen,
            advertise=options.advertise,
            tls=tls,
            users=options.users,
        )
        registry = broker.serve_registry(options.registry) if options.registry else None
        # Batches in memory are many objects without reference cycles, which the garbage collector would scan.
        collector.tune()
        try:
            announce(server, f"data in {options.data}" if options.data else "in memory", has_users=bool(options.users))
            if registry is not None:
                _announce_registry(registry)
            server.wait()
        except KeyboardInterrupt:
            # SIGINT or SIGTERM is the normal end.
            say("broker stops")
        finally:
            collector.restore()
    return 0


def _settings_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of ``--set``, and those that have an option of their own.

    Raises:
        UsageError: a setting is given by both.
    """
    settings = texts_of(options)
    for option, name in _SETTINGS.items():
        if (value := getattr(options, option)) is None:
            continue
        if name in settings:
            raise UsageError(f"--set {name}={settings[name]}: --{option.replace('_', '-')} is given too; give it once")
        settings[name] = str(value)
    return settings


def _tls_of(options: argparse.Namespace) -> "ServerTls | None":
    """Return the TLS files of the listener, or None without TLS.

    Raises:
        UsageError: the certificate is missing, or the file of the password cannot be read.
    """
    from streams.broker import ServerTls

    if not options.tls_cert:
        others = ("tls_key", "tls_key_password_file", "tls_client_ca")
        if dependent := [name for name in others if getattr(options, name)]:
            raise UsageError(f"--{dependent[0].replace('_', '-')} without --tls-cert: give the certificate too")
        return None
    password = ""
    if path := options.tls_key_password_file:
        try:
            password = secret_text(path).partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--tls-key-password-file {path}: cannot be read; give a file of text") from error
    return ServerTls(options.tls_cert, options.tls_key, password, options.tls_client_ca)


def _repair(options: argparse.Namespace) -> int:
    """Print the records lost in damaged logs, and repair the logs if requested; return 1 if damage remains."""
    from streams.broker import repair_data

    if options.data is None:
        raise UsageError("--repair without --data: give the folder of the broker")
    is_trial = not options.is_executed
    count = records = 0
    for loss in repair_data(Path(options.data), is_trial=is_trial):
        print(loss)
        count = count + 1
        records = records + loss.records
    if not count:
        say(f"no log in {options.data} is damaged")
        return 0
    if is_trial:
        say(
            f"{count} damages, {records} offsets would be lost; nothing was changed. --execute rewrites the logs "
            "without them and keeps the damaged files as .damaged"
        )
        return FAILED
    say(f"{count} damages repaired, {records} offsets lost")
    return 0


def _announce_registry(registry: "RegistryServer") -> None:
    say(f"schema registry at {registry.url}")
    if not registry.is_loopback:
        say(f"anybody who reaches {registry.url} may change schemas")
