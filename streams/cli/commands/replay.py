"""``streams replay``: run a topology over history, on Spark or in local processes."""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from streams.cli.late import add_limit, end, limit_of, write_charts
from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import (
    Commands,
    add_common,
    add_format,
    add_history,
    add_repeatable,
    number_of,
    opened_outputs,
    pairs,
    plan_of,
    settings_of,
)

if TYPE_CHECKING:
    from streams.replay import Plan, ReplayProgress, ReplayResult
    from streams.runtime import DropLimit

_EXAMPLES = """examples:
  streams replay shop.py --input 'orders=history/*.jsonl.gz' --output totals=totals.parquet
  streams replay shop.py --input orders=archive/orders --output totals=- --executor local
  streams replay shop.py --input "orders=sql:SELECT * FROM shop.orders WHERE day = '2026-03-01'" --output totals=-
  streams replay shop.py --input orders=archive/orders --slices 1d --snapshot shop.snapshot
  streams run shop.py --from-snapshot shop.snapshot --state-dir shop.state
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams replay`` and its arguments to the program."""
    from streams.files import WRITTEN, listed

    parser = commands.add_parser(
        "replay",
        description="Run a topology over history, on Spark or in local processes; then go live with its state.",
        epilog="An input is a file, a folder, a pattern, an archive, kafka://HOST:PORT/TOPIC, a table that Spark "
        "knows: table:NAME or sql:SELECT ..., or delta:FOLDER or iceberg:NAME, with @ and a version or time; "
        f"outputs are {listed(WRITTEN)}, parquet:FOLDER, delta:FOLDER, iceberg:NAME or table:NAME.\n\n{_EXAMPLES}",
    )
    add_common(parser)
    add_history(parser, executor="spark")
    _add_outputs(parser)
    add_repeatable(parser, "--conf", "NAME=VALUE", "a setting of the Spark session that is started")
    parser.add_argument(
        "--archives",
        metavar="FILE#FOLDER[,...]",
        help="archives that executors unpack where they run, such as an environment of venv-pack (spark.archives)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue a replay in its folder, skipping completed calls"
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="with --resume: sort rows that came late into the history, and compute again what they change",
    )
    parser.add_argument(
        "--keep-states",
        metavar="N",
        type=number_of("states", 1),
        help="with --resume: slices whose states are kept for --repair; each run has at least one (default 7)",
    )
    parser.add_argument("--state-from", metavar="DIR", help="snapshot to continue from")
    parser.add_argument("--snapshot", metavar="DIR", help="folder for the final state and outputs, to go live from")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="folder to work in (default: below --snapshot; else .streams/replay/ID with --resume, or a temporary one)",
    )
    add_limit(parser)
    parser.add_argument(
        "--report", metavar="FILE", help="write a report as JSON: records, slices, late rows, repair, dropped records"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print what would be read, run and written, and what would not fit, and end; nothing is replayed",
    )
    parser.set_defaults(execute=execute)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for outputs."""
    add_repeatable(
        parser,
        "--output",
        "TOPIC=PATH",
        "file that a topic is written to, or -, parquet:FOLDER, delta:FOLDER, iceberg:NAME, or table:NAME of Spark",
    )
    add_format(parser)
    add_repeatable(
        parser,
        "--partition-by",
        "TOPIC=COLUMN[,COLUMN]",
        "columns of a folder or table: day is the UTC day of the event time; fields are value.NAME",
    )
    add_repeatable(parser, "--overwrite", "TOPIC", "replace the rows of the partitions that the topic writes to")
    parser.add_argument(
        "--output-mode",
        choices=("append", "last"),
        default="append",
        help="what folders and tables get: each record (append, the default), or the last one of each key",
    )
    add_repeatable(
        parser,
        "--expect",
        "SQL",
        "query of what must not be there, by DuckDB: outputs are tables, stores are stores.NAME; if it returns a row, "
        "no output is written",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the replay."""
    from streams.cli.progress import shown
    from streams.cli.scripts import Script, built, source
    from streams.cli.topic_declarations import declared_output, declared_source, source_topics
    from streams.core.clock import SystemClock
    from streams.core.settings.config import StreamsConfig
    from streams.files import Location
    from streams.replay import LateRecordsError, explain, replay
    from streams.replay.calls.work import output_schema
    from streams.replay.run.queries import check_syntax
    from streams.values import partition_columns

    script = Script.parse(options.script)
    settings = settings_of(options)
    settings.setdefault("application_id", options.application_id or script.application_id)
    config = StreamsConfig.of(**settings)
    limit = limit_of(options)
    inputs = dict(pairs(options.input, "--input", "TOPIC=PATH"))
    outputs = dict(pairs(options.output, "--output", "TOPIC=PATH"))
    _check(options)
    definition = source(script)
    topology = built(script, definition, config)
    for name in inputs:
        declared_source(topology, name)
    for name in sorted(source_topics(topology) - inputs.keys()):
        say(f"topic {name!r} has no --input: it gets no records")
    tables = _tables(options, outputs)
    plan = _plan(options, config.application_id, limit)
    if options.explain:
        explanation = explain(definition, inputs, plan, **settings)
        print(json.dumps(explanation.to_json(), indent=2) if options.format == "json" else explanation)
        return 0
    check_syntax(options.expect)
    files = {name: path for name, path in outputs.items() if name not in tables}
    read = {topic: [Location.parse(path).path] for topic, path in inputs.items()}
    writers = opened_outputs(files, read, lambda name: declared_output(topology, name, config), options.format)
    for name, table in tables.items():
        declared_output(topology, name, config)
        # Checked again by the write, but hours of replay may lie before it.
        partition_columns(output_schema(topology, name), table.options["partition_by"])
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    with shown(config.application_id) as show:
        try:
            plan = evolve(plan, progress=show and (lambda progress: show(*state_of(progress))))
            result = replay(definition, inputs, plan, **settings)
        except LateRecordsError as error:
            result = error.result  # It is complete; only the exit status differs.
        except KeyboardInterrupt:
            say(_resume_hint(options))
            raise
    with result:
        if options.expect:
            _expect(result, options)
        written = {name: writer.write(result.read(name)) for name, writer in writers.items()}
        written |= {name: result.write(name, table.target, **table.options) for name, table in tables.items()}
        _report(result, options)
        write_charts(options.charts, result.late, result.processed)
        return end(
            records_in=result.source_records,
            records_out=sum(written.values()) if outputs else None,
            drops=result.drops(),
            late=result.late,
            limit=limit,
            elapsed_ms=clock.monotonic_ms() - started_ms,
        )


