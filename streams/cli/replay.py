"""``streams replay``: run a topology over history, on Spark or in local processes."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.late import add_limit, limit_of, say_drops, status_of
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_common, add_history, add_repeatable, history_of, pairs, settings_of

if TYPE_CHECKING:
    from streams.files import FileOutput
    from streams.replay import ReplayProgress, ReplayResult

_EXAMPLES = """examples:
  streams replay shop.py --input 'orders=history/*.jsonl.gz' --output totals=totals.parquet
  streams replay shop.py --input orders=archive/orders --output totals=- --executor local
  streams replay shop.py --input orders=archive/orders --slices 1d --snapshot shop.snapshot
  streams run shop.py --from-snapshot shop.snapshot --state-dir shop.state
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the program."""
    from streams.files import WRITTEN, listed

    parser = commands.add_parser(
        "replay",
        help="run a topology over history",
        description="Run a topology over history, on Spark or in local processes; then go live with its state.",
        epilog="An input is a file, a folder, a pattern, an archive, or kafka://HOST:PORT/TOPIC; "
        f"outputs are {listed(WRITTEN)}.\n\n{_EXAMPLES}",
    )
    add_common(parser)
    add_history(parser, executor="spark")
    add_repeatable(parser, "--output", "TOPIC=PATH", "file that a topic is written to, or -")
    parser.add_argument(
        "--resume", action="store_true", help="continue a replay in its folder, skipping completed calls"
    )
    parser.add_argument("--state-from", metavar="DIR", help="snapshot to continue from")
    parser.add_argument("--snapshot", metavar="DIR", help="folder for the final state and outputs, to go live from")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="folder to work in (default: below --snapshot; else .streams/replay/ID with --resume, or a temporary one)",
    )
    add_limit(parser)
    parser.add_argument("--explain", action="store_true", help="print the plan: stages, tasks, inputs, shuffles")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Run the replay."""
    from streams.cli.progress import shown
    from streams.cli.scripts import Script, built, source
    from streams.cli.topics import declared_output, declared_source, source_topics
    from streams.core.clock import SystemClock
    from streams.core.config import StreamsConfig
    from streams.files import open_output
    from streams.replay import LateRecordsError, replay

    script = Script.parse(options.script)
    settings = settings_of(options)
    settings.setdefault("application_id", options.application_id or script.application_id)
    config = StreamsConfig.of(**settings)
    limit = limit_of(options)
    inputs = dict(pairs(options.input, "--input", "TOPIC=PATH"))
    outputs = dict(pairs(options.output, "--output", "TOPIC=PATH"))
    if not inputs:
        raise UsageError("a replay needs --input TOPIC=PATH: the history of at least one topic")
    if options.snapshot and options.final_flush:
        raise UsageError(
            "--snapshot and --final-flush exclude each other: windows that were flushed at the end cannot continue live"
        )
    made = source(script)
    topology = built(script, made, config)
    for name in inputs:
        declared_source(topology, name)
    for name in sorted(source_topics(topology) - inputs.keys()):
        print(f"streams: topic {name!r} has no --input: it gets no records", file=sys.stderr)
    writers = {name: open_output(declared_output(topology, name, config), path) for name, path in outputs.items()}
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    with shown(config.application_id) as show:
        try:
            result = replay(
                made,
                inputs,
                directory=_folder(options, config.application_id),
                resume=options.resume,
                state_from=options.state_from,
                explain=options.explain,
                max_dropped=limit.text,
                progress=show and (lambda progress: show(state_of(progress))),
                **history_of(options),
                **settings,
            )
        except LateRecordsError as error:
            result = error.result  # The snapshot is complete; only the exit status differs.
        except KeyboardInterrupt:
            print(f"streams: {_way_on(options)}", file=sys.stderr)
            raise
    with result:
        if options.explain:
            print("\n".join(result.session.explain()))
            return 0
        written = {name: writer.write(result.read(name)) for name, writer in writers.items()}
        if options.snapshot:
            result.save(options.snapshot)
        _summarize(result, writers, written, options.snapshot, clock.monotonic_ms() - started_ms)
        return status_of(result.late, limit)


def _folder(options: argparse.Namespace, application_id: str) -> str | None:
    """Return the working folder, where a resumed run finds the results of an earlier run."""
    if options.directory:
        return str(options.directory)
    if options.explain:
        return None
    if options.snapshot:
        folder = Path(options.snapshot) / "work"
        if folder.exists() and not options.resume:
            _discard(folder)
        return str(folder)
    return str(Path(".streams") / "replay" / application_id) if options.resume else None


def _way_on(options: argparse.Namespace) -> str:
    """Return the message after an interrupt: whether and how the replay can be resumed."""
    if not (options.directory or options.snapshot or options.resume):
        return "nothing is kept of a replay without --directory or --snapshot; give one to be able to resume it"
    given = sys.argv[1:] if options.resume else [*sys.argv[1:], "--resume"]
    return f"completed work is kept; to continue: {shlex.join(['streams', *given])}"


def _discard(folder: Path) -> None:
    """Delete the working files, and nothing else, of an earlier replay into the same snapshot."""
    import shutil

    shutil.rmtree(folder)


def state_of(progress: "ReplayProgress") -> str:
    """Return the progress of a replay as one line."""
    rate = progress.records * 1000 // max(1, progress.elapsed_ms)
    where = "reading inputs" if progress.stage < 0 else f"stage {progress.stage + 1} of {progress.stages}"
    pieces = f"slice {progress.slice} of {progress.slices}, " if progress.slices > 1 else ""
    left = max(0, progress.records_total - progress.records)
    rest = f", {left:,} left" if left else ""
    link = f", {progress.link}" if progress.link else ""
    return (
        f"{pieces}{where}, task {progress.tasks_done} of {progress.tasks}, "
        f"{progress.records:,} records, {rate:,}/s{rest}{link}"
    )


def _summarize(
    result: "ReplayResult",
    writers: "Mapping[str, FileOutput]",
    written: Mapping[str, int],
    snapshot: str | None,
    elapsed_ms: int,
) -> None:
    """Print dropped records and, on a terminal, the results."""
    say_drops(result.drops())
    if result.slices_skipped:
        slices = "slice was" if result.slices_skipped == 1 else "slices were"
        print(f"streams: {result.slices_skipped:,} {slices} done before and skipped", file=sys.stderr)
    if not sys.stderr.isatty():
        return
    for name, count in written.items():
        target = "standard output" if writers[name].path == "-" else writers[name].path
        print(f"{name}: {count:,} records to {target}", file=sys.stderr)
    if snapshot:
        print(f"snapshot: {os.fspath(snapshot)}", file=sys.stderr)
    print(f"done in {elapsed_ms / 1000:.1f} s", file=sys.stderr)
