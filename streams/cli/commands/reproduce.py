"""``streams reproduce``: re-run a capsule (a captured span of an application), record by record."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streams.cli.commands.capture import task_of, versions
from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import Commands, add_settings, add_tasks, settings_of

if TYPE_CHECKING:
    from streams.capsule import Capsule

#: Exit status if the run differs from what was recorded.
DIFFERENT = 1
_EXAMPLES = """\
examples:
  streams reproduce shop.capsule
  streams reproduce shop.capsule --script fixed.py
  streams reproduce shop.capsule --task 1_3 --step
exit status: 0 the same, 1 different, 2 a mistake in what was given
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams reproduce`` and its arguments to the program."""
    parser = commands.add_parser(
        "reproduce",
        description="Run the tasks of a capsule in the recorded order. Compare outputs and changelogs with those that "
        "were recorded, or step through a task.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("capsule", metavar="CAPSULE", help="file that `streams capture` has written")
    parser.add_argument("--script", metavar="SCRIPT[:FUNCTION]", help="another version (default: that of the capsule)")
    add_tasks(parser)
    parser.add_argument("--step", action="store_true", help="step through one task by commands; h lists them")
    add_settings(parser, "a setting that differs from the captured ones (may be repeated)")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Re-run the capsule and print the differences from the recorded run, or step through one task."""
    from streams.capsule import Capsule

    capsule = Capsule.read(Path(options.capsule)).only([task_of(text) for text in options.task])
    now = versions()
    for name, version in capsule.versions.items():
        if version != now.get(name):
            say(f"captured with {name} {version}, this is {now.get(name)}")
    for note in capsule.notes:
        say(note)
    with tempfile.TemporaryDirectory(prefix="streams-capsule-") as folder:
        if options.script is None:
            if capsule.script is None:
                raise UsageError(f"{options.capsule} has no script: give it, --script SCRIPT")
            for name, text in capsule.sources.items():
                path = Path(folder) / name
                if not path.resolve().is_relative_to(Path(folder).resolve()):
                    raise UsageError(f"{options.capsule}: source {name!r} is outside of the folder of the script")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            options.script = f"{Path(folder) / capsule.script[0]}:{capsule.script[1]}"
        return _run(options, capsule)


def _run(options: argparse.Namespace, capsule: "Capsule") -> int:
    from streams.capsule import Reproduction, Stepper
    from streams.cli.scripts import Script, load
    from streams.core.settings.config import StreamsConfig

    settings = {**capsule.settings, "application_id": capsule.application_id, **settings_of(options)}
    config = StreamsConfig.of(**settings)
    reproduction = Reproduction(capsule, load(Script.parse(options.script), config), config)
    if not options.step:
        comparison = reproduction.compare()
        print(comparison)
        return 0 if comparison.is_same else DIFFERENT
    if len(capsule.spans) != 1:
        tasks = ", ".join(map(str, capsule.spans))
        raise UsageError(f"--step is for one task: give one with --task; the capsule has {tasks}")
    (task_id,) = capsule.spans
    Stepper(reproduction, task_id, print).run(_lines())
    return 0


def _lines() -> "Iterator[str]":
    """Yield the lines of standard input, with a prompt if it is a terminal."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line