def _expect(result: "ReplayResult", options: argparse.Namespace) -> None:
    """Check what ``--expect`` says, before outputs are written.

    Raises:
        ExpectationError: a query returns rows.
    """
    from streams.replay import ExpectationError

    try:
        result.expect(*options.expect)
    except ExpectationError:
        say("no output was written, since --expect is not met")
        say(_resume_hint(options))
        raise


def _check(options: argparse.Namespace) -> None:
    """Check the combination of options.

    Raises:
        UsageError: options contradict each other.
    """
    if not options.input:
        raise UsageError("a replay needs --input TOPIC=PATH: the history of at least one topic")
    if options.repair and options.explain:
        raise UsageError("--explain makes no plan of a repair; leave --repair out")
    if options.explain and options.format not in ("auto", "json"):
        raise UsageError(f"--explain --format {options.format}: an explanation is text, or JSON with --json")
    # The plan refuses them too, but ``archives`` is an option only, and a message names what was typed.
    for option in ("master", "conf", "archives"):
        if getattr(options, option) and options.executor != "spark":
            raise UsageError(f"--{option} is Spark's: give --executor spark too")


def _report(result: "ReplayResult", options: argparse.Namespace) -> None:
    """Write the report if ``--report`` is given; print what was repaired or skipped, and how to repair late rows."""
    from streams.replay.storage.places import Place

    if options.report:
        Place(options.report).write(json.dumps(result.to_json(), indent=1).encode() + b"\n")
    if result.late_rows:
        say(_repair_text())
    if result.repaired is not None:
        say(str(result.repaired))
    if result.slices_skipped:
        slices = "slice was" if result.slices_skipped == 1 else "slices were"
        say(f"{result.slices_skipped:,} {slices} done before and skipped")


