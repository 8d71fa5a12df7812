"""``streams takeover``: check whether an application of Java can be gone on with here, or be given back."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.cluster import add_where, opened
from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_application_id, add_execute, add_form, add_script, number_of

if TYPE_CHECKING:
    from streams.takeover import Candidate, Examination, Report
    from streams.topology import TopologyDescription

#: Exit status if something differs, or must be checked.
DIFFERENT = 1
#: Value of --shadow-from for all that the topics have.
_EARLIEST = "earliest"
_EXAMPLES = """\
A shadow runs the functions of the script; what they do to other systems, they do.

examples:
  streams takeover shop.py --application-id shop --bootstrap-servers localhost:9092 --topology java.txt
  streams takeover shop.py --application-id shop --bootstrap-servers localhost:9092 --mark shop.mark
  streams takeover shop.py --application-id shop --bootstrap-servers localhost:9092 --shadow-from shop.mark
  streams takeover shop.py --application-id shop --bootstrap-servers localhost:9092 --execute
  streams takeover shop.py --application-id shop --bootstrap-servers localhost:9092 --give-back
With --execute, cache_max_bytes is 10485760, as in Java; --set cache_max_bytes=N if Java had another size.
exit status: 0 it fits, 1 something does not fit or must be checked, 2 invalid arguments
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams takeover`` and its arguments to the program."""
    parser = commands.add_parser(
        "takeover",
        description="Check whether the script can go on with the state of a stopped application of Kafka Streams in "
        "Java: compare the topologies, read every entry of every store, and repeat what Java did. Nothing on the "
        "cluster is changed.",
        epilog=_EXAMPLES,
    )
    add_script(parser)
    add_application_id(parser, "that of the Java application (default: script's name)")
    parser.add_argument(
        "--topology",
        metavar="FILE",
        help="what Topology.describe() prints in Java; - is standard input (default: topologies are not compared)",
    )
    parser.add_argument("--mark", metavar="FILE", help="also write a mark of where the application stands")
    parser.add_argument(
        "--shadow-from",
        metavar=f"FILE|{_EARLIEST}",
        help="run the script in memory from a mark, or the beginning, and compare its outputs with Java's",
    )
    parser.add_argument(
        "--max-records",
        metavar="N",
        type=number_of("records", 1),
        default=1_000_000,
        help="most records that a shadow has in memory (default 1000000)",
    )
    parser.add_argument("--give-back", action="store_true", help="check the other direction: Java goes on with ours")
    add_form(parser)
    add_execute(parser)
    add_where(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Print the report; with ``--execute``, start the application if it can go on."""
    from streams.cli.scripts import Script, load
    from streams.clients import Admin
    from streams.core.settings.config import KAFKA_STREAMS_CACHE_BYTES, StreamsConfig
    from streams.takeover import Candidate, ClusterReader, Examination, as_json, as_text

    _check(options)
    script = Script.parse(options.script)
    # What Java had, unless it was set there, which nothing on the cluster says.
    overrides = {"cache_max_bytes": KAFKA_STREAMS_CACHE_BYTES, **options.all_settings}
    settings = script.settings(overrides, options.application_id)
    if options.bootstrap_servers:
        settings["bootstrap_servers"] = options.bootstrap_servers
    config = StreamsConfig.of(**settings)
    candidate = Candidate(
        load(script, config), config, settings, _described(options), options.give_back, options.max_records
    )
    with opened(options) as cluster, Admin(cluster) as admin, ClusterReader(cluster, admin) as reader:
        report = _report(Examination.of(candidate, reader), options)
    print(as_json(report) if options.format == "json" else as_text(report), flush=True)
    if not options.is_executed:
        if options.format == "text" and not options.give_back:
            print("\nnothing was changed; --execute starts the application here")
        return 0 if report.fits else DIFFERENT
    return _start(report, candidate)


def _check(options: argparse.Namespace) -> None:
    if options.is_executed and options.give_back:
        raise UsageError("--give-back --execute: there is nothing to change; start the application in Java")
    if options.is_executed and not options.bootstrap_servers:
        raise UsageError("--execute: needs --bootstrap-servers, the cluster that both applications use")
    if options.mark and options.shadow_from:
        raise UsageError("--mark and --shadow-from: a shadow ends where a mark begins; give one of them at a time")


def _described(options: argparse.Namespace) -> "TopologyDescription | None":
    """Return what Java describes, or None if it is not given.

    Raises:
        UsageError: the file cannot be read.
        InputError: it has no description.
    """
    from streams.takeover import parsed

    if options.topology is None:
        return None
    if options.topology == "-":
        return parsed(sys.stdin.read(), "standard input")
    try:
        return parsed(Path(options.topology).read_text(), options.topology)
    except OSError as error:
        raise UsageError(f"--topology {options.topology}: {error.strerror or error}") from error


def _report(examination: "Examination", options: argparse.Namespace) -> "Report":
    from streams.takeover import PositionMark

    report = examination.report()
    if options.mark:
        examination.mark().write(Path(options.mark))
        say(f"{options.mark}: marks where the application stands")
    if options.shadow_from:
        is_whole = options.shadow_from == _EARLIEST
        mark = examination.beginning() if is_whole else PositionMark.read(Path(options.shadow_from))
        report = report.with_shadow(*examination.shadow(mark))
    return report


def _start(report: "Report", candidate: "Candidate") -> int:
    """Start the application, if nothing speaks against it; return when it has ended."""
    from streams import Streams
    from streams.app import run_until_signal
    from streams.cli.sharing import announcing
    from streams.comparison import Level

    if report.level is Level.CANNOT:
        say("not started: see what cannot be taken over")
        return DIFFERENT
    config = candidate.config
    on_state = announcing(config, f"on {config.bootstrap_servers}")
    run_until_signal(Streams(candidate.topology, on_state=on_state, **candidate.settings))
    return 0
