"""``streams why``: explain why there is, or is not, an output record for a key."""

import argparse
import json
import os
from pathlib import Path

from streams.cli.lines import say
from streams.cli.mistakes import UsageError
from streams.cli.options import (
    Commands,
    add_common,
    add_limit,
    add_repeatable,
    add_run,
    add_times,
    add_view,
    pairs,
    plan_of,
    settings_of,
)

#: Exit status if there is no such output.
MISSING = 1
_EXAMPLES = """\
examples:
  streams why shop.py --input orders=orders.jsonl --key ann --topic totals
  streams why sessions.py --input log=access.log.gz --key 83.149.9.216 --at 2015-05-17T10:05
exit status: 0 the output is there, 1 it is not, 2 a mistake in what was given
"""


def add_parser(commands: Commands) -> None:
    """Add ``streams why`` and its arguments to the program."""
    parser = commands.add_parser(
        "why",
        description="Run a topology over history with traced tasks. Show which input records, rows and timers the "
        "output for a key came from; or, if there is none, where the records of the key ended, and why.",
        epilog=f"An input is a file, a folder, a pattern, or an archive.\n\n{_EXAMPLES}",
    )
    add_common(parser)
    add_repeatable(parser, "--input", "TOPIC=PATH", "history of a source topic (may be repeated)")
    add_run(parser)
    parser.add_argument("--key", required=True, help="key of the output, or of the input that should have led to it")
    parser.add_argument("--topic", help="output topic (default: all)")
    parser.add_argument("--node", help="explain the records that come to this node, instead of those of a topic")
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="event time of the output, or a time in its window (default: the last output); ISO text means all times "
        "that begin so, 2026-01-31T12 a whole hour",
    )
    add_times(parser)
    add_limit(parser, "records listed in one place", 3)
    add_view(parser, "the records and nodes")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace) -> int:
    """Replay the history with traced tasks, and print the explanation."""
    from streams.cli.scripts import Script, built, source
    from streams.cli.story_view import parts_of
    from streams.cli.terminal import show
    from streams.cli.topic_declarations import declared_source, source_topics
    from streams.core.settings.config import StreamsConfig
    from streams.files import standard_form
    from streams.replay import why

    if options.topic and options.node:
        raise UsageError("--topic and --node exclude each other: give the one whose records you ask about")
    script = Script.parse(options.script)
    settings = script.settings(settings_of(options), options.application_id)
    inputs = dict(pairs(options.input, "--input", "TOPIC=PATH"))
    if not inputs:
        raise UsageError("give the history, --input TOPIC=PATH")
    definition = source(script)
    topology = built(script, definition, StreamsConfig.of(**settings))
    for name in inputs:
        declared_source(topology, name)
    for name in sorted(source_topics(topology) - inputs.keys()):
        say(f"topic {name!r} has no --input: it gets no records")
    story = why(
        definition,
        inputs,
        options.key,
        options.topic,
        node=options.node,
        at=options.at,
        limit=options.limit,
        plan=plan_of(options),
        **settings,
    )
    form = standard_form(options.format, "text")
    if form == "table":
        show(*parts_of(story))
    else:
        other = story.to_svg() if form == "svg" else json.dumps(story.as_json(), indent=2)
        print((story.text if form == "text" else other).replace(f"{Path.cwd()}{os.sep}", ""))
    return 0 if story.outputs else MISSING