def _plan(options: argparse.Namespace, application_id: str, limit: "DropLimit") -> "Plan":
    """Return the plan of the replay; a resumed one finds the results of the run before in a folder of its name."""
    directory = options.directory
    if options.resume and not options.snapshot:
        directory = directory or Path(".streams") / "replay" / application_id
    return plan_of(options, conf=_conf(options) or None, directory=directory, max_dropped=limit.text)


def _conf(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the Spark session.

    Raises:
        UsageError: archives are given twice.
    """
    conf = dict(pairs(options.conf, "--conf", "NAME=VALUE"))
    if options.archives and conf.setdefault("spark.archives", options.archives) != options.archives:
        raise UsageError("--archives and --conf spark.archives differ: give all archives in one, with commas")
    return conf


@frozen
class TableOutput:
    """A folder or table to which a topic is written, with the other arguments of ``ReplayResult.write``."""

    target: str
    options: Mapping[str, Any]


def _tables(options: argparse.Namespace, outputs: Mapping[str, str]) -> dict[str, TableOutput]:
    """Return the outputs that are folders or tables.

    Raises:
        UsageError: an option for such outputs names another topic.
    """
    from streams.lakes import LAKE_PREFIXES

    columns = dict(pairs(options.partition_by, "--partition-by", "TOPIC=COLUMN[,COLUMN]"))
    tables = {
        name: TableOutput(
            target,
            {
                "partition_by": tuple(filter(None, columns.get(name, "").split(","))),
                "mode": "overwrite" if name in options.overwrite else options.output_mode,
            },
        )
        for name, target in outputs.items()
        if target.startswith(("parquet:", "table:", *LAKE_PREFIXES))
    }
    for option, names in (("--partition-by", columns), ("--overwrite", options.overwrite)):
        for name in names:
            if name not in tables:
                raise UsageError(f"{option} {name}: no --output writes this topic to a folder or table")
    if options.output_mode == "last":
        if not tables:
            raise UsageError("--output-mode last: no --output is a folder or table; others get each record")
        for name in options.overwrite:
            raise UsageError(f"--overwrite {name}: not with --output-mode last, which replaces what it wrote before")
    return tables


def _resume_hint(options: argparse.Namespace) -> str:
    """Return the message to print after an early end: whether and how the replay can be resumed."""
    if not (options.directory or options.snapshot or options.resume):
        return "nothing is kept of a replay without --directory or --snapshot; give one to be able to resume it"
    arguments = sys.argv[1:] if options.resume else [*sys.argv[1:], "--resume"]
    return f"completed work is kept; to continue: {shlex.join(['streams', *arguments])}"


def _repair_text() -> str:
    """Return the message after late rows: the command that computes the affected results again."""
    arguments = [*sys.argv[1:], *(["--resume"] if "--resume" not in sys.argv else []), "--repair"]
    return f"to compute again what late rows change: {shlex.join(['streams', *arguments])}"


def state_of(progress: "ReplayProgress") -> tuple[str, float]:
    """Return the progress of a replay as one line, and its share."""
    rate = progress.records * 1000 // max(1, progress.elapsed_ms)
    where = "reading inputs" if progress.stage < 0 else f"stage {progress.stage + 1} of {progress.stages}"
    pieces = f"slice {progress.slice} of {progress.slices}, " if progress.slices > 1 else ""
    link = f", {progress.link}" if progress.link else ""
    text = f"{pieces}{where}, task {progress.tasks_done} of {progress.tasks}, {progress.records:,} records, {rate:,}/s"
    return f"{text}{link}", progress.share
