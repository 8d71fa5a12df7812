"""``streams dev``: run a script over a sample at each save, and show how the results differ."""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from streams.cli.lines import say
from streams.cli.mistakes import UsageError, report
from streams.cli.options import (
    Commands,
    add_common,
    add_examples,
    add_files,
    add_run,
    add_wall_clock,
    number_of,
    pairs,
    plan_of,
    settings_of,
)
from streams.core.closeable import Closeable
from streams.core.installation import pip_install

if TYPE_CHECKING:
    from streams.cli.scripts import Script
    from streams.cli.worlds import ScriptModules
    from streams.comparison import Version
    from streams.core.clock import Clock
    from streams.core.settings.config import StreamsConfig
    from streams.topology import Topology

#: Default number of records of each input.
_SAMPLE = 10_000
#: Milliseconds after which files are looked at even if no change of their folders was reported, as on some network
#: file systems.
_LOOK_MS = 1000
_EXAMPLES = """\
examples:
  streams dev shop.py --input orders=orders.jsonl
  streams dev shop.py --input orders=orders.jsonl --once
exit status: 0 after Ctrl-C; with --once 0 or that of `streams run`
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams dev`` and its arguments to the program."""
    parser = commands.add_parser(
        "dev",
        description="Run a topology over a sample of its inputs, and again whenever the script, a module that it "
        "imports or an input is saved; show which records and stores differ from the last run. Ctrl-C ends it.",
        epilog=_EXAMPLES,
    )
    add_common(parser)
    add_files(parser)
    parser.add_argument(
        "--max",
        metavar="N",
        type=number_of("records", 1),
        default=_SAMPLE,
        help=f"first records of each input that are used (default {_SAMPLE:,})",
    )
    add_examples(parser, "records or differences")
    add_wall_clock(parser, "a sample")
    parser.add_argument("--once", action="store_true", help="run once, show the results and end")
    add_run(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Run, and run again at each save until Ctrl-C."""
    from streams.cli.scripts import Script
    from streams.core.clock import SystemClock, VirtualClock

    inputs = dict(pairs(options.input, "--input", "TOPIC=PATH"))
    if not inputs:
        raise UsageError("give a sample, --input TOPIC=PATH, of at least one topic")
    # Rows without a time get the same one in every run, so that they do not differ between runs.
    development = _Development(options, Script.parse(options.script), inputs, VirtualClock(SystemClock().now_ms()))
    if options.once:
        with development:
            development.run([])
        return 0
    watch = _watch()
    # A later run must not load the bytecode of an earlier one: a file's time may be the same to the second.
    writes_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        with development:
            development.repeat(watch)
    except KeyboardInterrupt:
        say("ended")
    finally:
        sys.dont_write_bytecode = writes_bytecode
    return 0


def _watch() -> Any:
    """Return the function that waits for changes of folders.

    Raises:
        UsageError: the library is not installed.
    """
    try:
        from watchfiles import watch
    except ImportError as error:
        message = f"streams dev needs watchfiles ({error}): {pip_install('watch')}, or give --once"
        raise UsageError(message) from error
    return watch


@frozen
class _Files:
    """The files of a run, with the time and size of each; missing ones have none."""

    marks: Mapping[Path, tuple[int, int] | None]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> "_Files":
        return cls({path: _mark(path) for path in sorted(set(paths))})

    @property
    def folders(self) -> frozenset[Path]:
        return frozenset(path.parent for path in self.marks if path.parent.is_dir())

    def changed(self, now: "_Files") -> list[Path]:
        """Return the files that were saved, made or removed."""
        return [path for path in sorted({*self.marks, *now.marks}) if self.marks.get(path) != now.marks.get(path)]


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


@define(eq=False)
class _Development(Closeable):
    """The runs of a script; the results of the last run that succeeded are kept to compare with."""

    options: argparse.Namespace
    script: "Script"
    inputs: Mapping[str, str]
    clock: "Clock"
    #: Files of the modules of the last runs; those of a run that failed are added to those of the run before.
    modules: set[Path] = field(factory=set)
    last: "Version | None" = None
    _open: ExitStack = field(factory=ExitStack)

    def close(self) -> None:
        self._open.close()

    def repeat(self, watch: Any) -> None:
        """Run at each file change until an interrupt; report a failed run, and wait for the next change."""
        changed: list[Path] = []
        while True:
            before = self._files()
            try:
                self.run(changed)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - any mistake of the script, which is mended next.
                report(error, is_debug=self.options.debug)
            changed = self._awaited(before, watch)

    def _awaited(self, before: _Files, watch: Any) -> list[Path]:
        """Wait until files differ from ``before``; return the changed files."""
        seen = _Files({**self._files().marks, **before.marks})
        say("waiting for a change; Ctrl-C ends")
        for _ in watch(*seen.folders, watch_filter=None, rust_timeout=_LOOK_MS, yield_on_timeout=True, recursive=False):
            if changed := seen.changed(self._files()):
                return changed
        raise KeyboardInterrupt

    def _files(self) -> _Files:
        from streams.files import local_sources

        script = self.script.path.resolve()
        paths = {script, *self.modules, *script.parent.glob("*.py"), *script.parent.glob("[!.]*/*.py")}
        for location in self.inputs.values():
            try:
                paths.update(Path(file.name).resolve() for file in local_sources(location))
            except Exception:  # noqa: BLE001 - the run says that there is no such file; it may come.
                paths.add(Path(location).resolve())
        return _Files.of(paths)

    def run(self, changed: list[Path]) -> None:
        """Run once, and show the results, or the differences from the last run.

        Raises:
            StreamsError: the script or a file cannot be loaded, or user code failed.
        """
        from streams.cli.diff_report import changes_text, differing_view
        from streams.cli.late import say_drops
        from streams.cli.terminal import console, show
        from streams.cli.worlds import ScriptModules
        from streams.comparison import compare
        from streams.files import standard_form

        if changed:
            print(f"\nchanged: {', '.join(path.name for path in changed)}")
        world = ScriptModules()
        with ExitStack() as stack:
            try:
                version = self._version(world, stack)
            except BaseException:
                self.modules |= world.files
                raise
            self.modules = world.files
            if self.last is None:
                self._show(version)
            else:
                comparison = compare(self.last, version, limit=self.options.limit)
                if standard_form("auto", "text") == "table":
                    show(*differing_view(comparison, console().width))
                else:
                    print(changes_text(comparison) or "no output and no store differs from the last run")
            if version.result is not None:
                say_drops(version.result.drops())
            sys.stdout.flush()
            self._open.close()
            self._open = stack.pop_all()
            self.last = version

    def _version(self, world: "ScriptModules", stack: ExitStack) -> "Version":
        from streams.cli.scripts import built, source
        from streams.comparison import Version
        from streams.core.settings.config import StreamsConfig
        from streams.replay import replay

        with world.inside():
            settings = self.script.settings(settings_of(self.options), self.options.application_id)
            config = StreamsConfig.of(**settings)
            definition = source(self.script)
            topology = built(self.script, definition, config)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-dev-"))
            result = replay(
                definition,
                self._samples(topology, config, Path(folder)),
                plan_of(self.options, executor="local", order="as_given"),
                **settings,
            )
            return Version.of(stack.enter_context(result))

    def _samples(self, topology: "Topology", config: "StreamsConfig", folder: Path) -> dict[str, Any]:
        """Write the first records of each input, with their times, and return the files by topic."""
        from streams.cli.commands.run import NamedFiles
        from streams.cli.topic_declarations import declared_source
        from streams.files import open_output

        on_bad_row = "fail" if config.deserialization_handler == "fail" else "continue"
        readers = NamedFiles.of_inputs(self.inputs).readers(topology, on_bad_row=on_bad_row, clock=self.clock)
        samples: dict[str, Any] = {}
        for name, files in readers.items():
            declared = declared_source(topology, name)
            path = folder / f"{name}.records.jsonl"
            count = declared.partitions or self.options.partitions or 1
            open_output(declared, path).write(_first(files, count, self.options.max))
            samples[name] = path
        return samples

    def _show(self, version: "Version") -> None:
        from streams.cli.diff_report import record_line
        from streams.core.serdes.display import RecordTable
        from streams.files import standard_form
        from streams.replay.calls.work import output_topic

        result = version.result
        assert result is not None
        for name, count in result.records.items():
            print(f"{name}: {count:,} {'record' if count == 1 else 'records'}")
            records = result.rows(name)[: self.options.limit]
            lines = list(map(record_line, records))
            if standard_form("auto", "text") == "table":
                topic = output_topic(version.topology, name)
                lines = RecordTable(topic.key_serde if topic else None).lines(
                    (record.key, record.value) for record in records
                )
            for line in lines:
                print(f"  {line}")
            if count > self.options.limit:
                print(f"  and {count - self.options.limit:,} more; --limit shows more of them")
        if not result.records:
            print("the topology writes no topic")


def _first(files: Iterable[Any], partitions: int, count: int) -> Iterator[tuple[int, Any]]:
    """Yield the first ``count`` records of files as blocks by partition."""
    left = count
    for number, block in (numbered for file in files for batch in file(partitions) for numbered in batch):
        if left <= 0:
            return
        yield number, block if len(block) <= left else block.slice(0, left)
        left -= len(block)
