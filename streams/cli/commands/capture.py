"""``streams capture``: write a time span of a live application to a file, to reproduce it elsewhere."""

import argparse
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.cluster import add_where, opened
from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_application_id, add_script, add_tasks
from streams.core.installation import installed_version

if TYPE_CHECKING:
    from streams.core.blocks.records import TaskId

_EXAMPLES = """\
The capsule has keys and values as they are. Settings of connections and secrets are left out.

examples:
  streams capture shop.py --application-id shop --bootstrap-servers localhost:9092 -o shop.capsule
  streams capture shop.py --state-dir state --since 2026-01-31T12:00 --until 2026-01-31T12:05 --task 1_3 -o noon.capsule
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams capture`` and its arguments to the program."""
    parser = commands.add_parser(
        "capture",
        description="Write a capsule: the order in which tasks took their inputs, as the flight recorder noted it "
        "(--set flight_recorder=true), with inputs, outputs, state, script and settings.",
        epilog=_EXAMPLES,
    )
    add_script(parser, "the script of the application")
    add_application_id(parser)
    add_where(parser)
    parser.add_argument("--since", metavar="TIME", help="commits from this wall-clock time on (default: all recorded)")
    parser.add_argument("--until", metavar="TIME", help="commits before this wall-clock time (default: all recorded)")
    add_tasks(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the capsule to write")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Write the capsule (the file of captured records), and print its contents and the omissions."""
    from streams.capsule import capture, without_secrets
    from streams.cli.scripts import Script, load
    from streams.clients import Admin
    from streams.core.event_time.time_texts import time_ms
    from streams.core.settings.config import StreamsConfig

    script = Script.parse(options.script)
    settings = script.settings(options.all_settings, options.application_id)
    if options.bootstrap_servers:
        settings["bootstrap_servers"] = options.bootstrap_servers
    config = StreamsConfig.of(**settings)
    topology = load(script, config)
    since = time_ms(options.since, "--since") if options.since else None
    until = time_ms(options.until, "--until") if options.until else None
    with opened(options) as broker:
        with Admin(broker) as admin:
            partition_counts = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
        tasks = [task_of(text) for text in options.task]
        capsule = capture(broker, topology, config, partition_counts, since_ms=since, until_ms=until, tasks=tasks)
    capsule.script = (script.path.name, script.function)
    for name, text in _sources(script.path.resolve()).items():
        capsule.sources[name], secrets = without_secrets(text)
        capsule.left_out += [f"{secret} ({name}:{line})" for line, secret in secrets]
    capsule.versions = versions()
    capsule.write(Path(options.output))
    commits = sum(len(span.frames) for span in capsule.spans.values())
    inputs = sum(span.count for span in capsule.spans.values())
    print(f"{options.output}: {inputs:,} records in {commits:,} commits of {len(capsule.spans)} tasks")
    for note in capsule.notes:
        say(note)
    if capsule.left_out:
        print(f"left out: {', '.join(capsule.left_out)}")
    return 0


def task_of(text: str) -> "TaskId":
    """Parse a task id such as 0_3.

    Raises:
        UsageError: the text is not a task id.
    """
    from streams.core.blocks.records import TaskId

    sub, _, partition = text.partition("_")
    if not (sub.isdecimal() and partition.isdecimal()):
        raise UsageError(f"--task {text}: a task is SUBTOPOLOGY_PARTITION, such as 0_3")
    return TaskId(int(sub), int(partition))


def versions() -> dict[str, str]:
    """Return the versions of this package and of Python."""
    return {"streams": installed_version() or "(not installed)", "python": platform.python_version()}


def _sources(script: Path) -> dict[str, str]:
    """Return the source of a script and of the modules that it has imported from its folder, by relative path."""
    files = {
        Path(file).resolve() for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))
    }
    own = {file for file in files if file.suffix == ".py" and file.is_relative_to(script.parent)}
    own = {file for file in own if "site-packages" not in file.parts}
    return {str(file.relative_to(script.parent)): file.read_text() for file in sorted({script, *own})}
