"""``streams run``: run a topology over files to their end, or live until a signal."""

import argparse
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from streams.cli.http import add_http, serve_if_asked
from streams.cli.late import add_limit, end, limit_of, write_charts
from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import (
    Commands,
    add_common,
    add_config,
    add_files,
    add_format,
    add_log,
    add_repeatable,
    add_run,
    address,
    all_settings_of,
    names_of,
    number_of,
    opened_outputs,
    pairs,
)
from streams.cli.serving import announce
from streams.cli.sharing import announcing, run_on_cluster

if TYPE_CHECKING:
    from streams.bounded import Begins
    from streams.core.clock import Clock
    from streams.core.settings.config import StreamsConfig
    from streams.core.settings.settings import Settings
    from streams.files import Continued, FileInput, FileOutput, FileSource, Ledger
    from streams.topology import Topology

_EXAMPLES = """\
examples:
  streams run word_count.py -i lines=book.txt -o counts=-
  streams run sessions.py --input access=access.log.gz --output sessions=sessions.records.jsonl --partitions 4
  streams run word_count.py --listen 127.0.0.1:9092
  streams run sessions.py -b localhost:9092 --state-dir state --workers 3
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams run`` and its arguments to the program."""
    from streams.files import COMPRESSED, WRITTEN, listed

    parser = commands.add_parser(
        "run",
        description="Run a topology. With --input it ends when the files are read; without, at SIGINT or SIGTERM.",
        epilog=f"Inputs are {listed()}, or folders and patterns of them; outputs {listed(WRITTEN)}; each also with "
        f"{COMPRESSED}.\n\n{_EXAMPLES}",
    )
    add_common(parser)
    add_files(parser)
    add_repeatable(
        parser,
        "--next",
        "TOPIC=PATH",
        "an --input that follows the files of earlier runs over the same --state-dir, even if it has the name "
        "or the contents of a file read before",
    )
    output = "file that a topic is written to, overwritten; - is standard output"
    add_repeatable(parser, "--output", "TOPIC=FILE", output)
    add_format(parser)
    add_run(parser)
    add_config(parser)
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="folder of logs, offsets and stores; a further run continues from it (default: none)",
    )
    parser.add_argument(
        "--from-snapshot",
        metavar="DIR",
        help="continue from a snapshot of `streams replay`, as if it had been live",
    )
    parser.add_argument(
        *names_of("--bootstrap-servers"),
        metavar="HOST:PORT",
        help="run live on this Kafka cluster; several servers with commas",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=number_of("workers", 1, 256),
        default=1,
        help="processes that share the work of a live run, over the cluster or the embedded broker (default 1)",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        help="also serve the embedded broker of a live run to Kafka clients at this address (port 0: a free one)",
    )
    add_http(parser)
    add_limit(parser)
    # The number of this worker, set by the process that starts the workers.
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--broker-in-parent", action="store_true", help=argparse.SUPPRESS)
    add_log(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Run the topology."""
    from streams.cli.scripts import Script, load
    from streams.core.settings.config import StreamsConfig

    script = Script.parse(options.script)
    settings = all_settings_of(options)
    overrides = {
        "application_id": options.application_id,
        "state_dir": options.state_dir,
        "bootstrap_servers": options.bootstrap_servers,
    }
    settings |= {name: value for name, value in overrides.items() if value is not None}
    settings.setdefault("application_id", script.application_id)
    config = StreamsConfig.of(**settings)
    _check_live(config, options)
    files = NamedFiles.parse(options)
    topology = load(script, config)
    if config.bootstrap_servers:
        _state_folder(config)
        return run_on_cluster(topology, config, settings, options)
    with _beginning(topology, files, config, options) as folder:
        if not files.inputs:
            return _run_live(topology, files, config, settings, options, folder)
        assert folder is not None
        return _run_bounded(topology, files, config, settings, options, folder)


@contextmanager
def _beginning(
    topology: "Topology", files: "NamedFiles", config: "StreamsConfig", options: argparse.Namespace
) -> Iterator[Path | None]:
    """Open the folder of the run, and load the snapshot, if given, into it; yield None for a live run in memory.

    Raises:
        UsageError: the folder cannot be created or written to.
        ReplayError: the snapshot belongs to another application, or the folder has the state of another run.
    """
    folder = _state_folder(config)
    with ExitStack() as stack:
        # A run over files always stores its logs and stores on disk, so that its memory does not grow with them.
        if folder is None and (files.inputs or options.from_snapshot):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-run-")))
        if options.from_snapshot:
            from streams.replay import Snapshot, lay_down
            from streams.replay.storage.places import Place

            snapshot = Snapshot.open(Place(options.from_snapshot))
            snapshot.check_topology(topology, config)
            assert folder is not None
            lay_down(snapshot, folder)
        yield folder


def _check_live(config: "StreamsConfig", options: argparse.Namespace) -> None:
    """Check that the arguments are supported by this kind of run: live, or over files.

    Raises:
        UsageError: this kind of run does not support an argument.
    """
    has_inputs = bool(options.input or options.next)
    if has_inputs and options.workers > 1:
        raise UsageError(
            "--workers needs a live run: a run over files orders records by where they come from, which takes one "
            "process; omit --input, or use `streams replay` to spread history over processes"
        )
    if options.next and not (config.state_dir or options.from_snapshot):
        raise UsageError("--next needs --state-dir: it adds a file after those that earlier runs have read")
    if options.http_token_file is not None and options.http is None:
        raise UsageError("--http-token-file needs --http HOST:PORT")
    if has_inputs and options.http is not None:
        raise UsageError("--http needs a live run: a run over files ends with its inputs; omit --input")
    if options.listen is not None and (has_inputs or config.bootstrap_servers):
        raise UsageError("--listen serves the embedded broker of a live run: omit --input and --bootstrap-servers")
    if not has_inputs and (options.output or options.final_flush or options.max_dropped):
        what = "--output" if options.output else "--final-flush" if options.final_flush else "--max-dropped"
        raise UsageError(f"{what} needs --input: without inputs a run has no end")
    if not config.bootstrap_servers:
        return
    if config.fsync != "never" and options.worker is None:
        raise UsageError(
            f"fsync={config.fsync} and --bootstrap-servers: the setting is for the embedded broker; brokers of a "
            "cluster have their own"
        )
    if has_inputs:
        raise UsageError(
            "--input and --bootstrap-servers: a run over files has a broker of its own; write the file to the cluster "
            "with `streams produce`, or leave one of them out"
        )
    if options.partitions:
        raise UsageError(
            "--partitions and --bootstrap-servers: topics of a cluster have their own counts; `streams topics "
            "create` makes them"
        )
    if options.from_snapshot:
        raise UsageError(
            "--from-snapshot and --bootstrap-servers: load the snapshot into the cluster with "
            "`streams golive DIR --bootstrap-servers HOST:PORT`, then run without it"
        )


def _run_live(
    topology: "Topology",
    files: "NamedFiles",
    config: "StreamsConfig",
    settings: dict[str, Any],
    options: argparse.Namespace,
    folder: Path | None,
) -> int:
    from streams import EmbeddedBroker, Streams
    from streams.app import run_until_signal
    from streams.cli.sharing import run_workers_here

    if folder is not None:
        settings = settings | {"state_dir": str(folder / "state")}

    data = folder and folder / "broker"
    count = options.partitions or 1
    with ExitStack() as stack:
        is_private = options.listen is None
        broker = stack.enter_context(
            EmbeddedBroker(data, default_partitions=count, is_private=is_private, fsync=config.fsync)
        )
        if options.listen is not None:
            announce(stack.enter_context(broker.serve(options.listen)))
        if options.workers > 1:
            return run_workers_here(topology, broker, config, options)
        streams = Streams(topology, broker=broker, on_state=announcing(config, "on an embedded broker"), **settings)
        serve_if_asked(streams, options)
        run_until_signal(streams)
    return 0


def _run_bounded(
    topology: "Topology",
    files: "NamedFiles",
    config: "StreamsConfig",
    settings: dict[str, Any],
    options: argparse.Namespace,
    folder: Path,
) -> int:
    from streams.bounded import Progress, run_bounded
    from streams.cli.interrupts import orderly
    from streams.cli.progress import shown, state_of
    from streams.core.clock import SystemClock
    from streams.runtime import late_of, tuned_collector

    limit = limit_of(options)
    inputs = files.readers(topology, on_bad_row="continue" if config.deserialization_handler != "fail" else "fail")
    outputs = files.writers(topology, config, options.format)
    continued = _continued(files, inputs, folder)
    passed = {name: value for name, value in settings.items() if name not in ("application_id", "state_dir")}
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    with _lineage(topology, config, inputs, outputs):
        with tuned_collector(), orderly() as interrupt, shown(config.application_id) as show:

            def on_progress(progress: Progress) -> None:
                interrupt.check()
                if show is not None:
                    show(*state_of(progress, clock.monotonic_ms() - started_ms))

            if not outputs and not config.state_dir:
                _say_unkept(topology)
            result = run_bounded(
                topology,
                continued,
                application_id=config.application_id,
                partitions=options.partitions,
                state_dir=folder,
                final_flush=options.final_flush,
                settings=cast("Settings", passed),
                progress=on_progress,
            )
        with result:
            written = {name: output.write(result.read_output(name)) for name, output in outputs.items()}
            late = late_of(result.topology, result.metrics.tallies())
            write_charts(options.charts, late, result.metrics.processed())
            return end(
                records_in=result.records_in,
                records_out=sum(written.values()) if outputs else None,
                drops=result.drops(),
                late=late,
                limit=limit,
                elapsed_ms=clock.monotonic_ms() - started_ms,
            )


def _lineage(
    topology: "Topology",
    config: "StreamsConfig",
    inputs: "Mapping[str, Sequence[FileInput]]",
    outputs: "Mapping[str, FileOutput]",
) -> AbstractContextManager[None]:
    """Send events of OpenLineage with the files, if ``openlineage_url`` is set; standard output is not a dataset."""
    if not config.openlineage_url:
        return nullcontext()
    # Imported here, because the extra ``openlineage`` is needed only with a collector.
    from streams.files import STANDARD_OUTPUT
    from streams.telemetry.lineage import LineageDataset, LineageJob, lineage_events

    read = [LineageDataset.at(reader.path, name) for name, readers in inputs.items() for reader in readers]
    written = [
        LineageDataset.at(output.path, name) for name, output in outputs.items() if output.path != STANDARD_OUTPUT
    ]
    return lineage_events(config, topology, LineageJob("BATCH", "APPLICATION", read, written))


def _continued(
    files: "NamedFiles", inputs: "dict[str, list[FileInput]]", folder: Path
) -> "dict[str, Iterator[tuple[Continued, Begins]]]":
    """Return readers that continue after the rows that earlier runs, or the replay of the snapshot, have read.

    Files that begin with all replayed rows are the replayed history with new rows: the rows that were read
    before are skipped.  Other files are read after the replayed history, in their order.

    Raises:
        UsageError: a replay has read only a part of a file, or another file of the same name.
    """
    from streams.files import Ledger
    from streams.replay.handover.golive import origin_of

    ledger = Ledger.open(folder, say)
    origin = origin_of(folder)
    result = {}
    for topic, readers in inputs.items():
        history = None if origin is None else origin["inputs"].get(topic)
        is_next = topic in files.next_inputs
        replayed = 0 if history is None or is_next else _replayed(topic, readers, history)
        if history is not None and not is_next:
            for reader in readers[replayed:]:
                if not ledger.knows(topic, reader):
                    _refuse_replayed(topic, reader, history)
        result[topic] = _following(ledger, topic, readers, history, replayed, is_next=is_next)
    return result


def _following(
    ledger: "Ledger",
    topic: str,
    readers: "Sequence[FileInput]",
    history: Mapping[str, Any] | None,
    replayed: int,
    *,
    is_next: bool,
) -> "Iterator[tuple[Continued, Begins]]":
    """Yield the reader of each file when the earlier files have been read.

    Raises:
        InputError: rows that were read have changed, or the file cannot be read after the earlier files.
    """
    if replayed == 1 and history is not None:
        only = ledger.grown(topic, readers[0], len(history["ends"]), history["rows"])
        yield only, only.begins
    for reader in readers[replayed:]:
        rows_before = None if history is None else history["rows"]
        by_name = len(readers) > 1
        continued = ledger.follow(topic, reader, is_next=is_next, rows_before=rows_before, by_name=by_name)
        yield continued, continued.begins


def _replayed(topic: str, readers: "Sequence[FileInput]", history: Mapping[str, Any]) -> int:
    """Return how many of the first files are those that a replay has read; a single one may have grown since.

    Raises:
        UsageError: the replay has read only a part of a file, or the last of several files has grown.
    """
    from streams.replay.history.inputs import FileMark

    marks = [FileMark(*mark) for mark in history["files"]]
    if not marks or history["rows_before"] or not marks[0].is_in(readers[0].path):
        return 0
    if history["is_cut"]:
        raise UsageError(
            f"--input {topic}={readers[0].path}: is the history that the replay ended within; give a file of what "
            "follows that end, or resume the replay"
        )
    are_same = [mark.is_in(reader.path) for mark, reader in zip(marks, readers, strict=False)]
    if len(readers) < len(marks) or not all(are_same):
        return 0
    if len(marks) > 1 and os.path.getsize(readers[len(marks) - 1].path) > marks[-1].size:
        raise UsageError(
            f"--input {topic}: {readers[len(marks) - 1].path} has grown since it was replayed after other files; put "
            "its new rows into a separate file, or resume the replay"
        )
    return len(marks)


def _refuse_replayed(topic: str, reader: "FileInput", history: Mapping[str, Any]) -> None:
    """Reject a file that a replay has already read, and a file with the name of a replayed file.

    Raises:
        UsageError: the rows of the file, or a file of the same name, were already replayed.
    """
    from streams.replay.history.inputs import FileMark

    path = os.path.abspath(reader.path)
    for mark in (FileMark(*mark) for mark in history["files"]):
        begins_with = bool(mark.size) and mark.is_in(path)
        if begins_with or os.path.abspath(mark.path) == path:
            what = f"begins with the rows of {mark.path}, which was" if begins_with else "a file of this name was"
            raise UsageError(
                f"--input {topic}={reader.path}: {what} replayed already; --next {topic}={reader.path} reads it as "
                "another file, after all that was replayed; if rows were corrected, replay again"
            )


def _state_folder(config: "StreamsConfig") -> Path | None:
    """Return the state directory, which is created if missing.

    Raises:
        UsageError: the directory cannot be created or written to.
    """
    if not config.state_dir:
        return None
    folder = Path(config.state_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--state-dir {folder}: cannot be created: {error.strerror}; choose another") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--state-dir {folder}: cannot be written to; choose another")
    return folder


def _say_unkept(topology: "Topology") -> None:
    """Say which results a run without output and without state directory does not keep."""
    from streams.cli.topic_declarations import sink_topics

    if topics := sorted(sink_topics(topology)):
        say(
            f"results in {', '.join(map(repr, topics))} are not kept; give --output {topics[0]}=FILE (- is "
            "standard output), or --state-dir DIR"
        )


def _refuse_history(topic: str, path: str) -> None:
    """Reject history that is not in local files of rows.

    Raises:
        UsageError: the path is an archive, a table or a URI.
    """
    from streams.replay.history.inputs import TABLE_PREFIXES

    is_far = "://" in path and not path.startswith("file://")
    if is_far or path.startswith(TABLE_PREFIXES) or Path(path, "MANIFEST.json").exists():
        what = "is no local file" if is_far or not Path(path).exists() else "is an archive, a snapshot or a replay"
        raise UsageError(
            f"--input {topic}={path}: {what}, and a run over files reads files of this machine; `streams replay` reads "
            "archives, tables and other file systems"
        )


@frozen
class NamedFiles:
    """The file arguments by topic; ``next_inputs`` are the topics of inputs that are given by ``--next``."""

    inputs: "Mapping[str, Sequence[FileSource]]"
    outputs: Mapping[str, str]
    next_inputs: Collection[str] = ()

    @classmethod
    def of_inputs(cls, inputs: Mapping[str, str]) -> "NamedFiles":
        """Return the local files of inputs, which are given as files, folders or patterns.

        Raises:
            UsageError: an input is an archive, a table or a URI.
            InputError: there is no such file.
        """
        from streams.files import Location, local_sources

        for topic, path in inputs.items():
            _refuse_history(topic, Location.parse(path).path)
        return cls({topic: local_sources(path) for topic, path in inputs.items()}, {})

    @classmethod
    def parse(cls, options: argparse.Namespace) -> "NamedFiles":
        """Parse the file arguments.

        Raises:
            UsageError: an argument is malformed.
            InputError: there is no such file.
        """
        input_paths = dict(pairs(options.input, "--input", "TOPIC=PATH"))
        following = dict(pairs(options.next, "--next", "TOPIC=PATH"))
        for topic in sorted(input_paths.keys() & following.keys()):
            raise UsageError(f"topic {topic!r} has an --input and a --next; give one file in a run, one run for each")
        inputs = cls.of_inputs(input_paths | following).inputs
        return cls(inputs, dict(pairs(options.output, "--output", "TOPIC=FILE")), frozenset(following))

    def readers(
        self, topology: "Topology", *, on_bad_row: Any, clock: "Clock | None" = None
    ) -> dict[str, list["FileInput"]]:
        """Return readers of the input files of each topic; rows without a timestamp get the time of ``clock``.

        Raises:
            UsageError: a topic is not a source of the topology.
            InputError: a file cannot be read.
        """
        from streams.cli.topic_declarations import declared_source, sink_topics, source_topics
        from streams.files import open_input

        readers = {
            name: [
                open_input(declared_source(topology, name), file, on_bad_row=on_bad_row, clock=clock) for file in files
            ]
            for name, files in self.inputs.items()
        }
        for name in sorted(source_topics(topology) - readers.keys() - sink_topics(topology)):
            say(f"topic {name!r} has no --input: it gets no records")
        return readers

    def writers(self, topology: "Topology", config: "StreamsConfig", form: str) -> dict[str, "FileOutput"]:
        """Check the output topics, and return a file writer for each of them.

        Raises:
            UsageError: the topology does not write to one of the topics, or a file is that of another one.
            OutputError: a file cannot be written.
        """
        from streams.cli.topic_declarations import declared_output

        inputs = {topic: [file.name for file in files] for topic, files in self.inputs.items()}
        return opened_outputs(self.outputs, inputs, lambda name: declared_output(topology, name, config), form)
