"""Live runs over TCP: on a cluster, and with several workers.

Each worker runs the same command on a cluster, with its own folder; the module ``workers`` supervises them.
"""

import argparse
import logging
import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.cli.http import http_arguments, serve_if_asked
from streams.cli.lines import say
from streams.cli.options import texts_of

if TYPE_CHECKING:
    from streams.broker import EmbeddedBroker
    from streams.core.settings.config import StreamsConfig
    from streams.runtime import StateListener
    from streams.topology import Topology

log = logging.getLogger(__name__)

_LOOK_MS = 50
_RETRY_S = 0.1


def run_on_cluster(
    topology: "Topology", config: "StreamsConfig", settings: dict[str, Any], options: argparse.Namespace
) -> int:
    """Run the application on a cluster, in one or several processes, until SIGINT or SIGTERM."""
    from streams import Streams
    from streams.app import run_until_signal
    from streams.cli.workers import Workers, end_with_parent
    from streams.clients.tcp import TcpCluster
    from streams.core.clock import SystemClock
    from streams.runtime import Plans, Provisioner

    if options.workers > 1:
        # Missing topics are reported once, before the workers start.
        clock = SystemClock()
        cluster = TcpCluster.of(config)
        plans = Plans(topology, config, clock)
        provisioner = Provisioner(cluster, clock, config, topology, False)
        plans.of(plans.layout(provisioner.partition_counts(), provisioner.committed()))
        where = config.bootstrap_servers
        _announce(config, f"by {options.workers} workers on {where}")
        return Workers(_commands(where, config, options), _secrets(options)).run()

    if options.worker is not None:
        end_with_parent(is_broker=options.broker_in_parent)
        _run_worker(topology, config, settings, options)
        return 0
    streams = Streams(topology, on_state=announcing(config, f"on {config.bootstrap_servers}"), **settings)
    serve_if_asked(streams, options)
    run_until_signal(streams)
    return 0


def _run_worker(
    topology: "Topology", config: "StreamsConfig", settings: dict[str, Any], options: argparse.Namespace
) -> None:
    """Run as one of several workers until SIGINT or SIGTERM; at startup, wait while the brokers are unavailable.

    The process that starts the workers has already connected to the brokers.  If the brokers are unavailable now,
    a replaced worker must not end the whole run.

    Raises:
        StreamsError: the application failed, or no broker responded within ``task_timeout_ms``.
    """
    from streams import Streams
    from streams.clients import RequestTimeoutError
    from streams.core.clock import SystemClock
    from streams.runtime import Notifier

    stop = threading.Event()
    clock = SystemClock()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: stop.set())
    deadline_ms = clock.monotonic_ms() + config.task_timeout_ms
    while not stop.is_set():
        streams = Streams(topology, **settings)
        try:
            serve_if_asked(streams, options)
            streams.start()
        except RequestTimeoutError as error:
            streams.close()
            if clock.monotonic_ms() > deadline_ms:
                raise
            log.warning("worker %d waits for a broker: %s", options.worker, error)
            stop.wait(_RETRY_S)
            continue
        notifier = Notifier.of(streams.instance, os.environ)
        try:
            # Wait in short steps, since signals are delivered between the steps.
            while not stop.is_set() and not streams.wait(_LOOK_MS):
                notifier.look()
        finally:
            streams.close()
        return


def run_workers_here(
    topology: "Topology", broker: "EmbeddedBroker", config: "StreamsConfig", options: argparse.Namespace
) -> int:
    """Run several workers on an embedded broker, which this process serves only to them."""
    from streams.cli.workers import Workers
    from streams.core.clock import SystemClock
    from streams.runtime import Provisioner

    # The process of the broker creates the topics before the workers start.
    Provisioner(broker, SystemClock(), config, topology, True).partition_counts()
    with broker.serve("127.0.0.1:0") as server:
        _announce(config, f"by {options.workers} workers on an embedded broker at {server.bootstrap_servers}")
        commands = _commands(server.bootstrap_servers, config, options)
        return Workers([[*command, "--broker-in-parent"] for command in commands], _secrets(options)).run()


def _commands(servers: str, config: "StreamsConfig", options: argparse.Namespace) -> list[list[str]]:
    """Return the command of each worker: the given arguments plus the identity of the worker."""
    from streams.core.settings.config import setting_name
    from streams.core.settings.setting_sources import secret_names

    settings = {setting_name(name): value for name, value in texts_of(options).items()}
    for name in ("state_dir", "bootstrap_servers", "application_id", "group_instance_id", *secret_names()):
        settings.pop(name, None)
    commands = []
    for number in range(1, options.workers + 1):
        command = [sys.executable, "-m", "streams", "run", options.script, "--bootstrap-servers", servers]
        command += ["--application-id", config.application_id, "--worker", str(number)]
        if config.state_dir:
            command += ["--state-dir", str(Path(config.state_dir) / f"worker-{number}")]
        if config.consumer.group_instance_id:
            command += ["--set", f"group_instance_id={config.consumer.group_instance_id}-worker-{number}"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        if options.config_file is not None:
            command += ["--config", options.config_file]
        command += http_arguments(options, number)
        if options.debug:
            command.append("--debug")
        command += ["--log-level", options.log_level, "--log-format", options.log_format or "text"]
        commands.append(command)
    return commands


def _secrets(options: argparse.Namespace) -> dict[str, str]:
    """Return the secrets of ``--set`` as variables of the environment: everybody can read a command line."""
    from streams.core.settings.config import setting_name
    from streams.core.settings.setting_sources import secret_names, variable

    settings = {setting_name(name): value for name, value in texts_of(options).items()}
    return {variable(name): settings[name] for name in secret_names() & settings.keys()}


def announcing(config: "StreamsConfig", how: str) -> "StateListener":
    """Return a state listener that prints, only once, that the application is running; ``how`` says in which way."""
    from streams import State

    is_said = False

    def on_state(now: State, before: State) -> None:
        nonlocal is_said
        if now is State.RUNNING and not is_said:
            is_said = True
            _announce(config, how)

    return on_state


def _announce(config: "StreamsConfig", how: str) -> None:
    name = shlex.quote(config.application_id)
    say(f"{name} runs {how}; Ctrl-C or SIGTERM ends it")
